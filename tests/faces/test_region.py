"""Lines redrawn in place, and lines that scroll above them, on a screen."""

from fake_screen import Screen

from firsttoken.faces.cli.region import Region


def drawn() -> tuple[Screen, Region]:
    screen = Screen()
    return screen, Region(lambda data: screen.feed(data.decode()))


def of(*lines: str) -> list[tuple[str, int]]:
    return [(line, len(line)) for line in lines]


def test_what_is_painted_replaces_what_was_painted() -> None:
    screen, region = drawn()
    region.paint(of("a long line", "two", "three"), 80)
    region.paint(of("short", "2"), 80)
    assert screen.shown() == ["short", "2"]


def test_what_is_printed_stands_above_in_its_order() -> None:
    screen, region = drawn()
    for number in range(5):
        region.above(f"log {number}\n".encode(), 80)
        region.paint(of(f"state {number}", "foot"), 80)
    assert screen.shown() == [*(f"log {number}" for number in range(5)), "state 4", "foot"]
    region.clear(80)
    assert screen.shown() == [f"log {number}" for number in range(5)]
    assert screen.column == 0


def test_the_rows_that_a_narrower_terminal_has_wrapped_are_counted() -> None:
    written: list[bytes] = []
    region = Region(written.append)
    region.paint(of("x" * 79, "y" * 10), 80)
    region.paint(of("z"), 40)
    assert written[-1].startswith(b"\r\x1b[3A")


def test_after_a_stop_nothing_that_others_wrote_is_painted_over() -> None:
    screen, region = drawn()
    region.paint(of("before"), 80)
    screen.feed("$ fg\n")
    region.forget()
    region.paint(of("after"), 80)
    assert screen.shown() == ["before", "$ fg", "after"]


def test_no_mode_of_the_terminal_is_switched() -> None:
    screen, region = drawn()
    region.paint(of("one"), 80)
    region.above(b"two\n", 80)
    region.clear(80)
    assert screen.modes == []
