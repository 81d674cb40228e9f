"""Output: never in the server's way, bounded, in order, and told where something is missing."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from keeper_runs import Run, alive, collect, target, until

from firsttoken.launch.control import Control
from firsttoken.launch.folder import Folder
from firsttoken.launch.frames import JsonFrame, LogFrame
from firsttoken.launch.segments import TAIL_BYTES, segments

Launch = Callable[..., Run]
MIB = 1 << 20


def peak_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))


def test_a_storm_of_output_is_bounded_on_disk_and_in_memory_whoever_reads(launch: Launch) -> None:
    run = launch(*target("tty_storm.py", "200"))
    lazy = run.control("face", log_from=0, events_from=0)  # does not read until the storm is over
    until(lambda: run.events("exited"), 30)
    peak = peak_bytes(run.handle.keeper.pid)
    _, events, others = collect(lazy)
    run.ended()
    assert peak < 64 * MIB
    assert any("behind" in other for other in others)
    kept = segments(Folder(run.folder))
    assert kept[0].size == 64 * MIB
    assert kept[-1].end == 200 * MIB
    assert TAIL_BYTES <= sum(part.size for part in kept[1:]) <= TAIL_BYTES + 16 * MIB
    gaps = [event for event in events if event["kind"] == "gap"]
    assert sum(event["amount"] for event in gaps) + sum(part.size for part in kept) == 200 * MIB


def test_two_clients_with_different_wishes_get_theirs(launch: Launch) -> None:
    run = launch("sh", "-c", "echo one; read x; echo two", stdin_fd=(gate := os.pipe())[0])
    os.close(gate[0])
    everything, later = run.control("face", log_from=0, events_from=0), run.control("control", log_from=10**9)
    run.said(b"one\n")
    later.state()
    os.write(gate[1], b"\n")
    os.close(gate[1])
    log, events, _ = collect(everything)
    assert log == b"one\ntwo\n"
    assert [event["kind"] for event in events if event["kind"] != "tick"] == ["launched", "exited", "emptied"]
    assert collect(later) == (b"two\n", [], [{"ended": {"code": 0, "signal": None}}])


def test_a_client_that_comes_too_late_is_told_where_memory_begins(launch: Launch) -> None:
    run = launch("sh", "-c", "head -c 20971520 /dev/zero; echo done; sleep 300")
    until(lambda: run.control().state()["log_end"] == 20 * MIB + 5)
    late = run.control("face", log_from=0)
    frame = late.await_frame(lambda _frame: True, seconds=5)
    assert frame == JsonFrame(value={"behind": {"events_from": None, "log_from": 12 * MIB + 5}})
    first = late.await_frame(lambda _frame: True, seconds=5)
    assert isinstance(first, LogFrame)
    assert first.offset == 12 * MIB + 5


def test_what_was_said_before_an_end_comes_before_it(launch: Launch) -> None:
    run = launch("sh", "-c", "head -c 300000 /dev/zero; echo; exit 1")
    control = Control(run.handle.socket)
    control.hello("face", log_from=0, events_from=0)
    size, at_exit = 0, -1
    for frame in control.frames(seconds=10):
        if isinstance(frame, LogFrame):
            size += len(frame.data)
        elif any(event["kind"] == "exited" for event in frame.value.get("events", [])):
            at_exit = size
    control.__exit__(None, None, None)
    assert at_exit == 300001


@pytest.mark.parametrize("what", ["log/head.raw", "events.jsonl"])
def test_a_full_disk_ends_the_recording_and_nothing_else(launch: Launch, tmp_path: Path, what: str) -> None:
    folder = tmp_path / "run"
    (folder / "log").mkdir(parents=True)
    (folder / what).symlink_to("/dev/full")
    run = launch("sh", "-c", "echo one; read x; echo two; exit 6", stdin_fd=(gate := os.pipe())[0], folder=folder)
    os.close(gate[0])
    client = run.control("face", log_from=0, events_from=0)
    stopped = client.await_frame(lambda frame: isinstance(frame, JsonFrame) and "recording_stopped" in str(frame.value), seconds=5)
    assert isinstance(stopped, JsonFrame)
    assert "No space left" in str(stopped.value)
    assert run.control().state()["recording"] is False
    os.write(gate[1], b"\n")
    os.close(gate[1])
    log, events, others = collect(client)
    assert log.endswith(b"two\n")
    assert events[-1]["kind"] == "emptied"
    assert others == [{"ended": {"code": 6, "signal": None}}]
    assert run.ended().ended is not None


def test_a_limit_on_file_size_ends_the_recording_and_not_the_server(launch: Launch) -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, before[1]))
    try:
        run = launch("sh", "-c", "head -c 3000000 /dev/zero; exit 4")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    ended = run.ended().ended
    assert ended is not None
    assert ended.code == 4
    assert run.events("recording_stopped")
    assert len(run.log()) == MIB


def test_a_disk_that_does_not_answer_does_not_hold_the_output_up(launch: Launch, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "log").mkdir(parents=True)
    os.mkfifo(folder / "log" / "head.raw")  # opening it waits for a reader that never comes
    run = launch(*target("tty_storm.py", "40"), folder=folder)
    client = run.control("control", events_from=0)
    _, events, others = collect(client)
    assert others[-1] == {"ended": {"code": 0, "signal": None}}
    assert [event["what"] for event in events if event["kind"] == "gap"]
    assert run.handle.wait(10)


def test_the_index_gives_offsets_and_times_in_order(launch: Launch) -> None:
    run = launch("sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.08; done")
    run.ended()
    rows = [line.split() for line in (run.folder / "log" / "index").read_text().splitlines()]
    assert [int(row[0]) for row in rows] == [0, 2, 4]
    times = [float(row[1]) for row in rows]
    assert times == sorted(times)


def test_a_broken_client_is_dropped_and_does_no_harm(launch: Launch) -> None:
    run = launch("sleep", "300")
    control = run.control()
    control._socket.sendall(b"\xff" * 100)
    assert control.await_frame(lambda _frame: True, seconds=5) is None
    assert control.closed
    run.control().state()
    assert alive(run.handle.server.pid)


def test_ticks_come_each_second(launch: Launch) -> None:
    run = launch("sleep", "300")
    ticks = until(lambda: run.events("tick") if len(run.events("tick")) >= 2 else [])
    assert 0.9 < ticks[1]["t"] - ticks[0]["t"] < 1.8
    os.kill(run.handle.server.pid, signal.SIGKILL)
