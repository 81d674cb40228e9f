"""What ps prints, with whatever columns."""

from hypothesis import given
from hypothesis import strategies as st

from firsttoken.survey.processes_text import read_processes

_PS = """\
    PID    PPID STAT %CPU %MEM ELAPSED WCHAN                            COMMAND
     11       1 Ssl   0.4  1.0     500 do_epoll_wait                    python3 -m server --tp 2
     31      11 Tl   99.0 20.5     480 -                                worker rank 0
"""


def test_each_column_is_read() -> None:
    first, second = read_processes(_PS)
    assert (first.pid, first.parent, first.state, first.cpu, first.memory, first.elapsed) == (11, 1, "Ssl", 0.4, 1.0, 500.0)
    assert first.wchan == "do_epoll_wait"
    assert first.title == "python3 -m server --tp 2"
    assert second.wchan is None


def test_elapsed_time_in_days_and_clock_is_seconds() -> None:
    (process,) = read_processes("PID ELAPSED COMMAND\n 5 2-03:04:05 x\n")
    assert process.elapsed == 2 * 86400 + 3 * 3600 + 4 * 60 + 5


def test_of_two_snapshots_the_later_counts() -> None:
    (process,) = read_processes("PID STAT COMMAND\n 5 R x\nPID STAT COMMAND\n 5 T x\n")
    assert process.state == "T"


def test_lines_without_a_header_say_nothing() -> None:
    assert read_processes("11 1 Ssl python3\n") == ()


@given(st.binary(max_size=2000))
def test_no_bytes_make_it_raise(data: bytes) -> None:
    read_processes("PID PPID STAT %CPU ELAPSED WCHAN COMMAND\n" + data.decode("utf8", "replace"))
