"""Events to JSON lines and back: nothing is lost, nothing raises, and a file that breaks off still reads."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.model import codec
from firsttoken.model.events import Body, Event, Judged, LogLine, Tick, UnknownEvent
from firsttoken.model.words import Phase, Verdict

KINDS = [cls for cls in get_args(Body) if cls is not UnknownEvent]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def values(wanted: Any) -> st.SearchStrategy[Any]:
    """Any value of a model type."""
    origin, inner = get_origin(wanted), get_args(wanted)
    if wanted is Any:
        return JSON
    if origin in (Union, UnionType):
        return st.one_of(*map(values, inner))
    if origin is tuple and inner[-1] is Ellipsis:
        return st.lists(values(inner[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, inner))
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(values(inner[0]), values(inner[1]), max_size=3)
    if is_dataclass(wanted):
        hints = get_type_hints(wanted)
        return st.builds(wanted, **{item.name: values(hints[item.name]) for item in fields(wanted) if item.init})
    if issubclass(wanted, tuple):
        return st.builds(wanted, *(values(hint) for hint in get_type_hints(wanted).values()))
    if issubclass(wanted, StrEnum):
        return st.sampled_from(list(wanted))
    plain: dict[type, st.SearchStrategy[Any]] = {
        NoneType: st.none(),
        bool: st.booleans(),
        int: st.integers(-(2**53), 2**53),
        float: st.floats(allow_nan=False, allow_infinity=False),
        str: st.text(max_size=20),
        bytes: st.binary(max_size=20),
    }
    return plain[wanted]


def events(body: st.SearchStrategy[Any]) -> st.SearchStrategy[Event]:
    times = st.integers(-(10**9), 10**12).map(lambda micros: round(micros / 1e6, 6))
    return st.builds(Event, seq=st.integers(0, 2**53), t=times, wall=times, node=st.text(max_size=8), body=body)


@pytest.mark.parametrize("kind", KINDS, ids=lambda cls: cls.kind)
@given(data=st.data())
def test_every_kind_comes_back_as_it_went(kind: type[Any], data: st.DataObject) -> None:
    event = data.draw(events(values(kind)))
    line = codec.encode(event)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert codec.decode(line) == event


@given(event=events(st.builds(UnknownEvent, original=st.just("from-the-future"), fields=st.dictionaries(st.text(min_size=9), JSON))))
def test_kinds_that_this_version_does_not_know_are_kept_as_they_came(event: Event) -> None:
    line = codec.encode(event)
    assert codec.decode(line) == event
    assert codec.encode(event) == line


def test_a_body_that_this_version_cannot_read_is_kept_too() -> None:
    line = b'{"seq":4,"t":1.5,"wall":9.0,"node":"a","kind":"judged","verdict":"radiant","phase":"weights","reason":"x"}\n'
    event = codec.decode(line)
    assert event is not None
    assert event.body == UnknownEvent(original="judged", fields={"verdict": "radiant", "phase": "weights", "reason": "x"})
    assert codec.encode(event) == line


def test_fields_that_a_later_version_added_do_not_hide_what_is_known() -> None:
    event = codec.decode(
        '{"seq":1,"t":0,"wall":0,"node":"a","kind":"judged","verdict":"ready","phase":"weights","reason":"x","mood":"good"}'
    )
    assert event is not None
    assert event.body == Judged(verdict=Verdict.READY, phase=Phase.WEIGHTS, reason="x")


@given(st.binary() | st.text() | JSON.map(json.dumps))
def test_no_line_raises(line: bytes | str) -> None:
    event = codec.decode(line)
    assert event is None or isinstance(event, Event)


@pytest.mark.parametrize("line", [b"[" * 100_000, b"{" * 100_000, b'{"seq":1e999}', b'{"seq":1,"t":"x","wall":0,"node":"a","kind":"tick"}'])
def test_lines_that_are_no_events_are_none(line: bytes) -> None:
    assert codec.decode(line) is None


def test_text_that_is_no_text_does_not_stop_the_record() -> None:
    body = LogLine(offset=0, length=1, text="a\udcffb")
    event = codec.decode(codec.encode(Event(seq=1, t=0, wall=0, node="a", body=body)))
    assert event is not None
    assert event.body == LogLine(offset=0, length=1, text="a?b")


@given(data=st.data(), bodies=st.lists(st.one_of(*(values(kind) for kind in KINDS)), max_size=6))
def test_a_file_cut_at_any_byte_reads_up_to_there(data: st.DataObject, bodies: list[Any]) -> None:
    whole = [Event(seq=number, t=number / 2, wall=1e9, node="a", body=body) for number, body in enumerate(bodies, 1)]
    raw = b"".join(map(codec.encode, whole))
    cut = data.draw(st.integers(0, len(raw)))
    found = list(codec.read(raw[:cut].splitlines(keepends=True)))
    assert found == whole[: len(found)]
    assert len(found) >= raw[:cut].count(b"\n")


def test_a_line_that_was_written_twice_counts_once_and_a_torn_one_is_passed_over() -> None:
    lines = [codec.encode(Event(seq=number, t=0, wall=0, node="a", body=Tick())) for number in (1, 2, 3)]
    assert [event.seq for event in codec.read([lines[0], lines[1][:9], lines[1], lines[1], lines[0], lines[2]])] == [1, 2, 3]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 400, "1e30", "-1e19"])
def test_a_number_that_nothing_could_have_shown_is_not_sound(number: str) -> None:
    assert not codec.is_sound(b'{"seq":1,"t":%s,"kind":"tick"}' % number.encode())
    codec.decode(b'{"seq":%s,"t":1,"wall":1,"node":"n","kind":"tick"}' % number.encode())


@pytest.mark.parametrize(
    "line", [b'{"t":1.5e3}', b'{"text":"NaN Infinity 1e99 12345678901234567890"}', b'{"n":9223372036854775807}', b"torn"]
)
def test_usual_numbers_and_odd_texts_are_sound(line: bytes) -> None:
    assert codec.is_sound(line)
