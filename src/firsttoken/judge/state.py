"""Everything that the judge knows, folded from the events so far. Frozen: `advance` makes a new one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from firsttoken.judge.closeup import Closeup
from firsttoken.judge.gpu import GpuWatch
from firsttoken.judge.hang import Proof
from firsttoken.judge.motion import Motion
from firsttoken.judge.phases import PhaseBook
from firsttoken.judge.serving import Serving
from firsttoken.judge.standstill import Standstill
from firsttoken.judge.witness import Heard
from firsttoken.model.checks import Check
from firsttoken.model.events import Exited, LaunchFailed, LogLine, Memory, WeightProgress
from firsttoken.model.load import LoadCounts
from firsttoken.model.plan import Plan, Policy
from firsttoken.model.process import ListenSocket, Member, ProcessKey
from firsttoken.model.words import Phase, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A verdict at an event. `proof`: the facts it rests on. `ranks_behind` in the sense of the result document."""

    verdict: Verdict
    phase: Phase
    reason: str
    detail: str | None = None
    proof: tuple[str, ...] = ()
    behind: tuple[int, ...] = ()
    hang: Proof | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankDeath:
    """A rank's process that a signal ended, not one of ours. `t`: when it was seen."""

    rank: int | None
    pid: int
    signal: int
    t: float


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Times are seconds since launch. `facts`: values told by log lines (version, url…), the latest of each name."""

    plan: Plan = field(default_factory=Plan)
    policy: Policy = field(default_factory=Policy)
    run: str = ""
    attempt: int = 1
    node: str = ""
    now: float = 0.0
    launched_wall: float | None = None
    root: ProcessKey | None = None
    adopted: bool = False
    launch_failed: LaunchFailed | None = None
    members: Mapping[int, Member] = field(default_factory=dict)
    told_ranks: Mapping[int, int] = field(default_factory=dict)
    book: PhaseBook = field(default_factory=PhaseBook)
    motion: Motion = field(default_factory=Motion)
    quiet: Mapping[Phase, float] = field(default_factory=dict)
    """the longest stillness of each phase, while nothing ran, was stopped or waited for something outside"""
    closeup: Closeup = field(default_factory=Closeup)
    serving: Serving = field(default_factory=Serving)
    standstill: Standstill = field(default_factory=Standstill)
    sockets: tuple[ListenSocket, ...] = ()
    listening_since: float | None = None
    claims_since: float | None = None
    weights: WeightProgress | None = None
    weights_at: tuple[tuple[float, int], ...] = ()
    weights_told: float | None = None
    load: LoadCounts = field(default_factory=LoadCounts)
    bar: LogLine | None = None
    memory: Memory | None = None
    gpus: GpuWatch = field(default_factory=GpuWatch)
    heard: Heard = field(default_factory=dict)
    facts: Mapping[str, str | float] = field(default_factory=dict)
    installed: Mapping[str, str] = field(default_factory=dict)
    errors: tuple[LogLine, ...] = ()
    last_line: str = ""
    last_line_at: float | None = None
    exits: tuple[Exited, ...] = ()
    rank_deaths: tuple[RankDeath, ...] = ()
    root_exit: Exited | None = None
    root_exit_at: float | None = None
    emptied: bool = False
    oom: tuple[str, ...] = ()
    stop_by: str | None = None
    before_stop: Decision | None = None
    signals_sent: tuple[int, ...] = ()
    missed: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    ready_at: float | None = None
    stirred_at: float | None = None
    """since when something moves in a server that was found waiting"""
    decision: Decision = field(default_factory=lambda: Decision(verdict=Verdict.STARTING, phase=Phase.PROCESS_START, reason="launching"))


def whole(told: str | float | None, otherwise: int | None) -> int | None:
    """A number that a line told, as a whole one; `otherwise` where it told none, or none that is finite."""
    return int(told) if isinstance(told, int | float) and isfinite(told) else otherwise
