"""Stopping: the ladder before ready, one signal after it, and nothing left."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

from keeper_runs import Run, alive, collect, target, until

from firsttoken.launch.control import Control
from firsttoken.launch.frames import JsonFrame
from firsttoken.launch.spec import LadderWaits

Launch = Callable[..., Run]


def pids_of(run: Run) -> list[int]:
    line = run.said(b"PIDS").split(b"PIDS", 1)[1]
    line = until(lambda: run.log().split(b"PIDS", 1)[1] if b"\n" in run.log() else b"") if b"\n" not in line else line
    return [int(word) for word in line.split()]


def test_no_kind_of_child_is_left_after_stop(launch: Launch) -> None:
    run = launch(*target("tree_family.py"))
    pids = pids_of(run)
    assert len(pids) == 4
    assert all(map(alive, pids))
    run.control().send({"stop": {"by": "test", "force": False}})
    run.ended()
    assert not any(map(alive, pids))


def test_no_kind_of_child_is_left_without_cgroup_and_mark_and_with_all_of_them_deaf(launch: Launch) -> None:
    run = launch(*target("tree_family.py", "--deaf"), mark=False, cgroup=False)
    pids = pids_of(run)
    run.control().send({"stop": {"by": "test", "force": False}})
    run.ended()
    assert not any(map(alive, pids))
    assert {event["pid"] for event in run.events("signal_sent") if event["signal"] == signal.SIGKILL} >= set(pids)


def test_children_that_outlive_the_launched_process_are_stopped_too(launch: Launch) -> None:
    run = launch("sh", "-c", "sleep 300 & setsid sleep 300 & exit 2")
    until(lambda: run.events("exited"))
    run.control().send({"stop": {"by": "test", "force": False}})
    ended = run.ended().ended
    assert ended is not None
    assert ended.code == 2


def test_a_server_that_swallows_its_first_sigterm_gets_a_second_one_before_the_kill(launch: Launch) -> None:
    run = launch(*target("tree_stubborn.py"), terminates=2, waits=LadderWaits(terminate=0.5, leftovers=0.2))
    run.said(b"UP")
    run.control().send({"stop": {"by": "test", "force": False}})
    ended = run.ended().ended
    assert ended is not None
    assert ended.code == 5
    assert run.log() == b"UP\nTERM 1\nTERM 2\n"


def test_a_plan_that_comes_later_says_how_often_to_terminate(launch: Launch) -> None:
    run = launch(*target("tree_stubborn.py"), waits=LadderWaits(terminate=0.5, leftovers=0.2))
    run.said(b"UP")
    observer = run.control("observer", events_from=0)
    observer.send({"post": [{"kind": "plan", "plan": {"terminates": 2}}], "bye": True})
    run.control().send({"stop": {"by": "test", "force": False}})
    ended = run.ended().ended
    assert ended is not None
    assert ended.code == 5


def test_a_deaf_server_is_killed_at_the_end_of_the_ladder(launch: Launch) -> None:
    run = launch(*target("tree_stubborn.py", "99"))
    run.said(b"UP")
    run.control().send({"stop": {"by": "test", "force": False}})
    ended = run.ended().ended
    assert ended is not None
    assert ended.signal == signal.SIGKILL
    assert [event["signal"] for event in run.events("signal_sent")] == [signal.SIGTERM, signal.SIGKILL]


def test_a_second_forced_stop_goes_on_to_the_next_rung_at_once(launch: Launch) -> None:
    run = launch(*target("tree_stubborn.py", "99"), waits=LadderWaits(terminate=60))
    run.said(b"UP")
    control = run.control()
    control.send({"stop": {"by": "test", "force": False}})
    run.said(b"TERM 1")
    control.send({"stop": {"by": "test", "force": True}})
    ended = run.ended().ended
    assert ended is not None
    assert ended.signal == signal.SIGKILL


def test_a_stopped_server_dies_of_the_ladder(launch: Launch) -> None:
    run = launch("sleep", "300")
    os.kill(run.handle.server.pid, signal.SIGSTOP)
    run.control().send({"stop": {"by": "test", "force": False}})
    ended = run.ended().ended
    assert ended is not None
    assert ended.signal == signal.SIGTERM


def test_after_ready_one_signal_is_forwarded_and_nothing_escalates(launch: Launch) -> None:
    run = launch(*target("tree_stubborn.py"), terminates=3)
    run.said(b"UP")
    observer = run.control("observer", events_from=0)
    observer.send({"post": [{"kind": "judged", "verdict": "ready", "phase": "first_token", "reason": "a token came"}]})
    assert observer.await_frame(lambda frame: isinstance(frame, JsonFrame) and "judged" in str(frame.value), seconds=5)
    control = run.control()
    assert control.state()["ready"] is True
    control.send({"stop": {"by": "test", "force": False}})
    run.said(b"TERM 1")
    assert control.await_frame(lambda _frame: True, seconds=1.0) is None  # longer than both waits of the ladder
    assert run.log() == b"UP\nTERM 1\n"
    assert alive(run.handle.server.pid)
    observer.send({"bye": True})
    control.send({"stop": {"by": "test", "force": True}})
    ended = run.ended().ended
    assert ended is not None
    assert ended.code == 5


def test_a_signal_is_forwarded_to_the_launched_process_alone(launch: Launch) -> None:
    run = launch(*target("tree_stubborn.py", "0"))
    run.said(b"UP")
    run.control().send({"signal": int(signal.SIGTERM)})
    ended = run.ended().ended
    assert ended is not None
    assert ended.code == 5
    assert [event["why"] for event in run.events("signal_sent")] == ["forwarded"]


def test_a_frozen_cgroup_is_thawed_for_the_kill(launch: Launch) -> None:
    run = launch("sleep", "300")
    group = run.record.cgroup
    if group is None or not os.path.exists(f"{group}/cgroup.freeze"):
        return
    with open(f"{group}/cgroup.freeze", "w") as file:
        file.write("1")
    run.control().send({"stop": {"by": "test", "force": False}})
    assert run.ended().ended is not None
    assert not os.path.exists(group)


def test_a_term_to_the_keeper_stops_the_run(launch: Launch) -> None:
    run = launch("sleep", "300")
    os.kill(run.handle.keeper.pid, signal.SIGTERM)
    run.ended()
    [event] = run.events("stop_asked")
    assert event["by"] == "SIGTERM to the keeper"


def test_the_death_of_the_face_stops_the_run_only_where_that_was_asked(launch: Launch) -> None:
    stops = launch("sleep", "300", on_observer_death="stop")
    keeps = launch("sleep", "300", on_observer_death="keep")
    stops.handle.release()
    keeps.handle.release()
    stops.ended()
    assert [event["by"] for event in stops.events("stop_asked")] == ["death of the face"]
    assert alive(keeps.handle.server.pid)


def test_a_face_that_says_bye_may_go(launch: Launch) -> None:
    run = launch("sleep", "300", on_observer_death="stop")
    face = run.control("face", events_from=0)
    face.send({"bye": True})
    run.handle.release()
    face.__exit__(None, None, None)
    ticks = until(lambda: len(run.events("tick")))
    until(lambda: len(run.events("tick")) > ticks)
    assert not run.events("stop_asked")
    assert alive(run.handle.server.pid)


def test_a_face_whose_connection_breaks_has_died(launch: Launch) -> None:
    run = launch("sleep", "300", on_observer_death="stop")
    face = run.control("face", events_from=0)
    face.state()
    face.__exit__(None, None, None)
    run.ended()
    assert run.events("stop_asked")


def test_the_last_frame_is_how_the_server_ended(launch: Launch, tmp_path: Path) -> None:
    run = launch("sh", "-c", f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo last words; exit 9")
    face = run.control("face", events_from=0, log_from=0)
    (tmp_path / "go").touch()
    log, events, others = collect(face)
    assert log == b"last words\n"
    assert events[-1]["kind"] == "emptied"
    assert others == [{"ended": {"code": 9, "signal": None}}]


def test_a_hello_that_comes_after_the_end_is_answered_in_full(launch: Launch, tmp_path: Path) -> None:
    run = launch("sh", "-c", f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo last words; exit 9")
    late, witness = Control(run.handle.socket), run.control("witness", events_from=0)
    run.controls.append(late)
    (tmp_path / "go").touch()
    assert collect(witness)[2] == [{"ended": {"code": 9, "signal": None}}]
    late.hello("face", events_from=0, log_from=0)
    log, events, others = collect(late)
    assert (log, events[-1]["kind"], others) == (b"last words\n", "emptied", [{"ended": {"code": 9, "signal": None}}])
