"""The answer: what `run`, `wait`, `status`, `replay` and the rest say, field by field as in the JSON document `firsttoken/1`.

A value that is not known is None or its list is empty; nothing is ever left out. `elapsed_s` and `began_s` count from launch, the other
`*_s` and `seconds` are durations.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from firsttoken.model.process import ProcessKey
from firsttoken.model.words import Phase, Role, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRef:
    name: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRow:
    """`quiet_s`: for how long nothing ran and no strong signal came in it, at most; None where there was no such time."""

    name: Phase
    began_s: float
    seconds: float | None
    ranks_done: int
    quiet_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRow:
    process: Mapping[str, Any]
    title: str
    rank: int | None
    dp: int | None = None
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroup:
    ranks: tuple[int, ...]
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksRow:
    behind: tuple[int, ...] = ()
    groups: tuple[RankGroup, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsRow:
    """`seconds` and `bytes_per_s` once loading ended; `source`: page_cache, storage, network where it can be told; `path`: of
    their folder or file; `prefetched`:
    bytes that a prefetch beside the start put into memory; `says`: what the load's rate means, and why it was not higher."""

    shards_done: int | None = None
    shards: int | None = None
    bytes: int | None = None
    bytes_done: int | None = None
    seconds: float | None = None
    bytes_per_s: float | None = None
    source: str | None = None
    path: str | None = None
    prefetched: int = 0
    says: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerRow:
    name: str
    seconds: float
    fires_in_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRow:
    url: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    kind: str
    status: int | None
    first_token_s: float | None
    text: str | None
    sane: bool | None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitRow:
    code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    run: str | None = None
    attempt: int = 1
    folder: str | None = None
    started_at: str | None = None
    engine: EngineRef = field(default_factory=EngineRef)
    versions: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    role: Role = Role.SERVES
    world_size: int | None = None
    verdict: Verdict = Verdict.UNKNOWN
    reason: str = ""
    proof: tuple[str, ...] = ()
    claims_ready: bool = False
    phase: Phase | None = None
    detail: str | None = None
    elapsed_s: float | None = None
    still_s: float | None = None
    eta_s: float | None = None
    phases: tuple[PhaseRow, ...] = ()
    ranks: RanksRow = field(default_factory=RanksRow)
    members: tuple[MemberRow, ...] = ()
    root_blocker: Mapping[str, Any] | None = None
    waits: tuple[Mapping[str, Any], ...] = ()
    cycle: tuple[Mapping[str, Any], ...] = ()
    weights: WeightsRow = field(default_factory=WeightsRow)
    memory: Mapping[str, int | None] | None = None
    timers: tuple[TimerRow, ...] = ()
    endpoint: EndpointRow = field(default_factory=EndpointRow)
    requests: tuple[RequestRow, ...] = ()
    gpus: tuple[Mapping[str, Any], ...] = ()
    exit: ExitRow = field(default_factory=ExitRow)
    next: tuple[str, ...] = ()
    findings: tuple[Mapping[str, Any], ...] = ()
    checks: tuple[Mapping[str, Any], ...] = ()
    not_checked: tuple[str, ...] = ()


def process_row(key: ProcessKey) -> dict[str, Any]:
    return {"node": key.node, "pid": key.pid, "start": key.start}
