"""When a line of a recorded log was written, for lines that carry no time of their own: bars, tracebacks, lines of C libraries.

The time of the nearest line before it that has one is meant; lines before the first stamp are taken to be as old as it.
"""

from firsttoken.knowledge.load import generic
from firsttoken.knowledge.profile import Profile
from firsttoken.observe.log_lines import strip_ansi
from firsttoken.observe.log_prefixes import Peeler

_LOOK_BACK = 256
"""lines without a stamp that are passed over"""
_MAX_LINE = 512
"""bytes of a line that can hold its prefixes"""


class LogClock:
    """Ask in the order of offsets: stamps without a year are read in that order."""

    def __init__(self, data: bytes, profile: Profile | None, year: int) -> None:
        self._data = data
        self._peeler = Peeler(generic(), profile, year)
        self.learned = self._learn()
        """offset of the first line that tells both the wrapper's clock and the engine's: those before it are on the wrapper's alone"""

    def first(self) -> float | None:
        """Unix seconds of the first line that has a time."""
        start = 0
        for _ in range(4 * _LOOK_BACK):
            end = self._data.find(b"\n", start)
            stamp = self._stamp(start, end if end >= 0 else len(self._data))
            if stamp is not None or end < 0:
                return stamp
            start = end + 1
        return None

    def at(self, offset: int) -> float | None:
        """Unix seconds of the line that holds byte `offset`, or of the nearest one before it that tells."""
        end = offset
        start = self._begin(offset)
        for _ in range(_LOOK_BACK):
            stamp = self._stamp(start, max(end, start + _MAX_LINE))
            if stamp is not None:
                return stamp
            if start == 0:
                return None
            end = start - 1
            start = self._begin(end)
        return None

    def last(self) -> float | None:
        """Unix seconds of the last line that has a time."""
        return self.at(max(len(self._data) - 1, 0))

    def _learn(self) -> int:
        start = 0
        for _ in range(4 * _LOOK_BACK):
            end = self._data.find(b"\n", start)
            self._stamp(start, end if end >= 0 else len(self._data))
            if self._peeler.skew is not None:
                return start
            if end < 0:
                break
            start = end + 1
        return 0

    def _begin(self, offset: int) -> int:
        return max(self._data.rfind(b"\n", 0, offset), self._data.rfind(b"\r", 0, offset)) + 1

    def _stamp(self, start: int, end: int) -> float | None:
        content = self._data[start : min(end, start + _MAX_LINE)]
        line = content.split(b"\n", 1)[0].split(b"\r", 1)[0]
        return self._peeler.peel(strip_ansi(line).decode("utf8", "replace")).stamp if line else None
