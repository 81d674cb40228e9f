import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_proc import NODE, Clock, FakeProc

from firsttoken.hosts.procfs import Procfs
from firsttoken.model.events import Exited, MemberGone, MemberSeen
from firsttoken.model.process import RankTag
from firsttoken.observe.processes import ProcessWatcher, tag_of

PATTERNS = (re.compile(r"^ENGINE::(?P<name>Worker)(?:_DP(?P<dp>\d+))?(?:_TP(?P<tp>\d+))?$"),)
MARK = b"FIRSTTOKEN_RUN=abc"


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


def seen(events: object) -> list[int]:
    assert isinstance(events, list)
    return [event.member.process.pid for event in events if isinstance(event, MemberSeen)]


def gone(events: object) -> list[int]:
    assert isinstance(events, list)
    return [event.process.pid for event in events if isinstance(event, MemberGone)]


def test_descendants_of_the_root_are_members_and_others_are_not(proc: FakeProc) -> None:
    root = proc.process(10, start=100, title="serve --port 1")
    proc.process(11, ppid=10, start=110)
    proc.process(12, ppid=11, start=120)
    proc.process(13, ppid=1, start=120)
    watcher = ProcessWatcher(proc.procfs, NODE)
    events = watcher.scan([root])
    assert seen(events) == [10, 11, 12]
    assert isinstance(events[0], MemberSeen)
    assert events[0].member.title == "serve --port 1"
    assert events[0].member.process == root
    assert watcher.scan([root]) == []


def test_a_new_child_is_found_without_a_full_pass(proc: FakeProc) -> None:
    clock = Clock()
    root = proc.process(10, start=100)
    watcher = ProcessWatcher(proc.procfs, NODE, clock=clock)
    watcher.scan([root])
    proc.process(14, ppid=10, start=200)
    proc.process(15, ppid=14, start=201)
    assert seen(watcher.scan([root])) == [14, 15]


def test_a_process_that_vanished_is_told_once(proc: FakeProc) -> None:
    root = proc.process(10, start=100)
    proc.process(11, ppid=10, start=110)
    watcher = ProcessWatcher(proc.procfs, NODE)
    watcher.scan([root])
    proc.end(11)
    assert gone(watcher.scan([root])) == [11]
    assert watcher.scan([root]) == []


def test_a_proc_that_cannot_be_read_for_a_moment_ends_nobody(proc: FakeProc) -> None:
    root = proc.process(10, start=100)
    watcher = ProcessWatcher(proc.procfs, NODE)
    watcher.scan([root])
    (proc.root / "10/stat").rename(proc.root / "10/away")
    assert watcher.scan([root]) == []
    (proc.root / "10").rename(proc.root / "away")
    assert watcher.scan([root]) == []
    assert "could not be listed" in watcher.missed()[0].reason
    (proc.root / "away").rename(proc.root / "10")
    (proc.root / "10/away").rename(proc.root / "10/stat")
    assert watcher.scan([root]) == []


def test_a_reused_pid_is_another_process(proc: FakeProc) -> None:
    root = proc.process(10, start=100)
    proc.process(11, ppid=10, start=110)
    watcher = ProcessWatcher(proc.procfs, NODE)
    watcher.scan([root])
    proc.process(11, ppid=1, start=500)
    events = watcher.scan([root])
    assert gone(events) == [11]
    assert seen(events) == []
    proc.process(11, ppid=10, start=600)
    watcher = ProcessWatcher(proc.procfs, NODE)
    assert seen(watcher.scan([root])) == [10, 11]


def test_a_reused_root_pid_takes_no_strangers_in(proc: FakeProc) -> None:
    root = proc.process(10, start=100)
    proc.process(11, ppid=10, start=110)
    watcher = ProcessWatcher(proc.procfs, NODE)
    watcher.scan([root])
    proc.process(10, ppid=1, start=700)
    proc.process(20, ppid=10, start=710)
    events = watcher.scan([root])
    assert gone(events) == [10]
    assert seen(events) == []


def test_a_member_stays_in_after_its_parent_ended(proc: FakeProc) -> None:
    root = proc.process(10, start=100)
    proc.process(11, ppid=10, start=110)
    watcher = ProcessWatcher(proc.procfs, NODE)
    watcher.scan([root])
    proc.end(10)
    proc.process(11, ppid=1, start=110)
    assert gone(watcher.scan([root])) == [10]
    assert [member.process.pid for member in watcher.members] == [11]


def test_a_marked_process_outside_the_tree_is_found_with_its_children(proc: FakeProc) -> None:
    root = proc.process(10, start=100, environ=MARK + b"\0")
    proc.process(20, ppid=1, start=120, environ=b"A=b\0" + MARK + b"\0C=d\0")
    proc.process(21, ppid=20, start=130, environ=b"")
    proc.process(22, ppid=1, start=130, environ=b"X" + MARK + b"\0")
    proc.process(23, ppid=1, start=130, environ=MARK + b"def\0")
    assert seen(ProcessWatcher(proc.procfs, NODE).scan([root], mark=MARK)) == [10, 20, 21]


def test_an_environment_is_read_once_and_an_empty_one_again(proc: FakeProc) -> None:
    clock = Clock()
    root = proc.process(10, start=100)
    proc.process(1, ppid=0, start=1)
    proc.process(20, ppid=1, start=120, environ=b"A=b\0")
    proc.process(21, ppid=1, start=121, environ=b"")
    watcher = ProcessWatcher(proc.procfs, NODE, clock=clock)
    watcher.scan([root], mark=MARK)
    proc.write("20/environ", MARK + b"\0")
    proc.write("21/environ", MARK + b"\0")
    assert seen(watcher.scan([root], mark=MARK)) == []
    clock.now += 10
    assert seen(watcher.scan([root], mark=MARK)) == [21]


def test_a_process_that_was_listed_before_its_parent_is_found_in_the_next_scan(proc: FakeProc) -> None:
    root = proc.process(10, start=100)
    watcher = ProcessWatcher(proc.procfs, NODE, clock=Clock())
    watcher.scan([root])
    proc.process(12, ppid=11, start=120)
    assert watcher.scan([root]) == []
    proc.process(11, ppid=10, start=110)
    assert seen(watcher.scan([root])) == [11, 12]


def test_excluded_processes_and_what_they_start_stay_out(proc: FakeProc) -> None:
    root = proc.process(10, start=100)
    proc.process(30, ppid=10, start=110, environ=MARK + b"\0")
    proc.process(31, ppid=30, start=120, environ=MARK + b"\0")
    assert seen(ProcessWatcher(proc.procfs, NODE, exclude=[30]).scan([root], mark=MARK)) == [10]


def test_an_excluded_root_hands_on_what_it_inherits(proc: FakeProc) -> None:
    keeper = proc.process(5, start=50)
    proc.process(6, ppid=5, start=60, title="observer")
    server = proc.process(10, ppid=5, start=100)
    watcher = ProcessWatcher(proc.procfs, NODE, exclude=[5, 6])
    assert seen(watcher.scan([keeper, server])) == [10]
    proc.process(12, ppid=5, start=200, title="orphan")
    assert seen(watcher.scan([keeper, server])) == [12]


def test_an_adopted_process_comes_in_with_what_it_has_started(proc: FakeProc) -> None:
    root = proc.process(10, start=100)
    other = proc.process(40, start=90)
    proc.process(41, ppid=40, start=95)
    watcher = ProcessWatcher(proc.procfs, NODE)
    assert seen(watcher.scan([root])) == [10]
    assert seen(watcher.scan([root], extra=[other])) == [40, 41]


def test_a_new_title_is_told_with_its_tag(proc: FakeProc) -> None:
    root = proc.process(10, start=100)
    proc.process(11, ppid=10, start=110, title="python -c spawn_main")
    watcher = ProcessWatcher(proc.procfs, NODE, PATTERNS)
    watcher.scan([root])
    proc.write("11/cmdline", b"ENGINE::Worker_TP1\0\0\0\0")
    (event,) = watcher.scan([root])
    assert isinstance(event, MemberSeen)
    assert event.member.title == "ENGINE::Worker_TP1"
    assert event.member.tag == RankTag(name="Worker", tp=1)


def test_patterns_that_come_later_retag_the_members(proc: FakeProc) -> None:
    root = proc.process(10, start=100, title="ENGINE::Worker_TP0")
    watcher = ProcessWatcher(proc.procfs, NODE)
    watcher.scan([root])
    watcher.title_patterns = PATTERNS
    (event,) = watcher.scan([root])
    assert isinstance(event, MemberSeen)
    assert event.member.tag == RankTag(name="Worker", tp=0)


def test_secrets_are_masked_before_a_title_is_made(proc: FakeProc) -> None:
    root = proc.process(10, start=100, title="serve --api-key sk-planted-secret-123456 --port 1")
    watcher = ProcessWatcher(proc.procfs, NODE)
    watcher.scan([root])
    title = watcher.members[0].title
    assert "planted" not in title
    assert title.startswith("serve --api-key ")
    assert title.endswith(" --port 1")


def test_a_process_without_a_command_line_is_called_by_its_comm(proc: FakeProc) -> None:
    root = proc.process(10, start=100, comm="odd) name")
    proc.write("10/cmdline", b"")
    watcher = ProcessWatcher(proc.procfs, NODE)
    watcher.scan([root])
    assert watcher.members[0].title == "[odd) name]"


def test_a_dead_rank_that_nobody_reaps_is_gone_and_its_signal_is_told(proc: FakeProc) -> None:
    root = proc.process(10, start=100)
    proc.process(11, ppid=10, start=110)
    watcher = ProcessWatcher(proc.procfs, NODE)
    watcher.scan([root])
    key = proc.process(11, ppid=10, start=110, state="Z", status=9)
    assert watcher.scan([root]) == [Exited(process=key, signal=9), MemberGone(process=key)]
    assert watcher.scan([root]) == []


def test_a_child_that_a_signal_had_ended_before_the_first_scan_is_told_once(proc: FakeProc) -> None:
    root = proc.process(10, start=100)
    killed = proc.process(11, ppid=10, start=110, state="Z", status=9)
    proc.process(12, ppid=10, start=120, state="Z", status=256)
    watcher = ProcessWatcher(proc.procfs, NODE)
    events = watcher.scan([root])
    assert [event for event in events if isinstance(event, Exited)] == [Exited(process=killed, signal=9)]
    assert seen(events) == [10]
    assert watcher.scan([root]) == []


def test_a_dead_child_of_an_excluded_keeper_is_left_to_the_keeper(proc: FakeProc) -> None:
    keeper = proc.process(5, start=50)
    root = proc.process(10, ppid=5, start=100)
    watcher = ProcessWatcher(proc.procfs, NODE, exclude=[5])
    watcher.scan([keeper, root])
    proc.process(10, ppid=5, start=100, state="Z", status=256)
    assert watcher.scan([keeper, root]) == [MemberGone(process=root)]


def test_what_an_observer_has_left_is_no_member(proc: FakeProc) -> None:
    keeper = proc.process(5, start=50)
    root = proc.process(10, ppid=5, start=100)
    proc.process(20, ppid=5, start=110)
    watcher = ProcessWatcher(proc.procfs, NODE, exclude=[5])
    watcher.sessions = frozenset({20})
    watcher.scan([keeper, root])
    assert [member.process for member in watcher.members] == [root]


def test_a_process_whose_main_thread_alone_ended_is_still_there(proc: FakeProc) -> None:
    root = proc.process(10, start=100)
    watcher = ProcessWatcher(proc.procfs, NODE)
    watcher.scan([root])
    proc.process(10, start=100, state="Z", threads=3)
    assert gone(watcher.scan([root])) == []


def test_a_title_that_cannot_be_read_neither_hangs_the_scan_nor_goes_unsaid(proc: FakeProc) -> None:
    root = proc.process(10, start=100)
    proc.process(11, ppid=10, start=110, comm="stuck")
    proc.process(12, ppid=10, start=120, title="fine")
    (proc.root / "11/cmdline").unlink()
    os.mkfifo(proc.root / "11/cmdline")
    watcher = ProcessWatcher(proc.procfs, NODE)
    began = time.monotonic()
    watcher.scan([root])
    watcher.scan([root])
    assert time.monotonic() - began < 5
    assert {member.process.pid: member.title for member in watcher.members} == {10: "python", 11: "[stuck]", 12: "fine"}
    assert [missed.request for missed in watcher.missed()] == ["processes"]
    assert watcher.missed() == []
    with open(proc.root / "11/cmdline", "wb") as fifo:  # lets the reader go
        fifo.write(b"late\0")


def test_tags_are_taken_from_named_groups() -> None:
    assert tag_of("ENGINE::Worker_DP1_TP3", PATTERNS) == RankTag(name="Worker", dp=1, tp=3)
    assert tag_of("python", PATTERNS) is None
    assert tag_of("rank=99999999999999999999", [re.compile(r"rank=(?P<rank>\d+)")]) == RankTag()


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_real_processes_are_followed_from_birth_to_death() -> None:
    child = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=0); p.wait()"
    procfs = Procfs()
    with subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE, env={**os.environ, "FIRSTTOKEN_RUN": "abc"}) as parent:
        try:
            key = procfs.key(NODE, parent.pid)
            assert key is not None
            watcher = ProcessWatcher(procfs, NODE, exclude=[os.getpid()])
            events: list[object] = []
            wait_for(lambda: events.extend(watcher.scan([key], mark=MARK)) or len(watcher.members) == 2)
            inner = watcher.members[1]
            assert inner.parent == parent.pid
            os.kill(inner.process.pid, 9)
            wait_for(lambda: events.extend(watcher.scan([key], mark=MARK)) or not watcher.members)
            assert {event.process.pid for event in events if isinstance(event, MemberGone)} == {parent.pid, inner.process.pid}
        finally:
            parent.kill()
