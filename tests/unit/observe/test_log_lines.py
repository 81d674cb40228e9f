"""Splitting: any bytes, any chunks, the same lines."""

from hypothesis import given
from hypothesis import strategies as st

from firsttoken.observe.log_lines import MAX_LINE, Line, LineSplitter, strip_ansi


def split(chunks: list[bytes], offset: int = 0) -> list[Line]:
    splitter = LineSplitter()
    splitter.end = offset
    lines: list[Line] = []
    for chunk in chunks:
        lines += splitter.feed(chunk, offset)
        offset += len(chunk)
    return lines + splitter.flush()


def test_both_line_breaks_end_a_line_and_empty_lines_are_none() -> None:
    assert split([b"one\ntwo\r\n\nthree\rfour"]) == [(0, 3, b"one"), (4, 3, b"two"), (10, 5, b"three"), (16, 4, b"four")]


def test_an_offset_counts_from_the_start_of_the_log() -> None:
    assert split([b"ab", b"c\nd\n"], offset=100) == [(100, 3, b"abc"), (104, 1, b"d")]


def test_a_line_that_never_ends_is_capped_and_its_length_is_true() -> None:
    splitter = LineSplitter()
    for index in range(40):
        assert splitter.feed(b"x" * 1000, index * 1000) == []
        assert len(splitter._tail) <= MAX_LINE
    assert splitter.feed(b"\nnext\n", 40_000) == [(0, 40_000, b"x" * MAX_LINE), (40_001, 4, b"next")]


def test_bytes_after_a_hole_do_not_join_the_line_before_it() -> None:
    splitter = LineSplitter()
    splitter.feed(b"begin of a li", 0)
    assert splitter.feed(b"end of another\nwhole\n", 500) == [(500, 14, b"end of another"), (515, 5, b"whole")]


def test_control_sequences_go_and_the_text_stays() -> None:
    assert strip_ansi(b"\x1b[1;36m(APIServer pid=1)\x1b[0;0m INFO") == b"(APIServer pid=1) INFO"
    assert strip_ansi(b"\x1b]0;title\x07a\x1b(Bb\x1b[2Kc\x1bMd\te\x00\x07") == b"abcd\te"
    assert strip_ansi(b"broken \x1b[12") == b"broken [12"


@given(st.lists(st.binary(max_size=40) | st.sampled_from([b"\n", b"\r", b"\r\n", b"x" * 9000]), max_size=12), st.data())
def test_chunks_do_not_matter(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    chunks = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert split(chunks) == split([whole])


@given(st.lists(st.sampled_from([b"a", b"bc", b"\xff", b" "]), max_size=30).map(b"\n".join))
def test_a_line_is_found_where_it_is_told_to_be(content: bytes) -> None:
    for offset, length, text in split([content]):
        assert content[offset : offset + length] == text


@given(st.binary())
def test_stripping_takes_any_bytes(content: bytes) -> None:
    assert b"\x1b" not in strip_ansi(content)
