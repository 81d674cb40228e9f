"""The lines of a log that a report shows: where it began, what meant something, what is evidence, how it ended; with their times."""

import bisect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from firsttoken.history.masked_log import Part
from firsttoken.observe.log_lines import strip_ansi
from firsttoken.report.content import LogRow
from firsttoken.report.text import visible

_FIRST, _LAST = 12, 80
_MOST_TOLD = 240
"""lines that meant something: the first and the last of them"""
_LONGEST = 400
_LINE = re.compile(rb"[^\r\n]+")
_SEARCHED = 48
"""characters of an evidence that are looked for: what is longer may have been cut"""


def rows_of(
    log: Sequence[Part], told: Mapping[int, bool], evidence: Iterable[str], clock: Callable[[int], float | None]
) -> tuple[tuple[LogRow, ...], dict[str, int]]:
    """`told`: offsets of lines that meant something, and whether each is an error. Also where each text of `evidence` stands, as far as it
    is in the log. Errors and evidence are marked."""
    wanted: dict[int, tuple[int, str]] = {}
    for part in log:
        inside = [at - part.offset for at in told if part.offset <= at < part.offset + len(part.data)]
        for at in (*inside[: _MOST_TOLD // 2], *inside[-_MOST_TOLD // 2 :]):
            _take(part, at, wanted)
    marked = {at for at, error in told.items() if error}
    places = {text: place for text in evidence if (place := _find(log, text, wanted)) is not None}
    if log:
        for start in _first(log[0].data):
            _take(log[0], start, wanted)
        for start in _last(log[-1].data):
            _take(log[-1], start, wanted)
    rows: list[LogRow] = []
    marked |= set(places.values())
    end = 0
    for begin in sorted(wanted):
        length, text = wanted[begin]
        rows.append(LogRow(offset=begin, t=clock(begin), text=text, marked=begin in marked, after_gap=bool(rows) and begin > end + 2))
        end = begin + length
    return tuple(rows), places


def clock_of(index: Path) -> Callable[[int], float | None]:
    """Seconds since launch at which a byte was read, from the recorder's index: the last time told at or before it."""
    offsets: list[int] = []
    times: list[float] = []
    try:
        lines = index.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        match = re.match(r"(\d{1,18}) (-?\d{1,12}(?:\.\d{1,9})?) ", line)
        if match and (not offsets or int(match[1]) >= offsets[-1]):
            offsets.append(int(match[1]))
            times.append(float(match[2]))

    def at(offset: int) -> float | None:
        number = bisect.bisect_right(offsets, offset)
        return times[number - 1] if number else None

    return at


def _take(part: Part, at: int, wanted: dict[int, tuple[int, str]]) -> None:
    """The whole line around a byte of `part`."""
    begin = max(part.data.rfind(b"\n", 0, at), part.data.rfind(b"\r", 0, at)) + 1
    match = _LINE.match(part.data, begin)
    if match is None:
        return
    shown = visible(strip_ansi(match[0][: 4 * _LONGEST]).decode("utf8", "replace").rstrip().expandtabs(4))
    if shown:
        wanted[part.offset + begin] = (len(match[0]), shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…")


def _find(log: Sequence[Part], text: str, wanted: dict[int, tuple[int, str]]) -> int | None:
    """Among the lines that are shown already, else anywhere; that line is then shown too."""
    sought = text[:_SEARCHED].rstrip("…")
    if len(sought) < 8:
        return None
    for at, (_, shown) in wanted.items():
        if sought in shown:
            return at
    raw = sought.encode("utf8", "replace")
    for part in log:
        at = part.data.find(raw)
        if at >= 0:
            before = set(wanted)
            _take(part, at, wanted)
            return next((offset for offset in wanted if offset not in before), None)
    return None


def _first(data: bytes) -> list[int]:
    return [match.start() for match, _ in zip(_LINE.finditer(data), range(_FIRST), strict=False)]


def _last(data: bytes) -> list[int]:
    begin = max(len(data) - 64 * 1024, 0)
    return [match.start() for match in list(_LINE.finditer(data, begin))[-_LAST:]]
