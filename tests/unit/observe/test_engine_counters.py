"""An engine's metrics page, read: sums over labels, and never an exception."""

import asyncio

import pytest
from fake_http_server import FakeServer, Request, http
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.model.events import EngineCounters
from firsttoken.model.plan import Routes
from firsttoken.observe.engine_counters import ask_counters, parse
from firsttoken.observe.http_target import Target

NAMES = {"generation_tokens": "e:generation_tokens_total", "running": "e:num_running", "waiting": "e:num_waiting", "drafts": "e:drafts"}
PAGE = b"""# HELP e:generation_tokens_total Tokens.
# TYPE e:generation_tokens_total counter
e:generation_tokens_total{engine="0",model_name="a b}"} 40.0
e:generation_tokens_total{engine="1",model_name="a"} 2 1700000000
e:generation_tokens_total_created{engine="1"} 9e9
e:num_running{engine="0"} 3.0
e:num_waiting NaN
torn line
"""


def test_values_are_summed_over_labels_and_what_is_no_number_is_not_told() -> None:
    assert parse(PAGE, NAMES) == EngineCounters(generation_tokens=42.0, running=3.0)


@given(st.binary(max_size=300))
def test_no_bytes_make_it_raise(page: bytes) -> None:
    parse(page, NAMES)
    parse(PAGE + page, NAMES)


def test_an_engine_whose_metrics_are_not_known_is_not_asked() -> None:
    told = asyncio.run(ask_counters(Target(host="127.0.0.1", port=1, routes=Routes(metrics="/metrics")), {"drafts": "e:drafts"}))
    assert not told.available


def test_a_server_that_is_not_there_may_be_asked_again() -> None:
    told = asyncio.run(ask_counters(Target(host="127.0.0.1", port=1, routes=Routes(metrics="/metrics")), NAMES))
    assert told.error is not None
    assert told.available


@pytest.mark.parametrize(
    ("reply", "error", "available"),
    [
        (http(200, PAGE), None, True),
        (http(404, ""), "/metrics: HTTP 404", False),
        (http(401, ""), "/metrics: HTTP 401", False),
        (http(500, ""), "/metrics: HTTP 500", True),
        (http(200, "other 1\n"), "/metrics has none of e:generation_tokens_total, e:num_running, e:num_waiting", True),
    ],
)
def test_what_is_no_page_of_counters_is_told_as_such(reply: bytes, error: str | None, available: bool) -> None:
    async def story() -> EngineCounters:
        async with FakeServer({"/metrics": reply}) as server:
            return await ask_counters(server.target(routes=Routes(metrics="/metrics")), NAMES)

    told = asyncio.run(story())
    assert (told.error, told.available) == (error, available)
    assert (told.running == 3.0) == (error is None)


def test_a_page_that_does_not_come_is_given_up_and_may_be_asked_again() -> None:
    async def never(_: Request, __: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async def story() -> EngineCounters:
        async with FakeServer({"/metrics": never}) as server:
            return await ask_counters(server.target(routes=Routes(metrics="/metrics")), NAMES, deadline=0.2)

    told = asyncio.run(story())
    assert told.error == "/metrics: no whole answer within 0.2 s"
    assert told.available
