"""The keeper's memory of what just happened: the last 8 MiB of output and the last 20,000 events, for clients with a cursor each.

A ring drops its oldest part and never waits for a reader: a slow client finds its cursor before `start` and is told where to go on.
"""

import mmap
from bisect import bisect_right
from collections import deque

LOG_BYTES = 8 << 20
EVENT_COUNT = 20_000
EVENT_BYTES = 8 << 20
_MARKS = 8192


class LogRing:
    """Output bytes by their offset since launch. Lies in an anonymous mapping: pages cost memory only once they were written."""

    def __init__(self, capacity: int = LOG_BYTES) -> None:
        self._capacity = capacity
        self._memory = mmap.mmap(-1, capacity)
        self._mark_offsets: list[int] = []
        self._mark_times: list[float] = []
        self.end = 0

    @property
    def start(self) -> int:
        """Offset of the oldest byte that is still here."""
        return max(0, self.end - self._capacity)

    def add(self, t: float, data: bytes) -> None:
        self._mark(t)
        kept = data[-self._capacity :]
        at = (self.end + len(data) - len(kept)) % self._capacity
        first = min(len(kept), self._capacity - at)
        self._memory[at : at + first] = kept[:first]
        if first < len(kept):
            self._memory[: len(kept) - first] = kept[first:]
        self.end += len(data)

    def read(self, offset: int, most: int) -> tuple[float, bytes]:
        """At most `most` bytes from `offset` (start ≤ offset ≤ end) and their time: bytes read at different times come apart."""
        index = bisect_right(self._mark_offsets, offset) - 1
        t = self._mark_times[index] if index >= 0 else 0.0
        until = self._mark_offsets[index + 1] if index + 1 < len(self._mark_offsets) else self.end
        length = min(most, until - offset, self.end - offset)
        at = offset % self._capacity
        first = min(length, self._capacity - at)
        data = self._memory[at : at + first]
        if first < length:
            data += self._memory[: length - first]
        return t, data

    def _mark(self, t: float) -> None:
        """Bytes read within 20 ms share a time."""
        if self._mark_times and t - self._mark_times[-1] < 0.02:
            return
        self._mark_offsets.append(self.end)
        self._mark_times.append(t)
        if len(self._mark_offsets) > _MARKS:
            del self._mark_offsets[: _MARKS // 2]
            del self._mark_times[: _MARKS // 2]


class EventRing:
    """Encoded events by `seq`, each with the end of the log when it was recorded: a client gets the bytes before it first."""

    def __init__(self, count: int = EVENT_COUNT, most_bytes: int = EVENT_BYTES) -> None:
        self._count = count
        self._most_bytes = most_bytes
        self._bytes = 0
        self._items: deque[tuple[bytes, int]] = deque()
        self.next = 1

    @property
    def start(self) -> int:
        """`seq` of the oldest event that is still here."""
        return self.next - len(self._items)

    def add(self, encoded: bytes, log_end: int) -> None:
        self._items.append((encoded, log_end))
        self._bytes += len(encoded)
        self.next += 1
        while len(self._items) > self._count or (self._bytes > self._most_bytes and len(self._items) > 1):
            self._bytes -= len(self._items.popleft()[0])

    def read(self, seq: int, log_cursor: int | None, most_bytes: int) -> list[bytes]:
        """Events from `seq` (start ≤ seq ≤ next) on, as far as the log before them was handed out (`log_cursor` None: all)."""
        found: list[bytes] = []
        size = 0
        for index in range(seq - self.start, len(self._items)):
            encoded, log_end = self._items[index]
            if (log_cursor is not None and log_cursor < log_end) or size > most_bytes:
                break
            found.append(encoded)
            size += len(encoded)
        return found
