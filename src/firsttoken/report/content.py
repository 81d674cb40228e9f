"""What a report shows, whatever its form: plain values, masked before a form sees them.

Forms only place them: text and Markdown as lines, HTML as a page. Times are seconds since launch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from firsttoken.model.result import Result
from firsttoken.report.picture import Picture


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """One phase of some ranks. `end` None: not left."""

    phase: str
    begin: float
    end: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Ranks whose phases went alike."""

    ranks: tuple[int, ...]
    stretches: tuple[Stretch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A verdict that began at `t`."""

    t: float
    verdict: str
    phase: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A quantity over time, all processes together. `points` are (t, value), thinned out. `note`: how it was had."""

    name: str
    unit: str
    points: tuple[tuple[float, float], ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRow:
    """A line of the log at byte `offset`. `marked`: an error, or evidence for or against a cause. `after_gap`: lines between the row
    before and this one are not shown."""

    offset: int
    t: float | None
    text: str
    marked: bool = False
    after_gap: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`evidence`: offset of the log row in which a finding's evidence stands, by its text. `tried`: what was done about this start, in
    sentences. `machine`, `environment`: as recorded at the launch. `until`: where the time axis ends."""

    result: Result
    version: str
    made_at: str
    until: float
    lanes: tuple[Lane, ...] = ()
    turns: tuple[Turn, ...] = ()
    curves: tuple[Curve, ...] = ()
    picture: Picture | None = None
    pictured_at: float | None = None
    log: tuple[LogRow, ...] = ()
    log_bytes: int = 0
    evidence: Mapping[str, int] = field(default_factory=dict)
    tried: tuple[str, ...] = ()
    machine: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    not_recorded: tuple[str, ...] = ()
