"""When lines without a time of their own were written."""

from hypothesis import given
from hypothesis import strategies as st

from firsttoken.knowledge.load import profiles
from firsttoken.observe.log_clock import LogClock
from firsttoken.observe.log_prefixes import read_stamp

LOG = b"banner\n2026-01-02T03:04:05Z one\nbar 10%\rbar 20%\n2026-01-02T03:04:15Z two\n"


def test_a_line_without_a_time_has_that_of_the_line_before() -> None:
    clock = LogClock(LOG, None, 2026)
    first = clock.first()
    assert first is not None
    assert clock.at(LOG.index(b"bar 20%")) == first
    assert clock.last() == first + 10


def test_what_stands_before_the_first_time_has_none() -> None:
    assert LogClock(LOG, None, 2026).at(0) is None


def test_a_log_without_times_has_no_clock() -> None:
    clock = LogClock(b"a\nb\n", None, 2026)
    assert clock.first() is None
    assert clock.last() is None


@given(st.binary(max_size=500), st.integers(min_value=0, max_value=500))
def test_no_bytes_make_it_raise(data: bytes, at: int) -> None:
    clock = LogClock(data, None, 2026)
    clock.first()
    clock.at(min(at, len(data)))
    clock.last()


def test_a_clock_that_counts_from_the_start_tells_differences() -> None:
    early, late = read_stamp("0.08.720.586", ("uptime",), 2026), read_stamp("1.10.020.266", ("uptime",), 2026)
    assert early is not None
    assert late is not None
    assert round(late - early, 3) == 61.3


def test_lines_before_the_first_that_tells_both_clocks_are_on_the_engines_too() -> None:
    log = (
        b"Feb 01 10:00:00 box ollama[8]: 2025/02/01 10:00:00 routes.go:1187: INFO server config env=x\n"
        b"Feb 01 10:00:05 box ollama[8]: time=2025-02-01T10:00:05+01:00 level=INFO source=routes.go:1 "
        b'msg="Listening on 127.0.0.1:1 (version 0.5.7)"\n'
    )
    clock = LogClock(log, profiles()["ollama"], 2025)
    first, last = clock.first(), clock.last()
    assert first is not None
    assert last == first + 5.0
    assert clock.learned == log.index(b"\n") + 1
