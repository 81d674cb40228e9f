"""What was logged before we came: whose lines they are, and when they were written."""

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from firsttoken.knowledge.load import generic, profiles
from firsttoken.observe.log_prefixes import Peeler
from firsttoken.observe.logs import LogReader
from firsttoken.session.attaching.past import Past, PastClock, survey

BEGAN = datetime(2026, 11, 29, 20, 41, 20, tzinfo=UTC)


def stamped(at: datetime, text: str) -> str:
    return f"[{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d}] {text}\n"


def start(at: datetime) -> str:
    return stamped(at, "Process start begin. pid=20360") + stamped(
        at + timedelta(seconds=3), "Listening on http://127.0.0.1:8000 elapsed=0.00 s"
    )


def look(text: str | bytes, zone: timezone = UTC, began: datetime = BEGAN) -> Past:
    data = text.encode() if isinstance(text, str) else text
    peeler = Peeler(generic(), profiles()["rehearsal"], 2026)
    return survey(
        data,
        lambda: LogReader(profiles(), "rehearsal", year=2026),
        lambda line: peeler.peel(line).stamp,
        began=began.timestamp(),
        zone=zone,
    )


def test_lines_keep_the_time_that_they_tell() -> None:
    past = look(start(BEGAN))
    assert (past.start, past.stamped) == (0, True)
    assert past.clock.t(BEGAN.timestamp() + 3, 100.0) == 3.0


def test_stamps_without_a_zone_are_in_the_servers_own() -> None:
    east = timezone(timedelta(hours=2))
    past = look(start(BEGAN + timedelta(hours=2)), zone=east)
    assert past.start == 0
    assert past.clock.t((BEGAN + timedelta(hours=2, seconds=3)).timestamp(), 100.0) == 3.0


def test_earlier_starts_in_the_same_file_are_left_out_with_their_errors() -> None:
    before = BEGAN - timedelta(hours=1)
    old = start(before) + "Traceback (most recent call last):\nOSError: [Errno 98] Address already in use\n"
    text = old + stamped(BEGAN, "something that is not known") + start(BEGAN)
    assert look(text).start == len(old)


def test_a_log_with_only_earlier_starts_is_left_out_whole() -> None:
    text = start(BEGAN - timedelta(hours=1)) + "Traceback (most recent call last):\n"
    past = look(text)
    assert (past.start, past.stamped) == (len(text), False)


def test_a_line_without_a_stamp_has_the_time_of_the_line_before() -> None:
    clock = PastClock(began=1e9)
    assert [clock.t(stamp, 50.0) for stamp in (None, 1e9 + 4, None, 1e9 + 3, 1e9 + 9)] == [0.0, 4.0, 4.0, 3.0, 9.0]


def test_a_time_that_cannot_be_is_that_of_the_line_before() -> None:
    clock = PastClock(began=1e9)
    assert [clock.t(stamp, 50.0) for stamp in (1e9 + 4, 1e9 + 500, 1e9 - 500)] == [4.0, 4.0, 4.0]


def test_times_since_the_process_started_are_taken_as_they_are() -> None:
    assert PastClock(began=1e9, shift=3600).t(4.25, 50.0) == 4.25


def test_a_bare_clock_is_read_on_the_day_of_the_start() -> None:
    clock = PastClock(began=BEGAN.timestamp())
    bare = datetime(2026, 1, 1, 20, 41, 27, tzinfo=UTC).timestamp()
    assert clock.t(bare, 50.0) == 7.0


@given(st.binary(max_size=400))
def test_no_bytes_are_too_odd(data: bytes) -> None:
    assert 0 <= look(data).start <= len(data)
