"""What real processes wait for, as it is told."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from still_processes import PROCFS, look, main_of, settled, still, until

from firsttoken.hosts.procfs import Procfs
from firsttoken.model.events import Places
from firsttoken.model.stillness import WaitKind
from firsttoken.observe.locks import PolledLock
from firsttoken.observe.places import places


@pytest.mark.parametrize(
    ("sort", "way", "call"), [("flock", "flock", "flock"), ("posix", "posix_lock", "fcntl"), ("ofd", "ofd_lock", "fcntl")]
)
def test_a_file_lock_leads_to_its_holder(tmp_path: Path, sort: str, way: str, call: str) -> None:
    path = tmp_path / "graph.lock"
    with still("hold", sort, path) as holder, still(way, path) as waiter:
        place, (wait,) = settled(waiter.pid, call)
        assert (wait.kind, wait.what, wait.to) == (WaitKind.FILE_LOCK, str(path), PROCFS.key("here", holder.pid))
        assert wait.to_title is not None
        assert "still.py hold" in wait.to_title
        assert wait.to_title.endswith("ago, asleep")
        assert not wait.in_run
        assert wait.observable
        assert place.arguments is not None
        assert str(path) in place.arguments


def test_a_member_of_the_run_that_holds_a_lock_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with still("hold", "flock", path) as holder, still("flock", path) as waiter:
        settled(waiter.pid, "flock")
        (one,) = look(waiter.pid, in_run=(holder.pid,))
        assert [wait.in_run for wait in one.waits] == [True]


def test_a_lock_that_outlived_who_took_it_leads_to_the_child_that_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "inherited.lock"
    with still("hold_in_child", path) as holder:
        child = int(holder.words[0])
        try:
            holder.process.wait(20)
            with still("flock", path) as waiter:
                _, (wait,) = settled(waiter.pid, "flock")
                assert wait.to is not None
                assert wait.to.pid == child
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_lock_that_is_asked_for_again_and_again_leads_to_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "download.lock"
    with still("hold", "flock", path) as holder, still("poll_lock", path) as waiter:
        _, (wait,) = settled(waiter.pid, "clock_nanosleep")
        assert (wait.kind, wait.what) == (WaitKind.FILE_LOCK, str(path))
        assert wait.to is not None
        assert wait.to.pid == holder.pid
        assert wait.timeout_s is not None
        assert wait.timeout_s <= 0.05


def test_a_polled_lock_that_only_the_stack_names_leads_to_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "compile.lock"
    with still("hold", "flock", path) as holder, still("sleep", 90) as waiter:
        _, (wait,) = settled(waiter.pid, "clock_nanosleep", polled={(waiter.pid, waiter.pid): PolledLock(str(path))})
        assert (wait.kind, wait.what) == (WaitKind.FILE_LOCK, str(path))
        assert wait.to is not None
        assert wait.to.pid == holder.pid


def test_a_lock_that_is_held_by_being_there_leads_to_who_has_it_open(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with still("keep_open", path) as maker, still("sleep", 90) as waiter:
        polled = {(waiter.pid, waiter.pid): PolledLock(str(path), stands=True)}
        _, (wait,) = settled(waiter.pid, "clock_nanosleep", polled=polled)
        assert (wait.kind, wait.what, wait.nobody) == (WaitKind.FILE_LOCK, str(path), False)
        assert wait.to is not None
        assert wait.to.pid == maker.pid


@pytest.mark.skipif(os.readlink("/proc/self/ns/pid") != "pid:[4026531836]", reason="processes outside of this container are out of sight")
def test_a_lock_file_that_nobody_has_open_was_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with still("sleep", 90) as waiter:
        polled = {(waiter.pid, waiter.pid): PolledLock(str(path), stands=True)}
        _, (wait,) = settled(waiter.pid, "clock_nanosleep", polled=polled)
        assert (wait.kind, wait.what, wait.to, wait.nobody) == (WaitKind.FILE_LOCK, str(path), None, True)
        path.unlink()
        _, (wait,) = settled(waiter.pid, "clock_nanosleep", polled=polled)
        assert not wait.nobody, "it has just been taken away"


def test_a_sleeper_waits_for_nothing_but_time() -> None:
    with still("sleep", 90) as sleeper:
        _, (wait,) = settled(sleeper.pid, "clock_nanosleep")
        assert (wait.kind, wait.to, wait.nobody) == (WaitKind.SLEEP, None, False)
        assert wait.timeout_s is not None
        assert 0 < wait.timeout_s <= 90


def test_the_opening_of_a_fifo_that_nobody_writes_is_told_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "model-00001.safetensors"
    os.mkfifo(path)
    with still("open_fifo", path) as reader:
        _, (wait,) = settled(reader.pid, "openat")
        assert (wait.kind, wait.what, wait.nobody) == (WaitKind.FIFO, str(path), True)


def test_a_fifo_whose_only_writer_is_its_reader_has_nobody(tmp_path: Path) -> None:
    path = tmp_path / "model-00002.safetensors"
    os.mkfifo(path)
    with still("read_fifo", path) as reader:
        _, (wait,) = settled(reader.pid, "read")
        assert (wait.kind, wait.what, wait.to, wait.nobody) == (WaitKind.FIFO, str(path), None, True)


def test_a_fifo_that_another_process_has_open_leads_to_it(tmp_path: Path) -> None:
    path = tmp_path / "feed"
    os.mkfifo(path)
    with still("read_fifo", path) as reader, still("read_fifo", path) as other:
        _, (wait,) = settled(reader.pid, "read")
        assert wait.to is not None
        assert (wait.to.pid, wait.nobody) == (other.pid, False)


@pytest.mark.parametrize(
    ("way", "call", "timeout"), [("read_own_pipe", "read", None), ("poll_own_pipe", "poll", 90), ("select_pipe", "pselect6", 88)]
)
def test_a_pipe_with_both_ends_in_one_process_leads_back_to_it(way: str, call: str, timeout: float | None) -> None:
    with still(way) as waiter:
        _, (wait,) = settled(waiter.pid, call)
        assert (wait.kind, wait.to, wait.in_run) == (WaitKind.PIPE, wait.waiter, True)
        assert wait.timeout_s == timeout


@pytest.mark.parametrize(
    ("way", "call", "kind"),
    [("read_childs_pipe", "read", WaitKind.PIPE), ("fill_childs_pipe", "write", WaitKind.PIPE), ("unix_pair", "recvfrom", WaitKind.SOCKET)],
)
def test_a_pipe_or_socket_leads_to_who_has_its_other_end(way: str, call: str, kind: WaitKind) -> None:
    with still(way) as waiter:
        _, waits = settled(waiter.pid, call)
        assert [(wait.kind, wait.to.pid if wait.to else None) for wait in waits] == [(kind, int(waiter.words[0]))]


def test_a_tcp_connection_leads_to_who_has_accepted_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, still("receive", listener.getsockname()[1]) as waiter:
        connection, _ = listener.accept()
        with connection:
            _, (wait,) = settled(waiter.pid, "recvfrom")
            assert (wait.kind, wait.what) == (WaitKind.SOCKET, f"127.0.0.1:{listener.getsockname()[1]}")
            assert wait.to is not None
            assert wait.to.pid == os.getpid()


def test_a_connection_that_nobody_has_accepted_leads_to_the_listener() -> None:
    with still("listen", 5) as listener, still("receive", listener.words[0]) as waiter:
        _, (wait,) = settled(waiter.pid, "recvfrom")
        assert wait.to is not None
        assert (wait.to.pid, wait.what) == (listener.pid, f"127.0.0.1:{listener.words[0]}, not accepted yet")


@pytest.mark.parametrize(("way", "call"), [("connect", "connect"), ("connect_with_timeout", "poll")])
def test_a_connect_to_a_listener_that_accepts_nothing_leads_to_it(way: str, call: str) -> None:
    with still("listen", 0) as listener, still(way, listener.words[0]) as waiter:
        _, (wait,) = settled(waiter.pid, call)
        assert (wait.kind, wait.what) == (WaitKind.CONNECT, f"127.0.0.1:{listener.words[0]}")
        assert wait.to is not None
        assert wait.to.pid == listener.pid


def test_a_connect_to_a_unix_socket_leads_to_its_listener(tmp_path: Path) -> None:
    path = tmp_path / "rpc.sock"
    with still("listen_unix", path) as listener, still("connect_unix", path) as waiter:
        place, (wait,) = settled(waiter.pid, "connect")
        assert (wait.kind, wait.what, place.arguments) == (WaitKind.CONNECT, f"unix socket {path}", f"unix socket {path}")
        assert wait.to is not None
        assert wait.to.pid == listener.pid


def test_a_lock_in_shared_memory_is_told_with_its_file(tmp_path: Path) -> None:
    with still("shared_lock", tmp_path / "queue") as waiter:
        _, (wait,) = settled(waiter.pid, "futex")
        assert (wait.kind, wait.what, wait.to) == (WaitKind.FUTEX, f"a lock in shared memory ({tmp_path / 'queue'})", None)


def test_who_accepts_waits_for_nobody_in_particular() -> None:
    with still("accept") as server:
        _, (wait,) = settled(server.pid, "accept4")
        assert (wait.kind, wait.to, wait.what) == (WaitKind.SOCKET, None, f"a connection to 127.0.0.1:{server.words[0]}")


def test_any_member_of_an_epoll_set_could_end_the_wait() -> None:
    with still("epoll") as waiter:
        place, waits = settled(waiter.pid, "epoll_wait" if os.uname().machine == "x86_64" else "epoll_pwait")
        assert {wait.kind for wait in waits} == {WaitKind.PIPE, WaitKind.SOCKET}
        assert {wait.timeout_s for wait in waits} == {77}
        assert place.arguments is not None
        assert "pipe:" in place.arguments


@pytest.mark.parametrize(("way", "call"), [("wait_for_child", "wait4"), ("poll_pidfd", "poll")])
def test_a_child_that_is_waited_for_is_named(way: str, call: str) -> None:
    with still(way) as parent:
        _, (wait,) = settled(parent.pid, call)
        assert wait.kind is WaitKind.CHILD
        assert wait.to is not None
        assert wait.to.pid == int(parent.words[0])


def test_a_stopped_process_is_told_once() -> None:
    with still("stop") as stopped:
        _, waits = settled(stopped.pid, "kill", state="T")
        assert [wait.kind for wait in waits] == [WaitKind.STOPPED]


def test_a_traced_process_leads_to_its_tracer() -> None:
    with still("sleep", 90) as target:
        settled(target.pid, "clock_nanosleep")
        with still("trace", target.pid) as tracer:
            (one,) = look(target.pid)
            assert main_of(one).state == "t"
            (wait,) = one.waits
            assert wait.kind is WaitKind.TRACED
            assert wait.to is not None
            assert wait.to.pid == tracer.pid


def test_a_process_that_runs_waits_for_nothing() -> None:
    with still("spin") as busy:
        one = until(lambda: next((one for one in look(busy.pid) if main_of(one).state == "R"), None))
        assert one.waits == ()
        assert main_of(one).syscall is None


def test_two_locks_taken_in_opposite_order_are_a_circle_of_waits(tmp_path: Path) -> None:
    first, second = tmp_path / "a.lock", tmp_path / "b.lock"
    with still("take_two", first, second) as one, still("take_two", second, first) as other:
        for process in (one, other):
            process.process.send_signal(signal.SIGUSR1)
            settled(process.pid, "flock")
        found = {place.process.pid: [wait.to.pid if wait.to else None for wait in place.waits] for place in look(one.pid, other.pid)}
        assert found == {one.pid: [other.pid], other.pid: [one.pid]}


def test_threads_that_only_wait_for_each_other_are_told_without_waits() -> None:
    with still("threads", 5) as process:
        settled(process.pid, "futex")
        (one,) = look(process.pid)
        assert [place.main for place in one.threads] == [True, *[False] * 5]
        assert [(wait.tid, wait.kind) for wait in one.waits] == [(process.pid, WaitKind.FUTEX)]


def test_a_process_that_was_replaced_or_is_gone_is_left_out() -> None:
    with still("sleep", 90) as process:
        key = PROCFS.key("here", process.pid)
        assert key is not None
        assert places(PROCFS, [key._replace(start=key.start + 1)], "here", 1) == []
    assert places(PROCFS, [key], "here", 1) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="another user can be had by root only")
def test_another_user_sees_states_and_says_what_he_does_not_see(tmp_path: Path) -> None:
    with still("hold", "flock", tmp_path / "a.lock"), still("flock", tmp_path / "a.lock") as waiter:
        settled(waiter.pid, "flock")
        told = json.loads(
            subprocess.run([sys.executable, "-c", _AS_NOBODY, str(waiter.pid)], capture_output=True, check=True, timeout=30).stdout
        )
        assert [thread["state"] for thread in told["threads"]] == ["S"]
        assert told["threads"][0]["syscall"] is None
        assert "another user" in told["error"]
        assert told["waits"][0]["kind"] == "file_lock"  # the table of locks is there for everybody
        assert told["waits"][0]["to"] is not None


class Untraceable(Procfs):
    """As where tracing is not permitted to the same user either."""

    def read(self, name: str, limit: int | None = None) -> bytes | None:
        return None if name.endswith("/syscall") else super().read(name, limit)


def without_tracing(pid: int) -> Places:
    key = PROCFS.key("here", pid)
    assert key is not None
    return places(Untraceable(), [key], "here", 1)[0]


def test_without_tracing_a_lock_and_its_holder_are_still_named(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with still("hold", "posix", path) as holder, still("posix_lock", path) as waiter:
        settled(waiter.pid, "fcntl")
        one = without_tracing(waiter.pid)
        assert one.error is not None
        assert "tracing is not permitted" in one.error
        assert [(wait.kind, wait.what, wait.to.pid if wait.to else None) for wait in one.waits] == [
            (WaitKind.FILE_LOCK, str(path), holder.pid)
        ]


def test_without_tracing_the_kernel_function_tells_the_way_of_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with still("open_fifo", tmp_path / "fifo") as reader, still("wait_for_child") as parent, still("sleep", 90) as sleeper:
        settled(reader.pid, "openat")
        settled(parent.pid, "wait4")
        settled(sleeper.pid, "clock_nanosleep")
        assert [(wait.kind, wait.nobody) for wait in without_tracing(reader.pid).waits] == [(WaitKind.FIFO, True)]
        assert [wait.to.pid for wait in without_tracing(parent.pid).waits if wait.to] == [int(parent.words[0])]
        assert [wait.kind for wait in without_tracing(sleeper.pid).waits] == [WaitKind.SLEEP]


_AS_NOBODY = """
import os, sys, msgspec
from firsttoken.hosts.procfs import Procfs
from firsttoken.observe.places import places
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
procfs = Procfs()
(one,) = places(procfs, [procfs.key("here", int(sys.argv[1]))], "here", 1)
print(msgspec.json.encode(one).decode())
"""
