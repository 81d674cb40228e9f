"""What stands before a message: wrappers' prefixes (compose, journald, Kubernetes, Ray, mpirun), then the engine's own, in any nesting.

Match on the message, take the rank from whatever tag there was: wrappers change the prefix, never the message. The innermost tag
wins, for a parent re-emits its children's lines behind its own tag. Stamps are told as Unix time; one without a zone is read as if it
were UTC and one without a year in the year that was given, so only their differences mean something.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from firsttoken.knowledge.profile import Profile, compiled
from firsttoken.model.process import RankTag

_MAX_PEELS = 12
_SAME_CLOCK = 3.0
_DAY = 86400.0
_HALF_YEAR = 180 * _DAY
_YEAR = re.compile(r"\d{4}-")
_UPTIME = re.compile(r"(\d{1,9})\.(\d\d)\.(\d{3})\.(\d{3})")
"""minutes.seconds.milliseconds.microseconds since the process started: no date to count from, but differences are right"""

_NUMBERS = ("rank", "dp", "pp", "tp", "ep", "pid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peeled:
    message: str
    tag: RankTag | None = None
    stamp: float | None = None
    level: str | None = None
    file: str | None = None


class Peeler:
    """Peels one engine's prefixes. It remembers how far the wrapper's clock is from the engine's, and when a year or a day turned.

    `skew`: seconds that the engine's is ahead of the wrapper's; None while no line has told both.
    """

    def __init__(self, wrappers: Profile, engine: Profile | None, year: int) -> None:
        self._year = year
        self.skew: float | None = None
        self._last: list[float | None] = [None, None]
        self._turns = [0, 0]
        self._retag(wrappers, engine)

    def peel(self, text: str) -> Peeled:
        """Never raises; text without a prefix comes back as it is."""
        groups: dict[str, str] = {}
        outer = inner = None
        for _ in range(_MAX_PEELS):
            found = self._one(text)
            if found is None:
                break
            match, own = found
            text = text[match.end() :]
            told = {name: value for name, value in match.groupdict().items() if value is not None}
            stamp = told.pop("stamp", None)
            if stamp is not None and own:
                inner = stamp
            elif stamp is not None and (outer is None or len(outer) < len(stamp)):
                outer = stamp
            if "name" in told:
                groups = {name: value for name, value in groups.items() if name not in (*_NUMBERS, "name")}
            groups |= told
        return Peeled(message=text, tag=_tag(groups), stamp=self._stamp(outer, inner), level=groups.get("level"), file=groups.get("file"))

    def engine(self, wrappers: Profile, engine: Profile | None) -> None:
        """From now on with the prefixes of another engine; the clocks are kept."""
        self._retag(wrappers, engine)

    def _retag(self, wrappers: Profile, engine: Profile | None) -> None:
        own = engine.prefix if engine is not None else None
        self._own = [compiled(pattern) for pattern in own.patterns] if own else []
        self._wrappers = [compiled(pattern) for pattern in wrappers.prefix.patterns]
        self._formats = (*(own.stamp_formats if own else ()), *wrappers.prefix.stamp_formats)

    def _one(self, text: str) -> tuple[re.Match[str], bool] | None:
        for own, patterns in ((True, self._own), (False, self._wrappers)):
            for pattern in patterns:
                match = pattern.match(text)
                if match is not None and match.end():
                    return match, own
        return None

    def _stamp(self, outer: str | None, inner: str | None) -> float | None:
        wrapped = self._read(outer, 0)
        own = self._read(inner, 1)
        if wrapped is not None and own is not None:
            skew = own - wrapped
            self.skew = 0.0 if abs(skew) <= _SAME_CLOCK else skew
        if own is None and wrapped is not None:
            return wrapped + (self.skew or 0.0)
        return own

    def _read(self, text: str | None, source: int) -> float | None:
        """A stamp, moved on by a year where one without a year has fallen back by half of one."""
        if text is None:
            return None
        stamp = read_stamp(text, self._formats, self._year)
        if stamp is None or _YEAR.match(text):
            return stamp
        stamp = _years_on(stamp, self._turns[source])
        last = self._last[source]
        if last is not None and last - stamp > _HALF_YEAR:
            self._turns[source] += 1
            stamp = _years_on(stamp, 1)
        self._last[source] = stamp
        return stamp


def read_stamp(text: str, formats: Sequence[str], year: int) -> float | None:
    """Unix seconds, or None where no format fits. A clock without a date is taken on the first of January; `uptime` counts from 1970."""
    text = text.replace(",", ".")
    base, _, fraction = text.partition(".")
    for form in formats:
        try:
            if form == "uptime":
                match = _UPTIME.fullmatch(text)
                if match is not None:
                    return int(match[1]) * 60.0 + int(match[2]) + float(f"0.{match[3]}{match[4]}")
                continue
            if form == "iso":
                at = datetime.fromisoformat(text)
                return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
            if "%Y" in form:
                at = datetime.strptime(base, form)
            elif "%d" in form:
                at = datetime.strptime(f"{year} {base}", f"%Y {form}")
            else:
                at = datetime.strptime(f"{year} 1 1 {base}", f"%Y %m %d {form}")
            seconds = at.replace(tzinfo=UTC).timestamp()
            return seconds + float(f"0.{fraction}") if fraction.isdigit() and fraction.isascii() else seconds
        except (ValueError, OverflowError):
            continue
    return None


def _years_on(stamp: float, years: int) -> float:
    if not years:
        return stamp
    at = datetime.fromtimestamp(stamp, UTC)
    try:
        return at.replace(year=at.year + years).timestamp()
    except ValueError:
        return (at + timedelta(days=365 * years)).timestamp()


def _tag(groups: dict[str, str]) -> RankTag | None:
    numbers = {name: int(groups[name]) for name in _NUMBERS if groups.get(name, "").isdecimal() and len(groups[name]) < 10}
    name = groups.get("name")
    if not numbers and name is None:
        return None
    return RankTag(
        name=name,
        rank=numbers.get("rank"),
        dp=numbers.get("dp"),
        pp=numbers.get("pp"),
        tp=numbers.get("tp"),
        ep=numbers.get("ep"),
        pid=numbers.get("pid"),
    )
