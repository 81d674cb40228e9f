"""What a server logged before we came: where in its log this start begins, and when each of those lines was written.

A log file may hold earlier starts (`>> server.log`), whose errors are none of this one's. Stamps without a zone are in the server's own;
lines without a stamp take the time of the line before.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import Protocol
from zoneinfo import ZoneInfo

from firsttoken.model.events import LogLine

MOST_BYTES = 64 << 20
_EARLIER = 2.0
"""Seconds. Stamps are cut to whole seconds, and the process began a moment before its first line."""
_DAY = 86400.0
_RELATIVE = 3650 * _DAY
"""a smaller stamp counts from the process's own start"""
_CLOCK = re.compile(rb"\d\d:\d\d:\d\d")
_ZONED = re.compile(rb"\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)")
_FRONT = 120
"""bytes of a line that can hold its stamps"""
_LINES = 20_000


class Reader(Protocol):
    """Reads a log from its first byte: a new one for each reading."""

    def feed(self, data: bytes, offset: int, wall: float) -> Sequence[LogLine]: ...


@dataclass(slots=True, kw_only=True)
class PastClock:
    """`began`: Unix time of the process's start. `shift`: what to take off a stamp to get Unix time; `other`: what else it may be, where
    that could not be found out before. Asked in the log's order."""

    began: float
    shift: float = 0.0
    other: float | None = None
    _last: float = field(default=0.0)

    def t(self, stamp: float | None, now: float) -> float:
        """Seconds since the process's start, at most `now`; of a line without a usable stamp, those of the line before."""
        for shift in (self.shift, self.other):
            told = self.since(stamp, shift) if shift is not None else None
            if told is not None and -_EARLIER <= told <= now + _EARLIER:
                self._last = min(max(told, 0.0), now)
                break
        return min(self._last, now)

    def since(self, stamp: float | None, shift: float | None = None) -> float | None:
        """What a stamp tells, be it possible or not."""
        if stamp is None:
            return None
        if stamp < _RELATIVE:
            return stamp
        told = stamp - (self.shift if shift is None else shift) - self.began
        midnight = datetime(datetime.fromtimestamp(stamp, UTC).year, 1, 1, tzinfo=UTC).timestamp()
        undated = stamp - midnight < _DAY and abs(told) > _DAY
        return told % _DAY if undated else told


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """`start`: the byte at which this start's lines begin. `stamped`: some line of it tells its time."""

    start: int
    clock: PastClock
    stamped: bool


def survey(
    data: bytes, reader: Callable[[], Reader], stamp_of: Callable[[str], float | None], *, began: float, zone: tzinfo | None
) -> Past:
    """Of a log's bytes, from a line's begin. `reader` makes a fresh reader, `stamp_of` reads the stamp of one line."""
    clock = PastClock(began=began, shift=offset(began, zone))
    lines = [line for line in reader().feed(data, 0, 0.0) if line.stamp is not None]
    if lines and _zoned(data[lines[-1].offset : lines[-1].offset + _FRONT]):
        clock.shift = 0.0
    stale = [line for line in lines if (clock.since(line.stamp) or 0.0) < -_EARLIER]
    if not stale:
        return Past(start=0, clock=clock, stamped=bool(lines))
    after = stale[-1].offset + stale[-1].length
    ours = [line for line in lines if line.offset > stale[-1].offset]
    until = ours[0].offset if ours else len(data)
    return Past(start=_first_of_ours(data, after, until, clock, stamp_of), clock=clock, stamped=bool(ours))


def offset(at: float, zone: tzinfo | None) -> float:
    """Seconds by which a zone (None: ours) is ahead of UTC at a Unix time."""
    ahead = datetime.fromtimestamp(at, zone).astimezone(zone).utcoffset()
    return ahead.total_seconds() if ahead is not None else 0.0


def zone_of(env: dict[str, str], root: str) -> tzinfo | None:
    """The server's time zone: its TZ, else that of the system it sees under `root`. None: ours."""
    name = env.get("TZ", "").lstrip(":")
    try:
        if name:
            return ZoneInfo(name)
        with open(os.path.join(root, "etc/localtime"), "rb") as file:
            return ZoneInfo.from_file(file)
    except (OSError, ValueError, KeyError):
        return None


def _zoned(front: bytes) -> bool:
    """A stamp with its zone, and no other one behind it that could have been read in its place."""
    return len(_CLOCK.findall(front)) == 1 and _ZONED.search(front) is not None


def _first_of_ours(data: bytes, after: int, until: int, clock: PastClock, stamp_of: Callable[[str], float | None]) -> int:
    """Between the last line of an earlier start and the first that is surely ours: the first line with a time of ours, else `until`."""
    at = after
    for _ in range(_LINES):
        begin = data.find(b"\n", at, until) + 1
        if begin == 0:
            return until
        front = data[begin : begin + _FRONT].split(b"\n", 1)[0].decode("utf8", "replace")
        told = clock.since(stamp_of(front))
        if told is not None and told >= -_EARLIER:
            return begin
        at = begin
    return until
