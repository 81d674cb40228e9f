"""Faults are the real mechanism: what the kernel shows of them, and how they end."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Start = Callable[..., Any]


def until(holds: Callable[[], Any], what: str, seconds: float = 15.0) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := holds():
            return found
        time.sleep(0.02)
    raise AssertionError(f"never came: {what}")


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wchan(pid: int) -> str:
    return Path(f"/proc/{pid}/wchan").read_text()


def rank_pid(run: Any, rank: int) -> int:
    return int(run.wait_for(rf"Distributed init begin\. world_size=\d+ rank={rank} .*pid=(\d+)")[1])


def stop(run: Any) -> None:
    run.members()
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(5) in (0, 143)
    run.assert_nothing_left()


def test_a_rank_that_skips_a_collective_waits_elsewhere_while_the_others_wait_for_it(start: Start) -> None:
    run = start("--ranks", "3", "--fault", "skip@graph_capture:rank=1")
    assert run.fault()["rank"] == 1
    pids = [rank_pid(run, rank) for rank in range(3)]
    until(lambda: all(state(pid) == "S" for pid in pids), "three sleeping ranks")
    run.wait_for("TP0. Capture graphs begin")
    assert "Capture graphs end" not in run.log
    assert Path(f"/proc/{pids[0]}/cmdline").read_bytes().startswith(b"rehearsal::rank_TP0")
    stop(run)


def test_a_skipped_collective_that_ends_leads_to_ready(start: Start) -> None:
    run = start("--ranks", "2", "--fault", "skip@warmup:for=0.5", "--fault", "cycle@weights:for=0.3")
    assert run.ask("/v1/completions", {"prompt": "x"})[0] == 200


def test_a_stopped_rank_is_in_state_t(start: Start) -> None:
    run = start("--ranks", "2", "--fault", "stop@kv_cache:rank=1")
    pid = run.fault()["pid"]
    until(lambda: state(pid) == "T", "state T")
    stop(run)


def test_a_lock_is_held_by_a_living_bystander_outside_the_tree(start: Start) -> None:
    run = start("--fault", "lock@compile")
    pid = run.fault()["pid"]
    locks = until(lambda: re.search(rf"-> FLOCK .* {pid} (\S+)", Path("/proc/locks").read_text()), "a waiting flock")
    holder = next(
        int(found[1]) for found in re.finditer(r": FLOCK +\S+ +WRITE (\d+) (\S+)", Path("/proc/locks").read_text()) if found[2] == locks[1]
    )
    assert Path(f"/proc/{holder}/cmdline").read_bytes().startswith(b"python -m other.job")
    assert holder not in (pid, run.process.pid)
    assert os.getsid(holder) != os.getsid(run.process.pid)
    stop(run)


def test_two_ranks_take_two_locks_in_opposite_order(start: Start) -> None:
    run = start("--ranks", "2", "--fault", "cycle@post_load")
    pids = [rank_pid(run, rank) for rank in (0, 1)]
    until(lambda: all(re.search(rf"-> FLOCK .* {pid} ", Path("/proc/locks").read_text()) for pid in pids), "two waits")
    assert all(re.search(rf"\d: FLOCK .* {pid} ", Path("/proc/locks").read_text()) for pid in pids)
    stop(run)


def test_a_shard_that_never_comes_is_a_fifo_that_is_read(start: Start) -> None:
    run = start("--fault", "fifo@weights")
    pid = run.fault()["pid"]

    def shard() -> str | None:
        links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        return next((link for link in links if link.startswith(str(run.temp))), None)

    path = Path(until(shard, "an open shard in the run-time folder"))
    assert path.is_fifo()
    assert path.suffix == ".safetensors"
    until(lambda: state(pid) == "S", "a sleeping reader")
    stop(run)


def test_a_child_that_pauses_is_waited_for(start: Start) -> None:
    run = start("--fault", "child@post_load")
    pid = run.fault()["pid"]
    children = until(lambda: Path(f"/proc/{pid}/task/{pid}/children").read_text().split(), "a child")
    assert len(children) == 1
    until(lambda: wchan(pid) == "do_wait" or wchan(pid) == "0", "wait4")
    stop(run)


def test_a_dropped_connection_is_in_syn_sent(start: Start) -> None:
    run = start("--fault", "connect@distributed_init")
    run.fault()
    until(lambda: re.search(r" 0100007F:\S+ 02 ", Path("/proc/net/tcp").read_text()), "SYN-SENT on loopback")
    stop(run)


def test_a_missing_peer_is_waited_for(start: Start) -> None:
    run = start("--ranks", "3", "--fault", "peer@distributed_init:rank=1")
    assert run.fault() | {"wall": 0} == {"kind": "peer", "phase": "distributed_init", "rank": 1, "pid": None, "wall": 0}
    until(lambda: state(rank_pid(run, 2)) == "S", "a waiting rank")
    stop(run)


def test_a_crash_prints_a_traceback_and_ends_the_server_with_1(start: Start) -> None:
    run = start("--ranks", "2", "--fault", "crash@compile:rank=1")
    assert run.process.wait(30) == 1
    run.wait_for(r"TP1\] Rank hit an exception: Traceback \(most recent call last\):")
    run.wait_for(r"unexpectedly failed with exitcode=1\. pid=\d+ rank=1")
    run = start("--fault", "crash@config")
    assert run.process.wait(30) == 1
    run.wait_for("Traceback")


def test_an_exit_ends_the_server_with_0_and_no_error(start: Start) -> None:
    run = start("--ranks", "2", "--fault", "exit@kv_cache:rank=1")
    assert run.process.wait(30) == 0
    assert "Traceback" not in run.log


def test_a_killed_rank_ends_the_server(start: Start) -> None:
    run = start("--ranks", "3", "--fault", "kill@post_load")
    run.fault()
    assert run.process.wait(30) == 1
    run.wait_for(r"exitcode=-9\. pid=\d+ rank=2")


def test_an_orphaned_server_waits_on_for_a_dead_rank(start: Start) -> None:
    run = start("--ranks", "2", "--fault", "orphan@post_load")
    pid = run.fault()["pid"]
    until(lambda: state(pid) == "Z", "a dead rank that nobody took notice of")
    assert run.process.poll() is None
    stop(run)


def test_a_mute_server_is_healthy_and_gives_no_token(start: Start) -> None:
    run = start("--fault", "mute@first_token")
    with pytest.raises(TimeoutError):
        run.ask("/v1/completions", {"prompt": "x"}, timeout=0.5)
    assert run.fault()["kind"] == "mute"
    assert run.ask("/health")[0] == 200
    stop(run)


def test_an_error_is_a_500_for_as_long_as_it_lasts(start: Start) -> None:
    run = start("--fault", "error@first_token:for=0.5")
    assert run.ask("/v1/completions", {"prompt": "x"})[0] == 500
    until(lambda: run.ask("/v1/completions", {"prompt": "x"})[0] == 200, "an answer")


def test_the_second_request_hangs_after_the_first_was_answered(start: Start) -> None:
    run = start("--fault", "second@first_token")
    assert run.ask("/v1/completions", {"prompt": "x"})[0] == 200
    with pytest.raises(TimeoutError):
        run.ask("/v1/completions", {"prompt": "x"}, timeout=0.5)


def test_a_server_that_says_too_early_that_it_is_ready_answers_when_it_is(start: Start) -> None:
    run = start("--fault", "early@weights", "--pace", "post_load=1")
    run.url()
    assert "Warm-up end" not in run.log
    status, text = run.ask("/v1/completions", {"prompt": "x"})
    assert status == 200
    assert json.loads(text)["usage"]["completion_tokens"] == 16
    assert "Warm-up end" in run.log
    assert run.log.count("ready to serve") == 1


def test_a_log_that_breaks_off_says_nothing_more(start: Start) -> None:
    run = start("--fault", "logstop@kv_cache", "--port", "0")
    run.fault()
    pid = run.process.pid
    until(lambda: _listens(pid), "a listening port")
    assert "KV cache end" not in run.log
    assert "Listening" not in run.log
    stop(run)


@pytest.mark.parametrize(
    "cells",
    [
        "fifo@weights download@weights stall@weights jit@compile grind@kv_cache compile@post_load",
        "quiet@config slow@warmup chatter@kv_cache stop@compile child@post_load connect@listening lock@config spin@weights stop@config",
    ],
)
def test_what_ends_by_itself_goes_on_to_ready(start: Start, cells: str) -> None:
    run = start(*(f"--fault={cell}:for=0.3" for cell in cells.split()))
    run.url()
    assert {(note["kind"] + "@" + note["phase"]) for note in run.faults()} == set(cells.split())


def _listens(pid: int) -> bool:
    inodes = {link[8:-1] for fd in os.listdir(f"/proc/{pid}/fd") if (link := _link(pid, fd)).startswith("socket:")}
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return len([fields for fields in lines if fields[3] == "0A" and fields[9] in inodes]) > 1


def _link(pid: int, fd: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/{fd}")
    except OSError:
        return ""
