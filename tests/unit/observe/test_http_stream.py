"""Answers are read the same however their bytes were chunked, in all the shapes that servers send, and nothing raises."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.observe.http_stream import DONE, Reading, StreamParser, error_of, parse, parse_whole


def read(stream: bytes, cut: int | None = None) -> list[object]:
    parser = StreamParser()
    chunks = [stream] if cut is None else [stream[at : at + cut] for at in range(0, len(stream), cut)]
    return [payload for chunk in chunks for payload in parser.feed(chunk)] + parser.finish()


@pytest.mark.parametrize(
    "stream",
    [
        b'data: {"a":1}\n\ndata: [DONE]\n\n',
        b'data:{"a":1}\r\n\r\ndata:[DONE]\r\n\r\n',
        b'data: {"a":1}\r\rdata: [DONE]\r\r',
        b': ping\n\nevent: message\nid: 3\nretry: 10\ndata: {"a":1}\n\ndata: [DONE]\n\n',
        b'data: {\ndata: "a":\ndata: 1}\n\ndata: [DONE]\n\n',
        b'\xef\xbb\xbfdata: {"a":1}\n\ndata: [DONE]\n\n',
        b'data: {"a":1}\ndata: [DONE]\n',
        b'data: {"a":1}\n\ndata: [DONE]',
    ],
)
@pytest.mark.parametrize("cut", [None, 1, 2, 3, 7])
def test_streams_of_all_dialects_are_read_alike(stream: bytes, cut: int | None) -> None:
    assert read(stream, cut) == [{"a": 1}, DONE]


def test_a_payload_is_there_as_soon_as_its_line_ends() -> None:
    parser = StreamParser()
    assert parser.feed(b'data: {"a":1}') == []
    assert parser.feed(b"\n") == [{"a": 1}]
    assert parser.feed(b"\ndata: x\n") == []
    assert parser.feed(b"\n") == ["x"]


def test_a_line_feed_after_a_carriage_return_is_passed_over_once() -> None:
    parser = StreamParser()
    found = [payload for chunk in (b'data: {"a":\r', b"\n", b"data: 1}\r", b"\n", b"\n") for payload in parser.feed(chunk)]
    assert found == [{"a": 1}]


@given(st.binary(max_size=300), st.integers(1, 9))
def test_any_bytes_are_read_the_same_however_they_are_cut(raw: bytes, cut: int) -> None:
    assert repr(read(raw)) == repr(read(raw, cut))


LINES = st.sampled_from(
    [
        b"data:",
        b"data: ",
        b'{"choices":[',
        b'{"text":"a"}',
        b"]}",
        b"\n",
        b"\r",
        b"\r\n",
        b"[DONE]",
        b": c",
        b"\xff",
        b"null",
        b"[[",
        b"1e999",
    ]
)


@given(st.lists(LINES, max_size=30).map(b"".join), st.integers(1, 9))
def test_any_pieces_of_streams_are_read_the_same_however_they_are_cut(raw: bytes, cut: int) -> None:
    assert repr(read(raw)) == repr(read(raw, cut))


KEYS = ("choices", "text", "delta", "content", "message", "reasoning", "finish_reason", "token", "tokens", "logprob", "logprobs")
KEYS += ("token_logprobs", "error", "object", "data", "embedding", "results", "score", "scores", "usage", "completion_tokens", "meta_info")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=25,
)


@given(st.lists(JSON, max_size=5))
def test_any_json_can_be_read(payloads: list[object]) -> None:
    reading = Reading()
    for payload in payloads:
        reading.take(payload, 1.0)
        error_of(payload)
    generation = reading.generation(streamed=True)
    assert generation.tokens is None or generation.tokens >= 0


@given(st.binary(max_size=200))
def test_any_body_can_be_read(raw: bytes) -> None:
    parse_whole(raw)


def test_deep_and_huge_values_are_no_danger() -> None:
    assert parse("[" * 100_000) is None
    assert parse("1" * 100_000) is None
    reading = Reading()
    reading.take(json.loads('{"data":' * 200 + "1" + "}" * 200), 0.0)
    reading.take({"score": 10**400}, 0.0)
    assert reading.numbers == [None]


def test_a_long_event_of_many_lines_is_read_in_linear_time() -> None:
    stream = b"data: {\n" + b"data: }\n" * 100_000 + b"\n"
    began = time.monotonic()
    read(stream)
    assert time.monotonic() - began < 3.0


def generation_of(*payloads: object) -> tuple[str, int | None]:
    reading = Reading()
    for payload in payloads:
        reading.take(payload, 1.0)
    generation = reading.generation(streamed=True)
    return generation.text, generation.tokens


def test_shapes_of_native_answers_are_known() -> None:
    assert generation_of({"generated_text": "abc", "details": {"generated_tokens": 3}}) == ("abc", 3)
    assert generation_of([{"generated_text": "abc"}]) == ("abc", 1)
    assert generation_of({"token": {"text": "a", "logprob": -0.5}}, {"token": {"text": "b"}, "generated_text": "ab"}) == ("ab", 2)
    assert generation_of({"content": "a", "stop": False}, {"content": "b"}, {"content": "", "tokens_predicted": 2}) == ("ab", 2)
    assert generation_of({"text": ["prompt and more"]}) == ("prompt and more", 1)
    assert generation_of({"message": {"role": "assistant", "content": "hi"}, "eval_count": 4}) == ("hi", 4)
    assert generation_of({"choices": [{"message": {"content": [{"type": "text", "text": "in parts"}]}}]}) == ("in parts", 1)


def test_the_text_is_found_where_the_profile_says() -> None:
    reading = Reading(text_path="out.0.words")
    for payload in ({"out": [{"words": "a"}]}, {"out": []}, {"out": 3}, {"out": [{"words": " b"}], "text": "not this"}):
        reading.take(payload, 1.0)
    assert reading.generation(streamed=True).text == "a b"


def test_equal_chunks_are_a_repetition_and_not_a_growing_text() -> None:
    assert generation_of(*[{"text": "a"}] * 4) == ("aaaa", 4)


def test_a_thought_under_two_names_is_read_once() -> None:
    assert generation_of({"choices": [{"delta": {"reasoning": "hm", "reasoning_content": "hm"}}]}) == ("hm", 1)


def test_half_characters_without_a_text_yet_are_tokens_at_a_natural_end() -> None:
    empty = {"choices": [{"text": ""}]}
    assert generation_of(empty, {"choices": [{"text": "", "finish_reason": "length"}]}) == ("", 1)
    assert generation_of(empty, {"choices": [{"text": "", "finish_reason": "abort"}]}) == ("", 0)
    assert generation_of(empty, {"choices": [{"text": "", "finish_reason": "stop"}], "usage": {"completion_tokens": 0}}) == ("", 0)


def test_errors_are_found_in_all_their_shapes() -> None:
    assert error_of({"error": {"message": "m"}}) == "m"
    assert error_of({"error": "m"}) == "m"
    assert error_of({"object": "error", "message": "m", "code": 400}) == "m"
    assert error_of({"choices": [], "error": None}) is None
    assert error_of([]) is None
