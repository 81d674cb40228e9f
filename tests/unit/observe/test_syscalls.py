"""Lines of /proc/PID/task/TID/syscall."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.observe.syscalls import PAGE_FAULT, Call, call_name, parse_call


@pytest.mark.parametrize(
    ("machine", "number", "name"),
    [
        ("x86_64", 0, "read"),
        ("x86_64", 61, "wait4"),
        ("x86_64", 73, "flock"),
        ("x86_64", 202, "futex"),
        ("x86_64", 230, "clock_nanosleep"),
        ("x86_64", 232, "epoll_wait"),
        ("x86_64", 257, "openat"),
        ("x86_64", 288, "accept4"),
        ("x86_64", 334, "rseq"),
        ("aarch64", 22, "epoll_pwait"),
        ("aarch64", 25, "fcntl"),
        ("aarch64", 32, "flock"),
        ("aarch64", 56, "openat"),
        ("aarch64", 63, "read"),
        ("aarch64", 73, "ppoll"),
        ("aarch64", 98, "futex"),
        ("aarch64", 115, "clock_nanosleep"),
        ("aarch64", 203, "connect"),
        ("aarch64", 260, "wait4"),
        ("riscv64", 207, "recvfrom"),
        ("x86_64", 449, "futex_waitv"),
        ("aarch64", 441, "epoll_pwait2"),
        ("aarch64", 455, "futex_wait"),
        ("x86_64", 9999, "syscall 9999"),
        ("aarch64", 250, "syscall 250"),
    ],
)
def test_a_number_has_the_name_of_its_machine(machine: str, number: int, name: str) -> None:
    assert call_name(number, machine) == name


def test_a_line_gives_the_call_and_its_arguments() -> None:
    line = b"202 0x7f10 0x189 0x0 0x0 0x0 0xffffffff 0x7ffc1 0x7f22\n"
    assert parse_call(line, "x86_64") == Call("futex", (0x7F10, 0x189, 0, 0, 0, 0xFFFFFFFF))


def test_a_thread_that_runs_is_in_no_call_and_one_that_faults_called_nothing() -> None:
    assert parse_call(b"running\n") is None
    assert parse_call(b"-1 0x7ffc1 0x7f22\n") == Call(PAGE_FAULT)
    assert parse_call(None) is None
    assert parse_call(b"") is None


@given(st.binary(max_size=200))
def test_no_line_is_too_odd(raw: bytes) -> None:
    parse_call(raw)
