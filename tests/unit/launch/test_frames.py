"""Frames come out whole, however the stream was cut, and no bytes make the decoder raise."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from firsttoken.launch.frames import Decoder, Frame, JsonFrame, LogFrame, encode_json, encode_log

VALUES = st.dictionaries(
    st.text(max_size=5), st.integers() | st.text(max_size=20) | st.none() | st.lists(st.booleans(), max_size=3), max_size=4
)
LOGS = st.tuples(st.integers(0, 2**64 - 1), st.floats(allow_nan=False), st.binary(max_size=200))


def encode(item: Any) -> bytes:
    return encode_json(item) if isinstance(item, dict) else encode_log(*item)


def frame(item: Any) -> Frame:
    return JsonFrame(value=item) if isinstance(item, dict) else LogFrame(offset=item[0], t=item[1], data=item[2])


@given(st.lists(VALUES | LOGS, max_size=8), st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_any_chunking_gives_the_same_frames(items: list[Any], cuts: list[int]) -> None:
    stream = b"".join(map(encode, items))
    decoder, found, at, turn = Decoder(), [], 0, 0
    while at < len(stream):
        size = cuts[turn % len(cuts)]
        found += decoder.feed(stream[at : at + size])
        at, turn = at + size, turn + 1
    assert found == [frame(item) for item in items]
    assert decoder.broken is None


@given(st.lists(st.binary(max_size=60), max_size=10))
def test_no_bytes_make_it_raise(chunks: list[bytes]) -> None:
    decoder = Decoder()
    for chunk in chunks:
        decoder.feed(chunk)


def test_a_length_that_cannot_be_breaks_the_stream_for_good() -> None:
    decoder = Decoder()
    assert decoder.feed(b"\xff\xff\xff\xff" + b"J") == []
    assert decoder.broken is not None
    assert decoder.feed(encode_json({})) == []


def test_unknown_types_and_other_json_are_left_out() -> None:
    stream = b"\0\0\0\2Zab" + b"\0\0\0\2J[]" + b"\0\0\0\1J{" + encode_json({"a": 1})
    assert Decoder().feed(stream) == [JsonFrame(value={"a": 1})]
