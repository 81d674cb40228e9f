"""Who dies, and what follows: observer, keeper, both; and what cleanup finds and ends."""

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from keeper_runs import QUICK, Run, alive, target, until

from firsttoken.hosts.procfs import Procfs
from firsttoken.launch.cleanup import find_left, finish
from firsttoken.launch.folder import Folder, here
from firsttoken.model import codec
from firsttoken.model.events import UnknownEvent

Launch = Callable[..., Run]
CHATTY = ("sh", "-c", "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.02; done")


def observer_up(run: Run) -> int:
    """The observer's pid, once it has said hello."""
    up = run.folder / "observer-up"
    pid = int(until(lambda: up.exists() and up.read_text()))
    until(lambda: any(event["pid"] == pid for event in run.events("observer_started")))
    return pid


def kill_keeper(run: Run) -> None:
    os.kill(run.handle.keeper.pid, signal.SIGKILL)
    assert run.handle.wait(5)


def parts(run: Run) -> dict[str, int]:
    return {left.part: left.process.pid for left in find_left(run.folder)}


def test_an_observer_has_the_last_word_before_the_end_is_told(launch: Launch) -> None:
    run = launch("sh", "-c", "exit 3", observer=())
    record = run.ended()
    assert [event["kind"] for event in run.events()][-2:] == ["emptied", "judged"]
    assert record.observer is None
    assert not run.events("observer_lost")


def test_a_dead_observer_is_started_again_and_the_server_does_not_notice(launch: Launch) -> None:
    run = launch("sleep", "300", observer=("--die-first", "2"))
    observer_up(run)
    assert [event["status"] for event in run.events("observer_lost")] == ["signal SIGKILL"] * 2
    assert len(run.events("observer_started")) == 3
    assert alive(run.handle.server.pid)


def test_an_observer_that_hangs_is_ended_and_started_again(launch: Launch) -> None:
    run = launch("sleep", "300", observer=(), observer_silence=2.0)  # this one says nothing unless something happens
    first = observer_up(run)
    (lost,) = until(lambda: run.events("observer_lost"))
    assert (lost["pid"], lost["status"]) == (first, "signal SIGKILL")
    assert [event["what"] for event in run.events("gap")] == ["observer"]
    until(lambda: len(run.events("observer_started")) == 2)
    assert alive(run.handle.server.pid)


def test_an_observer_that_cannot_be_started_is_given_up_and_the_server_goes_on(launch: Launch) -> None:
    run = launch("sh", "-c", "read x; exit 8", stdin_fd=(gate := os.pipe())[0], observer_argv=("/no/such/observer",))
    os.close(gate[0])
    until(lambda: run.events("observer_lost"))
    os.close(gate[1])
    ended = run.ended().ended
    assert ended is not None
    assert ended.code == 8


def test_what_an_observer_leaves_is_killed_and_is_not_the_servers(launch: Launch) -> None:
    leaves = "import subprocess, sys; print(subprocess.Popen(['sleep', '300']).pid, flush=True); sys.exit(1)"
    run = launch("sleep", "0.5", observer_argv=("/usr/bin/env", "python3", "-S", "-c", leaves))
    until(lambda: run.events("observer_lost"))
    run.ended()
    assert not run.events("gap")
    assert all(event["root"] for event in run.events("exited"))
    for pid in (run.folder / "observer.log").read_text().split():
        assert not alive(int(pid))


def test_a_probe_that_is_dead_already_when_its_observer_dies_is_not_the_servers(launch: Launch) -> None:
    leaves = (
        "import os, signal, subprocess, sys; one = subprocess.Popen(['sleep', '300']); one.send_signal(9);"
        "os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT); os.kill(os.getpid(), signal.SIGKILL)"
    )
    run = launch("sleep", "0.5", observer_argv=("/usr/bin/env", "python3", "-S", "-c", leaves))
    until(lambda: run.events("observer_lost"))
    run.ended()
    assert [event["root"] for event in run.events("exited")] == [True]


def test_a_dead_keeper_leaves_the_server_running_and_the_observer_recording(launch: Launch) -> None:
    run = launch(*CHATTY, observer=())
    observer = observer_up(run)
    run.said(b"line 3\n")
    kill_keeper(run)
    before = len(run.log())
    until(lambda: len(run.log()) > before + 100)
    assert parts(run).items() >= {"server": run.handle.server.pid, "observer": observer}.items()
    os.kill(run.handle.server.pid, signal.SIGKILL)
    record = until(lambda: run.record if run.record.ended else None)
    assert record.ended.by == "observer"
    numbers = [int(line.split()[1]) for line in run.log().split(b"\n")[:-1] if line]
    assert numbers == sorted(set(numbers))
    events = list(codec.read((run.folder / "events.jsonl").read_bytes().splitlines()))
    assert [event.body.kind for event in events][-2:] == ["emptied", "judged"]
    assert len({event.seq for event in events}) == len(events)
    assert not [event for event in events if isinstance(event.body, UnknownEvent)]
    until(lambda: not parts(run))
    assert not os.path.exists(run.handle.socket)


def test_a_dead_keeper_with_policy_stop_ends_the_server(launch: Launch) -> None:
    run = launch(*target("tree_family.py"), observer=(), on_observer_death="stop")
    observer_up(run)
    pids = [int(word) for word in run.said(b"\n").split()[1:]]
    kill_keeper(run)
    until(lambda: not any(map(alive, [run.handle.server.pid, *pids])))
    until(lambda: run.record.ended)
    assert [event["by"] for event in run.events("stop_asked")] == ["death of the keeper"]


def test_cleanup_ends_what_a_dead_keeper_and_a_dead_observer_left(launch: Launch) -> None:
    run = launch(*target("tree_family.py", "--deaf"), observer=())
    pids = [int(word) for word in run.said(b"\n").split()[1:]]
    observer = observer_up(run)
    has_cgroup = run.record.cgroup is not None
    kill_keeper(run)
    os.kill(observer, signal.SIGKILL)
    until(lambda: not alive(observer))
    assert alive(run.handle.server.pid)
    found = {left.process.pid for left in find_left(run.folder)}
    assert found >= {run.handle.server.pid, *pids[:3]}
    result = finish(run.folder, waits=QUICK)
    assert not result.was_over
    assert not result.stuck
    assert not any(map(alive, pids if has_cgroup else pids[:3]))
    assert run.record.ended is not None
    assert run.record.ended.by == "cleanup"
    assert [event["kind"] for event in run.events() if event["kind"] != "tick"][-1] == "emptied"
    assert finish(run.folder).was_over
    if not has_cgroup:
        os.kill(pids[3], signal.SIGKILL)


def test_cleanup_without_a_cgroup_finds_by_mark_and_session(launch: Launch) -> None:
    run = launch(*target("tree_family.py"), cgroup=False)
    pids = [int(word) for word in run.said(b"\n").split()[1:]]
    kill_keeper(run)
    until(lambda: alive(run.handle.server.pid))
    assert {left.process.pid for left in find_left(run.folder)} == {run.handle.server.pid, *pids[:3]}
    finish(run.folder, waits=QUICK)
    try:
        assert not any(map(alive, pids[:3]))
    finally:
        os.kill(pids[3], signal.SIGKILL)  # no trace leads to one that left tree, session and environment


def test_cleanup_of_a_living_run_asks_its_keeper(launch: Launch) -> None:
    run = launch("sleep", "300", observer=())
    observer_up(run)
    result = finish(run.folder)
    assert result.asked_keeper
    assert {left.part for left in result.ended} == {"server", "observer", "keeper"}
    assert not result.stuck
    ended = run.ended().ended
    assert ended is not None
    assert ended.signal == signal.SIGTERM


def test_cleanup_kills_a_keeper_that_does_not_answer(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firsttoken.launch.cleanup._KEEPER_ANSWERS", 0.2)
    run = launch("sleep", "300")
    os.kill(run.handle.keeper.pid, signal.SIGSTOP)
    result = finish(run.folder, waits=QUICK)
    assert not result.asked_keeper
    assert not alive(run.handle.server.pid)
    assert run.handle.wait(5)


def test_a_record_of_another_boot_or_namespace_leads_to_nobody(launch: Launch) -> None:
    run = launch("sleep", "300")
    kill_keeper(run)  # it would write its record anew
    record = run.record
    assert here(record, Procfs())
    for other in (replace(record, boot_id="another"), replace(record, pid_namespace=1)):
        Folder(run.folder).write(other)
        assert find_left(run.folder) == ()
        assert finish(run.folder).was_over
        assert alive(run.handle.server.pid)
    Folder(run.folder).write(record)


def test_a_reused_pid_is_never_taken_for_the_runs(launch: Launch) -> None:
    run = launch("sleep", "300")
    record = run.record
    other = launch("sleep", "300")
    kill_keeper(run)
    finish(run.folder, waits=QUICK)
    stale = replace(
        record,
        server=(record.server or other.handle.server)._replace(pid=other.handle.server.pid),
        pid=other.handle.keeper.pid,
        cgroup=None,
        mark=None,
    )
    Folder(run.folder).write(stale)
    assert find_left(run.folder) == ()
    finish(run.folder, waits=QUICK)
    assert alive(other.handle.server.pid)
    assert alive(other.handle.keeper.pid)


@pytest.mark.parametrize("seed", range(3))
def test_a_keeper_killed_at_any_moment_leaves_a_folder_that_can_be_read_and_cleaned(launch: Launch, seed: int) -> None:
    moment = random.Random(seed).uniform(0.0, 0.5)
    run = launch(*CHATTY, observer=())
    time.sleep(moment)
    kill_keeper(run)
    assert alive(run.handle.server.pid)
    observed = (run.folder / "observer-up").exists() or any(left.part == "observer" for left in find_left(run.folder))
    result = finish(run.folder, waits=QUICK)
    assert not result.stuck
    assert not alive(run.handle.server.pid)
    assert run.record.ended is not None
    raw = (run.folder / "events.jsonl").read_bytes().splitlines() if (run.folder / "events.jsonl").exists() else []
    events = list(codec.read(raw))
    assert len(raw) - len(events) <= 1, "at most the line that was being written is lost"
    assert any(event.body.kind == "emptied" for event in events)
    assert observed or run.record.ended.by == "cleanup"
