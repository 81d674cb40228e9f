"""Bytes into lines: both `\\n` and `\\r` end a line, so that every state of a redrawn bar is one. The same bytes give the same lines,
however they were cut into chunks. A line's content is capped; its length in the log is not.
"""

import re

MAX_LINE = 8192
"""Bytes of a line that are looked at. Argument dumps reach 6 KiB; what is longer is data, not a message."""

_ANSI = re.compile(
    rb"\x1b(?:"
    rb"\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    rb"|\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles, links
    rb"|[@-Z\\^_]"  # two-byte sequences
    rb"|[ -/]+[0-~]"  # charset selections
    rb")?"
)

Line = tuple[int, int, bytes]
"""offset of the first byte, length without the line break, content (at most MAX_LINE bytes)"""


class LineSplitter:
    """Keeps the unfinished last line, capped, so that its memory is bounded whatever comes."""

    def __init__(self) -> None:
        self._tail = b""
        self._tail_length = 0
        self.end = 0
        """offset after the last byte seen"""

    def feed(self, data: bytes, offset: int) -> list[Line]:
        """The non-empty lines that `data` finishes. Bytes that do not follow the last ones drop the unfinished line: it has a hole."""
        if offset != self.end:
            self._tail, self._tail_length = b"", 0
        self.end = offset + len(data)
        pieces = data.replace(b"\r", b"\n").split(b"\n")
        last = pieces.pop()
        lines: list[Line] = []
        position = offset
        if pieces:
            length = self._tail_length + len(pieces[0])
            if length:
                content = self._tail + pieces[0][: MAX_LINE - len(self._tail)]
                lines.append((offset - self._tail_length, length, content))
            position += len(pieces[0]) + 1
            self._tail, self._tail_length = b"", 0
            for index in range(1, len(pieces)):
                piece = pieces[index]
                length = len(piece)
                if length:
                    lines.append((position, length, piece if length <= MAX_LINE else piece[:MAX_LINE]))
                position += length + 1
        if len(self._tail) < MAX_LINE:
            self._tail += last[: MAX_LINE - len(self._tail)]
        self._tail_length += len(last)
        return lines

    def flush(self) -> list[Line]:
        """The unfinished line, at the end of a file; afterwards there is none."""
        if not self._tail_length:
            return []
        line = (self.end - self._tail_length, self._tail_length, self._tail)
        self._tail, self._tail_length = b"", 0
        return [line]


def unglue(line: Line) -> list[Line]:
    """A bar has no line break behind it, so another process's line may follow at once: `… 15.61it/s][2026-11-29 20:41:22 TP1] …`."""
    offset, length, content = line
    parts: list[Line] = []
    start = 0
    for match in _BAR_END.finditer(content):
        parts.append((offset + start, match.end() - start, content[start : match.end()]))
        start = match.end()
    parts.append((offset + start, length - start, content[start:]))
    return parts


def strip_ansi(content: bytes) -> bytes:
    """Without terminal control sequences and the control characters that remain; tabs stay."""
    if b"\x1b" in content:
        content = _ANSI.sub(b"", content)
    return content.translate(None, _CONTROLS)


BAR_ENDS = (b"/s]", b"/it]")
"""Cheap to look for; only what holds one of them can be glued."""
_BAR_END = re.compile(rb"[\d?] ?\w{0,12}/(?:s|it)\](?=(?:\x1b\[[0-9;]*m)*[\[(A-Z])")
_CONTROLS = bytes(code for code in (*range(32), 127) if code != 9)
