"""What cannot be ended is named, and nobody waits for it for ever."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from keeper_runs import QUICK, Run, target, until

from firsttoken.hosts.procfs import Procfs
from firsttoken.launch.cleanup import finish
from firsttoken.launch.folder import Key
from firsttoken.launch.stopping import Stopper
from firsttoken.launch.tree import Claim, find_marked, members, send, send_group

FREEZER = Path("/sys/fs/cgroup/freezer")
BEYOND = 1 << 30
"""No pid: larger than any that a kernel gives."""


def fake_process(root: Path, pid: int, state: str, *, sid: int, ppid: int = 1, start: int = 100) -> None:
    (root / str(pid)).mkdir(exist_ok=True)
    tail = f"{ppid} {pid} {sid} 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 {start} 0 10 " + "0 " * 28
    (root / str(pid) / "stat").write_text(f"{pid} (stuck one) {state} {tail}\n")


def test_what_does_not_die_of_sigkill_is_named_once_and_tried_again(tmp_path: Path) -> None:
    fake_process(tmp_path, BEYOND, "D", sid=BEYOND)
    events: list[dict[str, Any]] = []
    claim = Claim(server=Key(BEYOND, 100))
    stopper = Stopper(Procfs(tmp_path), lambda: claim, events.append, now=0.0, ready=False, force=True, terminates=1, waits=QUICK)
    for now in range(30):
        stopper.turn(float(now))
    missed = [event for event in events if event["kind"] == "missed"]
    assert len(missed) == 1
    assert f"{BEYOND} (stuck one, state D)" in missed[0]["reason"]
    assert [stat.pid for stat in stopper.stuck] == [BEYOND]
    assert stopper.next_at is not None


def test_a_session_counts_after_its_leader_and_not_when_its_pid_is_anothers(tmp_path: Path) -> None:
    fake_process(tmp_path, BEYOND + 1, "S", sid=BEYOND)
    procfs, claim = Procfs(tmp_path), Claim(server=Key(BEYOND, 100))
    assert set(members(procfs, claim)) == {BEYOND + 1}
    fake_process(tmp_path, BEYOND, "S", sid=BEYOND, start=999)
    assert set(members(procfs, claim)) == set()


def test_a_signal_reaches_only_the_process_with_the_key() -> None:
    procfs = Procfs()
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as process:
        stat = procfs.stat(process.pid)
        assert stat is not None
        wrong, right = Key(process.pid, stat.start + 1), Key(process.pid, stat.start)
        assert not send(procfs, wrong, signal.SIGKILL)
        assert not send_group(procfs, wrong, signal.SIGKILL)
        assert process.poll() is None
        assert send(procfs, right, signal.SIGTERM)
        assert process.wait(5) == -signal.SIGTERM
        assert not send(procfs, right, signal.SIGTERM)


def test_the_mark_finds_only_the_living_born_since() -> None:
    procfs = Procfs()
    mark = f"FIRSTTOKEN_RUN=only-{os.getpid()}"
    with subprocess.Popen(["sleep", "300"], env={"FIRSTTOKEN_RUN": mark.partition("=")[2], "PATH": os.environ["PATH"]}) as process:
        until(lambda: procfs.environ_has(process.pid, mark.encode()))
        [found] = find_marked(procfs, mark.encode())
        assert found.pid == process.pid
        assert find_marked(procfs, mark.encode(), since=found.start + 1) == ()
        assert find_marked(procfs, mark.encode()[:-1]) == ()
        process.kill()


@pytest.fixture
def foreign_freezer() -> Iterator[Path]:
    group = FREEZER / f"test-foreign-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("no freezer of version 1 can be written here")
    yield group
    (group / "freezer.state").write_text("THAWED")
    until(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()


def test_a_frozen_process_is_told_and_the_cleanup_returns(launch: Callable[..., Run], foreign_freezer: Path) -> None:
    run = launch(*target("tree_stubborn.py"))
    run.said(b"UP")
    (foreign_freezer / "cgroup.procs").write_text(str(run.handle.server.pid))
    (foreign_freezer / "freezer.state").write_text("FROZEN")
    result = finish(run.folder, waits=QUICK, seconds=1.5)
    assert result.asked_keeper
    assert {left.part for left in result.stuck} == {"server", "keeper"}
    (foreign_freezer / "freezer.state").write_text("THAWED")
    ended = run.ended().ended
    assert ended is not None
    assert ended.signal == signal.SIGKILL
