"""Stacks of real processes: equal ones merged, ranks from titles, and nothing to see."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firsttoken.history.runs import RunFolder
from firsttoken.hosts.procfs import Procfs
from firsttoken.model.codec import encode
from firsttoken.model.events import Body, Emptied, Event, Launched, LogLine, MemberSeen, Planned
from firsttoken.model.plan import Plan, Policy, Sizes
from firsttoken.model.process import Member, ProcessKey, RankTag
from firsttoken.report.picture import picture_document, picture_text
from firsttoken.session.stacks import NothingToSee, run_stacks, tree_stacks

PARENT = """
import subprocess, sys
code = "import sys, time; print('up', flush=True); exec('def step():\\\\n time.sleep(300)'); step()"
ranks = [subprocess.Popen([sys.executable, "-S", "-c", code, f"rank{n}"], stdout=subprocess.PIPE) for n in range(3)]
for rank in ranks:
    rank.stdout.readline()
print(*(rank.pid for rank in ranks), flush=True)
for rank in ranks:
    rank.wait()
"""
PATTERNS = (re.compile(r"rank(?P<rank>\d+)$"),)


@pytest.fixture(scope="module")
def family() -> Iterator[tuple[int, list[int]]]:
    """A parent that waits for three children which stand in one place."""
    process = subprocess.Popen([sys.executable, "-S", "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    ranks = [int(word) for word in process.stdout.readline().split()]
    deadline = time.monotonic() + 10
    while any("nanosleep" not in (Procfs().read(f"{pid}/wchan") or b"").decode() for pid in ranks) and time.monotonic() < deadline:
        time.sleep(0.02)
    yield process.pid, ranks
    for pid in (*ranks, process.pid):
        os.kill(pid, 9)
    process.wait()
    process.stdout.close()


def test_ranks_in_one_place_are_one_group_and_their_parent_another(family: tuple[int, list[int]]) -> None:
    root, ranks = family
    picture = asyncio.run(tree_stacks(root, PATTERNS, Sizes(tp=3, world=3)))
    assert [(group.ranks, group.pids) for group in picture.groups] == [((0, 1, 2), tuple(ranks)), ((), (root,))]
    text = picture_text(picture)
    assert f"ranks 0 to 2 (pids {', '.join(map(str, ranks))}): " in text
    assert f"the main process (pid {root}) waits for its child" in text
    told = picture_document(picture)
    assert [row["rank"] for row in told["processes"]] == [0, 1, 2, None]
    assert told["groups"][0]["frames"][0]["function"] == "step"
    assert {"rank": 0, "pid": ranks[0]} in [wait["from"] for wait in told["waits"]]


def test_a_process_that_is_not_there_is_a_sentence() -> None:
    with pytest.raises(NothingToSee, match="no process 4000000 here"):
        asyncio.run(tree_stacks(4000000, (), Sizes()))


def recorded(folder: Path, *bodies: Body) -> RunFolder:
    node = os.uname().nodename
    events = [Event(seq=i, t=1.0, wall=1e9, node=node, body=body) for i, body in enumerate(bodies, start=1)]
    (folder / "events.jsonl").write_bytes(b"".join(map(encode, events)))
    return RunFolder(folder)


def test_of_a_run_only_its_own_living_processes_are_looked_at(family: tuple[int, list[int]], tmp_path: Path) -> None:
    root, ranks = family
    node = os.uname().nodename
    keys = [Procfs().key(node, pid) for pid in (root, ranks[2])]
    assert keys[0] is not None
    assert keys[1] is not None
    reused = ProcessKey(node, ranks[0], keys[1].start - 5000)
    members = [
        MemberSeen(member=Member(process=key, parent=0, title="engine", tag=tag))
        for key, tag in ((keys[0], None), (keys[1], RankTag(rank=2)), (reused, RankTag(rank=0)))
    ]
    planned = Planned(plan=Plan(command=("e",), sizes=Sizes(tp=3, world=3)), policy=Policy())
    run = recorded(tmp_path, planned, Launched(process=keys[0], argv=("e",), run="r"), *members)
    picture = asyncio.run(run_stacks(run))
    assert [(one.rank, one.process.pid) for one in picture.seen] == [(2, ranks[2]), (None, root)]


def test_a_run_that_is_over_leads_on_to_its_record(tmp_path: Path) -> None:
    gone = ProcessKey(os.uname().nodename, 4000000, 1)
    run = recorded(tmp_path, Launched(process=gone, argv=("e",)), LogLine(offset=0, length=1, text="x"), Emptied())
    with pytest.raises(NothingToSee, match="has ended; `firsttoken explain"):
        asyncio.run(run_stacks(run))
