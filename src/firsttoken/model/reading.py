"""What was read out of a log after the fact, beside what the judge folded: the input of explaining.

Times are seconds since the first line.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from firsttoken.model.events import LogLine
from firsttoken.model.plan import Plan
from firsttoken.model.result import PhaseRow
from firsttoken.model.words import Phase


class Told(NamedTuple):
    """A line of the log that means something, with the rank that wrote it where that is known."""

    t: float
    rank: int | None
    line: LogLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """The last state of the weight loader's bar."""

    shards: int | None = None
    done: int | None = None
    percent: float | None = None
    seconds: float | None = None
    """the bar's own clock at its last state"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """`log` is the clean text, line by line, bounded. `places`: the phase that each rank is in. `rank_of`: world ranks of pids.

    `now`: when the report was taken, `idle`: how long nothing new had been said then; None where the files do not tell.
    """

    plan: Plan
    phase: Phase
    places: Mapping[int, Phase] = field(default_factory=dict)
    rows: tuple[PhaseRow, ...] = ()
    told: tuple[Told, ...] = ()
    facts: Mapping[str, str | float] = field(default_factory=dict)
    log: str = ""
    claims_ready: bool = False
    started_wall: float | None = None
    last_t: float | None = None
    fresh_t: float | None = None
    now: float | None = None
    idle: float | None = None
    rank_of: Mapping[int, int] = field(default_factory=dict)
    weights: Bar = field(default_factory=Bar)


_BAR_CLOCK = re.compile(r"\[(?:(\d{1,3}):)?(\d{1,3}):(\d\d)<")


def bar_clock(text: str) -> float | None:
    """Seconds since a progress bar began, by its own clock; None where the line shows none."""
    match = _BAR_CLOCK.search(text)
    if match is None:
        return None
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float((hours * 60 + minutes) * 60 + seconds)
