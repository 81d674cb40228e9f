"""Notes of what curl gave, in the ways in which people write them."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.model.attached import Asked
from firsttoken.survey.probes_text import read_probes


@pytest.mark.parametrize(
    ("line", "asked", "status", "refused", "timed_out"),
    [
        ("GET http://127.0.0.1:8000/health -> 200 (0.002 s)", Asked.HEALTH, 200, False, False),
        ("POST /v1/completions max_tokens=1 -> 200 (0.2 s)", Asked.GENERATE, 200, False, False),
        ("GET http://h:1/v1/models -> curl: (7) Connection refused (0.00 s)", Asked.READ, None, True, False),
        ("POST http://h/v1/chat/completions -> curl: (28) Operation timed out after 60000 ms", Asked.GENERATE, None, False, True),
        ("POST /v1/chat/completions -> no answer after 180 s", Asked.GENERATE, None, False, True),
        ("curl /health -> 503", Asked.HEALTH, 503, False, False),
        ("curl -m 60 /v1/completions max_tokens=16 -> 000 (no answer in 60 s)", Asked.GENERATE, None, False, True),
    ],
)
def test_one_request_and_its_answer(line: str, asked: Asked, status: int | None, refused: bool, timed_out: bool) -> None:
    (probe,) = read_probes(line).lines
    assert (probe.asked, probe.status, probe.refused, probe.timed_out) == (asked, status, refused, timed_out)


def test_an_answer_may_stand_on_the_next_line() -> None:
    (probe,) = read_probes("curl -s -m 3 http://127.0.0.1:8000/health\n000 (connection refused)\n").lines
    assert probe.refused


def test_tokens_and_seconds_are_read() -> None:
    (probe,) = read_probes("curl /v1/completions max_tokens=64 -> 200, 64 tokens").lines
    assert probe.tokens == 64
    (timed,) = read_probes("POST /generate -> timed out after 2 min").lines
    assert timed.seconds == 120.0


@pytest.mark.parametrize(
    ("text", "since_start", "since_last"),
    [
        ("# taken 580 s after the start\n", 580.0, None),
        ("# 15 minutes after start\n", 900.0, None),
        ("# report written 25 min after the last log line\n", None, 1500.0),
        ("# half an hour after the last line; both nodes print nothing more\n", None, 1800.0),
        ("# an hour after the last line\n", None, 3600.0),
        ("# four minutes after the last log line: the second call does not come back\n", None, 240.0),
        ("# 21 min later: the bar has not moved\n", None, 1260.0),
        ("# 25 min without a new line\n", None, 1500.0),
        ("# no new line for 40 minutes\n", None, 2400.0),
        ("# 30+ minutes of silence\n", None, 1800.0),
        ("# 60 s later a second dump shows another frame\n", None, None),
        ("# 3 min later it was up\n", None, None),
        ("# 25 minutes later\n", None, 1500.0),
    ],
)
def test_when_the_report_was_taken(text: str, since_start: float | None, since_last: float | None) -> None:
    probes = read_probes(text)
    assert (probes.since_start, probes.since_last_line) == (since_start, since_last)


def test_what_is_no_request_is_kept_as_text() -> None:
    probes = read_probes("$ dmesg | tail -1\nOut of memory: Killed process 7 (x)\n")
    assert probes.lines == ()
    assert "Killed process 7" in probes.text


@given(st.binary(max_size=2000))
def test_no_bytes_make_it_raise(data: bytes) -> None:
    read_probes("POST /v1/completions -> " + data.decode("utf8", "replace"))


@pytest.mark.parametrize(
    ("text", "stamp"),
    [
        ("# 2025-03-28 09:22:40", "2025-03-28T09:22:40+00:00"),
        ("# looked at 2025-03-28T09:22Z", "2025-03-28T09:22:00+00:00"),
        ("Fri Mar 28 09:22:40 UTC 2025", "2025-03-28T09:22:40+00:00"),
        ("# started 2025-03-28 09:00:00", None),
        ("# 2025-03-48 09:00:00", None),
        ("2025-03-28T09:22:40Z Warning Unhealthy", None),
    ],
)
def test_a_date_tells_when_somebody_looked(text: str, stamp: str | None) -> None:
    assert read_probes(text).at == (datetime.fromisoformat(stamp).timestamp() if stamp else None)
