"""Recorded runs of the embedded engine, one for each kind of fault, and some of real engines: each gets its cause, or none that is sure."""

import tarfile
from pathlib import Path

import pytest

from firsttoken.history.runs import RunFolder
from firsttoken.model.result import Result
from firsttoken.session.explain import SURE, explain_run

RUNS = Path(__file__).parent / "runs"
CAUSE = {
    "chatter": None,
    "child": None,
    "compile": "jit-compile-slow",
    "connect": "address-unreachable",
    "crash": None,
    "cycle": "lock-cycle",
    "download": None,
    "early": None,
    "error": None,
    "exit": None,
    "fifo": "file-never-ready",
    "grind": None,
    "jit": None,
    "kill": "stopped-from-outside",
    "lock": "foreign-lock-holder",
    "logstop": None,
    "mute": None,
    "peer": "rendezvous-peer-missing",
    "quiet": None,
    "second": None,
    "skip": "rank-divergence",
    "slow": None,
    "spin": None,
    "stall": None,
    "stop": "process-stopped",
    # of real engines
    "sglang-fifo": "file-never-ready",
    "vllm-lock": "foreign-lock-holder",
    "vllm-sleeps": None,
}
"""None: nothing that was recorded decides a cause, and to name one would be a guess"""
NAMED = {
    "lock": "build.lock is held by python -m other.job",
    "fifo": "model-00002-of-00002.safetensors",
    "connect": "127.0.0.1:",
    "kill": "killed from outside",
    "compile": "compilers are at work",
}
"""what the evidence names"""


def explained(kind: str, folder: Path) -> Result:
    with tarfile.open(RUNS / f"{kind}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return explain_run(RunFolder(folder))


@pytest.mark.parametrize("kind", CAUSE)
def test_a_fault_gets_its_cause_or_an_honest_unknown(kind: str, tmp_path: Path) -> None:
    found = explained(kind, tmp_path).findings
    sure = [row["cause"] for row in found if row["confidence"] >= SURE]
    assert kind not in NAMED or NAMED[kind] in found[0]["evidence"][0]
    assert sure == ([CAUSE[kind]] if CAUSE[kind] is not None else [])


def test_every_recorded_run_has_its_answer_here() -> None:
    assert {file.name.removesuffix(".tar.xz") for file in RUNS.iterdir()} == set(CAUSE)


def test_what_our_own_stop_did_is_no_cause(tmp_path: Path) -> None:
    """A run that hung and was then stopped: what counts is what it was before."""
    explained("fifo", tmp_path)
    events = tmp_path / "events.jsonl"
    lines = events.read_text().splitlines()
    seq = len(lines) + 1
    after = '"t":90.0,"wall":1796000300.0,"node":"vm"'
    root = next(line for line in lines if '"kind":"launched"' in line).split('"process":')[1].split("]")[0] + "]"
    events.write_text(
        "\n".join(
            (
                *lines,
                f'{{"seq":{seq},{after},"kind":"stop_asked","by":"stop"}}',
                f'{{"seq":{seq + 1},{after},"kind":"signal_sent","signal":9,"process":{root},"why":"stop"}}',
                f'{{"seq":{seq + 2},{after},"kind":"exited","process":{root},"signal":9,"root":true}}',
                f'{{"seq":{seq + 3},{after},"kind":"emptied"}}',
            )
        )
        + "\n"
    )
    found = explain_run(RunFolder(tmp_path)).findings
    assert [row["cause"] for row in found if row["confidence"] >= SURE] == ["file-never-ready"]
