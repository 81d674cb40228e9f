"""Which lines of a log a report shows, at which time, and where evidence is found in them."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from firsttoken.history.masked_log import Part
from firsttoken.session.log_rows import clock_of, rows_of

MANY = b"".join(b"line %d says nothing\n" % number for number in range(5000))


def parts(data: bytes, offset: int = 0) -> list[Part]:
    return [Part("head.raw", offset, data)]


def test_the_first_and_last_lines_are_shown_and_what_is_between_is_told_as_left_out() -> None:
    rows, _ = rows_of(parts(MANY), {}, (), lambda at: None)
    assert (rows[0].text, rows[-1].text) == ("line 0 says nothing", "line 4999 says nothing")
    assert len(rows) < 120
    assert [row.after_gap for row in rows].count(True) == 1


def test_an_error_and_evidence_are_shown_and_marked_wherever_they_stand() -> None:
    at = MANY.index(b"line 2500 ")
    data = MANY[:at] + b"\x1b[31mRuntimeError: CUDA error: out of memory\x1b[0m\nNCCL WARN Call to connect failed\n" + MANY[at:]
    evidence = "NCCL WARN Call to connect failed"
    rows, places = rows_of(parts(data), {at: True}, (evidence, "says what no line says"), lambda at: None)
    assert [row.text for row in rows if row.marked] == ["RuntimeError: CUDA error: out of memory", evidence]
    assert places == {evidence: data.index(b"NCCL")}


def test_evidence_that_was_cut_is_found_by_its_beginning() -> None:
    line = "a very long line that says " + "much " * 100
    rows, places = rows_of(parts(line.encode() + b"\n" + MANY), {}, (line[:299] + "…",), lambda at: None)
    assert list(places.values()) == [0]
    assert rows[0].text.endswith("…")
    assert len(rows[0].text) == 400


def test_every_state_of_a_redrawn_bar_is_a_line_of_its_own() -> None:
    rows, _ = rows_of(parts(b"a: 1%\ra: 2%\ra: 3%\n"), {6: False}, (), lambda at: None)
    assert [row.text for row in rows] == ["a: 1%", "a: 2%", "a: 3%"]


def test_offsets_count_from_the_start_of_the_log() -> None:
    log = [Part("head.raw", 0, b"one\n"), Part("tail-1000.raw", 1000, b"two\nthree\n")]
    rows, _ = rows_of(log, {1004: True}, (), float)
    assert [(row.offset, row.t, row.text) for row in rows] == [(0, 0, "one"), (1000, 1000, "two"), (1004, 1004, "three")]


def test_a_line_has_the_time_at_which_it_was_read(tmp_path: Path) -> None:
    (tmp_path / "index").write_text("0 1.500 1e9\n100 2.250 1e9\nnonsense\n50 9.0 1e9\n200 3.000 1e9\n20")
    clock = clock_of(tmp_path / "index")
    assert [clock(at) for at in (0, 99, 100, 5000)] == [1.5, 1.5, 2.25, 3.0]
    assert clock_of(tmp_path / "none")(0) is None


@given(st.binary(max_size=300), st.dictionaries(st.integers(0, 400), st.booleans(), max_size=5), st.text(max_size=60))
def test_no_bytes_are_too_odd_to_be_shown(data: bytes, told: dict[int, bool], text: str) -> None:
    rows, places = rows_of(parts(data), told, (text,), lambda at: None)
    assert all(char.isprintable() for row in rows for char in row.text)
    assert {row.offset for row in rows} >= set(places.values())
