"""Places from a /proc in a folder: what is read of which thread, and what is said of what cannot be read."""

import os
import threading
from pathlib import Path

from fake_proc import NODE, FakeProc

from firsttoken.model.process import ProcessKey
from firsttoken.model.stillness import WaitKind
from firsttoken.observe.places import MOST_THREADS, PlaceFinder, places

FUTEX = (
    "202 0x7f0000001000 0x80 0x2 0x0 0x0 0x0 0x7ffc0 0x7f00\n"
    if os.uname().machine == "x86_64"
    else "98 0x7f0000001000 0x80 0x2 0x0 0x0 0x0 0x7ffc0 0x7f00\n"
)


def thread(
    proc: FakeProc, pid: int, tid: int, state: str = "S", wchan: str = "futex_do_wait", syscall: str = FUTEX, comm: str = "pool"
) -> None:
    rest = [state, 1, pid, pid, 0, -1] + [0] * 13 + [1000] + [0] * 30
    proc.write(f"{pid}/task/{tid}/stat", f"{tid} ({comm}) {' '.join(map(str, rest))}\n")
    proc.write(f"{pid}/task/{tid}/wchan", wchan)
    proc.write(f"{pid}/task/{tid}/syscall", syscall)


def blocked(proc: FakeProc, pid: int, wchan: str = "futex_do_wait", syscall: str = FUTEX, state: str = "S") -> ProcessKey:
    key = proc.process(pid, state=state)
    thread(proc, pid, pid, state, wchan, syscall, "python")
    return key


def test_the_main_thread_comes_first_and_the_number_of_threads_is_capped(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    key = blocked(proc, 100)
    for tid in range(101, 300):
        thread(proc, 100, tid)
    (one,) = places(proc.procfs, [key], NODE, 3)
    assert (one.process, one.round, len(one.threads)) == (key, 3, MOST_THREADS)
    assert (one.threads[0].tid, one.threads[0].main, one.threads[0].syscall) == (100, True, "futex")


def test_a_thread_in_another_state_is_told_before_those_that_wait_for_work(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    key = blocked(proc, 100)
    for tid in range(101, 300):
        thread(proc, 100, tid)
    thread(proc, 100, 299, state="D", wchan="rpc_wait_bit_killable", syscall="-1 0x7ffc0 0x7f00\n")
    (one,) = places(proc.procfs, [key], NODE, 1)
    assert one.threads[1].tid == 299
    assert [(wait.kind, wait.observable) for wait in one.waits if wait.tid == 299] == [(WaitKind.DISK, False)]


def test_of_a_process_that_runs_only_the_main_thread_is_read(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    key = blocked(proc, 100, state="R", syscall="running\n", wchan="0")
    thread(proc, 100, 101)
    (one,) = places(proc.procfs, [key], NODE, 1)
    assert [(place.tid, place.state, place.wchan, place.syscall) for place in one.threads] == [(100, "R", None, None)]


def test_a_process_frozen_by_its_cgroup_is_stopped(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    key = blocked(proc, 100, wchan="do_freezer_trap")
    proc.write("100/cgroup", "0::/jobs/a\n")
    (one,) = places(proc.procfs, [key], NODE, 1)
    assert [(wait.kind, wait.what) for wait in one.waits] == [(WaitKind.STOPPED, "frozen by its cgroup /jobs/a")]


def test_a_read_from_a_network_file_system_may_still_come(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    call = (
        "0 0x5 0x7f0000001000 0x1000 0x0 0x0 0x0 0x7ffc0 0x7f00\n"
        if os.uname().machine == "x86_64"
        else "63 0x5 0x7f0 0x1000 0x0 0x0 0x0 0x7ffc0 0x7f00\n"
    )
    key = blocked(proc, 100, state="D", wchan="nfs_wait_bit_killable", syscall=call)
    proc.link("100/fd/5", "/models/model-00001.safetensors")
    proc.write("100/fdinfo/5", "pos:\t0\nflags:\t0100000\nmnt_id:\t77\nino:\t42\n")
    proc.write("100/mountinfo", "77 1 0:55 / /models rw - nfs4 server:/export rw\n")
    (one,) = places(proc.procfs, [key], NODE, 1)
    assert [(wait.kind, wait.what, wait.observable) for wait in one.waits] == [
        (WaitKind.DISK, "/models/model-00001.safetensors (nfs4)", False)
    ]


def test_what_an_io_uring_was_asked_for_cannot_be_seen_and_may_still_come(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    key = blocked(proc, 100, wchan="io_cqring_wait", syscall="426 0x6 0x1 0x1 0x1 0x0 0x8 0x7ffc0 0x7f00\n")
    (one,) = places(proc.procfs, [key], NODE, 1)
    assert [(wait.kind, wait.what, wait.observable) for wait in one.waits] == [(WaitKind.DISK, "asynchronous input or output", False)]


def test_of_a_connection_to_another_machine_nobody_here_can_tell_the_end(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    call = (
        "45 0x6 0x7f0 0x1 0x0 0x0 0x0 0x7ffc0 0x7f00\n"
        if os.uname().machine == "x86_64"
        else "207 0x6 0x7f0 0x1 0x0 0x0 0x0 0x7ffc0 0x7f00\n"
    )
    key = blocked(proc, 100, wchan="wait_woken", syscall=call)
    proc.link("100/fd/6", "socket:[900]")
    proc.write(
        "100/net/tcp",
        "  sl  local_address\n   0: 0500000A:C350 0900000A:1F90 01 00000000:00000000 00:00000000 00000000     0        0 900 1\n",
    )
    proc.write("100/net/fib_trie", "Local:\n  |-- 10.0.0.5\n     /32 host LOCAL\n")
    (one,) = places(proc.procfs, [key], NODE, 1)
    assert [(wait.kind, wait.what, wait.observable, wait.to) for wait in one.waits] == [(WaitKind.SOCKET, "10.0.0.9:8080", False, None)]


def test_a_connect_that_gets_no_answer_from_another_machine_is_outside(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    call = (
        "42 0x6 0x7f0 0x10 0x0 0x0 0x0 0x7ffc0 0x7f00\n"
        if os.uname().machine == "x86_64"
        else "203 0x6 0x7f0 0x10 0x0 0x0 0x0 0x7ffc0 0x7f00\n"
    )
    key = blocked(proc, 100, wchan="wait_woken", syscall=call)
    proc.link("100/fd/6", "socket:[900]")
    proc.write(
        "100/net/tcp",
        "  sl  local_address\n   0: 0500000A:C350 0900000A:1F90 02 00000000:00000000 00:00000000 00000000     0        0 900 1\n",
    )
    (one,) = places(proc.procfs, [key], NODE, 1)
    assert [(wait.kind, wait.what, wait.observable) for wait in one.waits] == [(WaitKind.CONNECT, "10.0.0.9:8080", False)]


def test_a_connection_in_another_namespace_of_the_run_leads_to_its_owner(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    call = (
        "45 0x6 0x7f0 0x1 0x0 0x0 0x0 0x7ffc0 0x7f00\n"
        if os.uname().machine == "x86_64"
        else "207 0x6 0x7f0 0x1 0x0 0x0 0x0 0x7ffc0 0x7f00\n"
    )
    first, second = blocked(proc, 100, wchan="wait_woken", syscall=call), blocked(proc, 200)
    row = "   0: {} {} 01 00000000:00000000 00:00000000 00000000     0        0 {} 1\n"
    for pid, inode, ends in ((100, 900, ("0500000A:C350", "0900000A:1F90")), (200, 901, ("0900000A:1F90", "0500000A:C350"))):
        proc.link(f"{pid}/ns/net", f"net:[{pid}]")
        proc.link(f"{pid}/fd/6", f"socket:[{inode}]")
        proc.write(f"{pid}/net/tcp", "  sl\n" + row.format(*ends, inode))
    found = places(proc.procfs, [first, second], NODE, 1)
    assert [(wait.to, wait.in_run) for wait in found[0].waits] == [(second, True)]


def test_a_process_whose_read_hangs_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    stuck, fine = blocked(proc, 100), blocked(proc, 200)
    os.mkfifo(tmp_path / "100/mountinfo")  # a read of it blocks as one of a stuck process does
    proc.link("100/fd/5", "/x")
    proc.write("100/fdinfo/5", "mnt_id:\t7\nino:\t1\n")
    thread(proc, 100, 100, syscall=FUTEX.replace("202 ", "73 ").replace("98 ", "32 ").replace("0x7f0000001000", "0x5"))
    finder = PlaceFinder(proc.procfs, NODE, patience=0.2)
    first, second = finder.look([stuck, fine], 1)
    assert first.error is not None
    assert "no answer" in first.error
    assert [place.tid for place in first.threads] == [100]
    assert second.error is None
    (again,) = finder.look([stuck], 2)
    assert again.error is not None
    assert "hangs" in again.error
    writer = threading.Thread(target=(tmp_path / "100/mountinfo").write_bytes, args=(b"",))
    writer.start()
    writer.join(10)
