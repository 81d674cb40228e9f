"""Lines at the foot of a terminal that are drawn anew in place, while whatever is printed scrolls above them.

Nothing is switched on that would have to be switched off: no alternate screen, no hidden cursor, no raw mode. So whatever ends us, even
SIGKILL, leaves a terminal as it was, and the cursor always rests at the start of the line below the last.
"""

from collections.abc import Callable, Sequence


class Region:
    """`write` takes bytes for the terminal. A line is its text with colours, and its width in cells, less than the terminal's."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._drawn: tuple[int, ...] = ()

    def paint(self, lines: Sequence[tuple[str, int]], columns: int) -> None:
        """In place of what was painted last."""
        text = "".join(f"{line}\x1b[K\r\n" for line, _ in lines)
        self._write(f"{self._to_the_top(columns)}{text}\x1b[J".encode("utf8", "replace"))
        self._drawn = tuple(width for _, width in lines)

    def above(self, data: bytes, columns: int) -> None:
        """Prints whole lines where the region was; it is gone until it is painted again."""
        if data:
            self.clear(columns)
            self._write(data)

    def clear(self, columns: int) -> None:
        if self._drawn:
            self._write(f"{self._to_the_top(columns)}\x1b[J".encode())
            self._drawn = ()

    def forget(self) -> None:
        """Something else has written to the terminal meanwhile (a shell, after Ctrl-Z): what was painted stays as it is."""
        self._drawn = ()

    def _to_the_top(self, columns: int) -> str:
        """A terminal that was made narrower has wrapped what stands on it."""
        rows = sum(max(1, -(-width // max(columns, 1))) for width in self._drawn)
        return f"\r\x1b[{rows}A" if rows else "\r"
