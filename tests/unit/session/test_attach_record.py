"""The record in our own process: order, times, and the end of a server that is no child of ours."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from firsttoken.history.runs import RunFolder
from firsttoken.hosts.procfs import Procfs
from firsttoken.model.events import Event, Exited, Launched, LogLine, MemberSeen, ObserverStarted, Planned, Tick
from firsttoken.model.plan import Plan, Policy
from firsttoken.model.process import Member, ProcessKey
from firsttoken.session.attaching.own_record import OwnRecord
from firsttoken.session.attaching.past import PastClock
from firsttoken.session.stream import Ended, Item, Live

ROOT = ProcessKey("here", 0, 0)


def line(stamp: float | None, text: str = "x") -> LogLine:
    return LogLine(offset=0, length=1, text=text, stamp=stamp)


def drained(items: "asyncio.Queue[Item]") -> list[Item]:
    found = []
    while not items.empty():
        found.append(items.get_nowait())
    return found


def test_the_past_keeps_its_times_and_ends_where_the_observer_begins(tmp_path: Path) -> None:
    async def main() -> tuple[list[Item], list[Event]]:
        record = OwnRecord(RunFolder(tmp_path), root=None, age_s=100.0, clock=PastClock(began=1e9))
        stream = record.stream()
        record.post([Planned(plan=Plan(), policy=Policy()), Launched(process=ROOT, argv=("a",), adopted=True)])
        record.post([line(1e9 + 3), line(None), line(1e9 + 7.5), ObserverStarted(pid=1), line(1e9 + 9)])
        record.close()
        return drained(stream.waiting), list(RunFolder(tmp_path).events())

    items, written = asyncio.run(main())
    events = [item for item in items if isinstance(item, Event)]
    assert [event.seq for event in events] == list(range(1, 8))
    assert [event.t for event in events[:5]] == [0.0, 0.0, 3.0, 3.0, 7.5]
    assert all(event.t == pytest.approx(100.0, abs=5) for event in events[5:])
    assert isinstance(items[6], Live)
    assert [(event.seq, event.body) for event in written] == [(event.seq, event.body) for event in events]
    assert events[0].wall == pytest.approx(events[-1].wall - events[-1].t, abs=5)


@pytest.mark.parametrize(("how", "code", "signal"), [("raise SystemExit(3)", 3, None), ("import os; os.kill(os.getpid(), 9)", None, 9)])
def test_how_a_server_ended_is_asked_of_the_kernel(tmp_path: Path, how: str, code: int | None, signal: int | None) -> None:
    """The server is our grandchild, so we can neither wait for it nor be told."""
    parent = f"""
import subprocess, sys
server = subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read(); {how}'], stdin=subprocess.PIPE)
print(server.pid, flush=True)
sys.stdin.readline()
server.stdin.close()
server.wait()
"""

    async def follow(family: "subprocess.Popen[bytes]") -> list[Item]:
        assert family.stdin is not None
        assert family.stdout is not None
        pid = int(family.stdout.readline())
        key = Procfs().key("here", pid)
        assert key is not None
        record = OwnRecord(RunFolder(tmp_path), root=key, age_s=0.0, clock=PastClock(began=0.0))
        stream = record.stream()
        record.post([MemberSeen(member=Member(process=key, parent=0, title="x")), ObserverStarted(pid=1)])
        keeping = asyncio.create_task(record.keep())
        async with asyncio.timeout(20):
            seen: list[Item] = []
            while not any(isinstance(item, Event) and isinstance(item.body, Tick) for item in seen):
                seen.append(await stream.waiting.get())
            family.stdin.write(b"\n")
            family.stdin.flush()
            record.last_word.set()
            await keeping
        record.close()
        return drained(stream.waiting)

    with subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as family:
        items = asyncio.run(follow(family))
    exits = [item.body for item in items if isinstance(item, Event) and isinstance(item.body, Exited)]
    if not exits:
        pytest.skip("this kernel tells only the parent how a process ended")
    assert [(body.code, body.signal, body.root) for body in exits] == [(code, signal, True)]
    assert items[-1] == Ended(True, code, signal)
