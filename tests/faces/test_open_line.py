"""The server's output above lines that are redrawn."""

from hypothesis import given
from hypothesis import strategies as st

from firsttoken.faces.cli.open_line import OpenLine, fit


def test_a_line_is_printed_when_it_ends_and_told_before() -> None:
    line = OpenLine()
    assert line.feed(b"one\ntw", 80) == b"one\n"
    assert line.text == "tw"
    assert line.feed(b"o\n", 80) == b"two\n"
    assert line.text == ""


def test_a_bar_is_told_in_its_last_state_and_printed_as_it_came() -> None:
    line = OpenLine()
    assert line.feed(b"\rshards:  25%\rshards:  50%", 80) == b""
    assert line.text == "shards:  50%"
    assert line.feed(b"\rshards: 100%\n", 80) == b"\rshards:  25%\rshards:  50%\rshards: 100%\n"


def test_of_a_bar_wider_than_the_terminal_only_the_last_state_is_printed() -> None:
    assert fit(b"\rshards:  25% ......\rshards: 100% ......\r", 10) == b"shards: 100% ......"
    assert fit("\rWärme ▏ 10 %\rWärme █ 99 %".encode(), 12) == "\rWärme ▏ 10 %\rWärme █ 99 %".encode()


def test_colours_pass_and_what_draws_elsewhere_does_not() -> None:
    assert fit(b"\x1b[32mgreen\x1b[0m \x1b[2A\x1b[1;1H\x1b[?25l\x1b]0;title\x07\x1b7tail\x1b[K", 80) == (
        b"\x1b[32mgreen\x1b[0m tail\x1b[K\x1b[0m"
    )


def test_a_windows_line_end_is_one() -> None:
    assert OpenLine().feed(b"one\r\ntwo\r\n", 80) == b"one\ntwo\n"


def test_the_last_line_is_printed_at_the_end_though_it_never_ended() -> None:
    line = OpenLine()
    line.feed(b"who are you? ", 80)
    assert line.rest(80) == b"who are you? \n"
    assert line.rest(80) == b""


def test_what_is_held_back_has_a_bound() -> None:
    line = OpenLine()
    for _ in range(3000):
        assert line.feed(b"\r" + b"x" * 100, 80) == b""
    assert len(line.rest(200)) < 1 << 17
    assert OpenLine().feed(b"y" * 100_000, 80) == b"y" * 100_000 + b"\n"


@given(st.lists(st.binary(max_size=60), max_size=20), st.integers(1, 200))
def test_any_bytes_in_any_pieces_print_the_same_and_only_whole_lines(pieces: list[bytes], columns: int) -> None:
    whole, cut = OpenLine(), OpenLine()
    printed = b"".join(cut.feed(piece, columns) for piece in pieces)
    assert printed == whole.feed(b"".join(pieces), columns)
    assert not printed or printed.endswith(b"\n")
    assert cut.text == whole.text
