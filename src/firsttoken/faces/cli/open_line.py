"""The server's output, cut into what can be printed above lines that are redrawn: whole lines, and nothing in them that moves the cursor.

A line that has not ended (a bar, a prompt) is held back and told as `text`. Colours pass; what would draw elsewhere on the screen does not.
The run's log has every byte as it came.
"""

import re

_MOST_HELD = 1 << 16
_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])")
_STAYS = b"mK"
"""colours, and clearing within the line"""


class OpenLine:
    def __init__(self) -> None:
        self._held = b""

    @property
    def text(self) -> str:
        """What a terminal would show of the line that has not ended."""
        shown = _last_drawn(_SEQUENCE.sub(b"", self._held))
        return shown.decode("utf8", "replace").strip()

    def feed(self, data: bytes, columns: int) -> bytes:
        """The lines that `data` ends, fit for a terminal of so many columns."""
        *lines, self._held = (self._held + data).split(b"\n")
        if len(self._held) > _MOST_HELD:
            self._held = self._held[self._held.rstrip(b"\r").rfind(b"\r") + 1 :]
        if len(self._held) > _MOST_HELD:
            lines.append(self._held)
            self._held = b""
        return b"".join(fit(line, columns) + b"\n" for line in lines)

    def rest(self, columns: int) -> bytes:
        """At the end: the last line, ended."""
        rest, self._held = self._held, b""
        return fit(rest, columns) + b"\n" if rest.strip() else b""


def fit(line: bytes, columns: int) -> bytes:
    """One line without its newline. Of a bar that is wider than the terminal only its last state, since the others would pile up."""
    if b"\x1b" in line:
        line = _SEQUENCE.sub(lambda found: found[0] if found[1] and found[1] in _STAYS else b"", line) + b"\x1b[0m"
    line = line.replace(b"\x0b", b"").replace(b"\x0c", b"").rstrip(b"\r")
    states = line.split(b"\r")
    if len(states) > 1 and any(_width(state) > columns for state in states):
        return _last_drawn(line)
    return line


def _last_drawn(line: bytes) -> bytes:
    return next((state for state in reversed(line.split(b"\r")) if _SEQUENCE.sub(b"", state).strip()), b"")


def _width(state: bytes) -> int:
    return len(_SEQUENCE.sub(b"", state).decode("utf8", "replace"))
