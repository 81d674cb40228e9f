"""Runs on disk, told as stories: a folder as a keeper and an observer leave it."""

import json
from pathlib import Path

from story import ROOT, Story, collective, polls, rank_pid, wait_for

from firsttoken.history.runs import RunFolder
from firsttoken.model.codec import encode
from firsttoken.model.stillness import WaitKind
from firsttoken.model.words import Edge, Phase

HOSTILE = "<script>alert(1)</script> <img src=x onerror=alert(1)> \x1b[31m\x1b]0;t\x07 \u202etxt\u2066 ``` | @a #1 \ud83d"
"""markup, terminal sequences, characters that turn the direction of text, Markdown, half a character"""


def record(folder: Path, story: Story, log: bytes = b"", **spec: object) -> RunFolder:
    """`spec`: more of what stands in spec.json."""
    (folder / "log").mkdir(parents=True)
    (folder / "events.jsonl").write_bytes(b"".join(encode(event) for event in story.events))
    (folder / "log" / "head.raw").write_bytes(log)
    index = "".join(f"{offset} {number:.3f} {1e9 + number:.3f}\n" for number, offset in enumerate(range(0, len(log), 100)))
    (folder / "log" / "index").write_text(index)
    told = {"command": ["engine", "serve"], "machine": {"node": "node", "cpus": 2}, "environment": {"NCCL_DEBUG": "INFO"}, **spec}
    (folder / "spec.json").write_text(json.dumps(told))
    (folder / "result.json").write_text(json.dumps({"verdict": str(story.state.decision.verdict)}))
    return RunFolder(folder)


def hung(title: str = "engine::rank") -> Story:
    """Rank 2 waits for a lock that another program holds; the others wait for it in a collective."""
    story = Story().crew(4).line(Phase.DISTRIBUTED_INIT, Edge.END)
    for rank in range(4):
        story.member(rank_pid(rank), f"{title}{rank}", rank=rank)
        story.line(Phase.WEIGHTS, rank=rank)
    story.seconds(3, work=50_000_000, ticks=90, log=2)
    for rank in range(4):
        story.line(Phase.WEIGHTS, Edge.END, rank=rank).line(Phase.GRAPH_CAPTURE, rank=rank)
    fifo = wait_for(WaitKind.FIFO, f"/cache/{title}.fifo", nobody=True)
    poses = {ROOT.pid: polls()} | {rank_pid(rank): collective() for rank in range(4)}
    poses[rank_pid(2)] = collective(doing="file_read", where="open", waits=(fifo,))
    return story.watch(30, poses)


def served() -> Story:
    story = Story().crew(2).line(Phase.DISTRIBUTED_INIT, Edge.END)
    for phase in (Phase.WEIGHTS, Phase.GRAPH_CAPTURE):
        story.line(phase).seconds(2, work=40_000_000, ticks=150, log=3).line(phase, Edge.END)
    return story.ready_line().listen().seconds(1, ticks=20).ask().answer().ask().answer().seconds(2)
