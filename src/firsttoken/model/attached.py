"""What somebody attached to a bug report, read into values: a command, a log, process lists, stack dumps, GPU tables, answers of curl.

Nothing here is live. A part that was not attached is None or empty, and that difference matters: an empty process list says nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from firsttoken.model.collectives import Comparison
from firsttoken.model.stillness import ThreadStack, Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLine:
    """One line of `ps`. `elapsed` in seconds; `cpu` and `memory` in per cent, over the life of the process; None: no such column."""

    pid: int
    parent: int | None = None
    state: str = "?"
    cpu: float | None = None
    memory: float | None = None
    elapsed: float | None = None
    wchan: str | None = None
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLine:
    """One GPU as `nvidia-smi --query-gpu` or NVML showed it. Memory in MiB, utilisation in per cent, power in watts, link as generation and
    lanes; None: not asked or not available. `throttled`: reasons in force that slow it down, empty where none is.
    """

    index: int | None = None
    name: str | None = None
    compute_capability: str | None = None
    memory_used: float | None = None
    memory_total: float | None = None
    utilisation: float | None = None
    power: float | None = None
    power_limit: float | None = None
    throttled: tuple[str, ...] | None = None
    link_generation: int | None = None
    link_generation_most: int | None = None
    link_width: int | None = None
    link_width_most: int | None = None
    temperature: float | None = None
    xids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StackDump:
    """One process's threads as a tool printed them, the main thread first. `taken`: which of several dumps of the process, from 0."""

    pid: int
    title: str = ""
    threads: tuple[ThreadStack, ...] = ()
    active: frozenset[int] = frozenset()
    """tids that the tool called active (on a CPU)"""
    taken: int = 0


class Asked(StrEnum):
    """What a probe was for."""

    HEALTH = "health"
    READ = "read"
    """models, metrics, server info: answered without the engine"""
    GENERATE = "generate"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeLine:
    """One request and what came of it. `status` None: no answer; then `refused` (nobody listens) or `timed_out` may be set.

    `seconds`: how long the answer took, or how long was waited in vain. `tokens`: how many came, where that is told.
    `sane` False: they were one repeated token, or of no finite probability; None: not looked at.
    """

    asked: Asked
    url: str
    method: str = "GET"
    status: int | None = None
    refused: bool = False
    timed_out: bool = False
    seconds: float | None = None
    tokens: int | None = None
    sane: bool | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """`since_start`: seconds from the start at which the report was taken; `since_last_line`: from the last line of the log; `at`: the
    date and time that it gives, in Unix seconds as if in UTC (as a log's stamps are read)."""

    lines: tuple[ProbeLine, ...] = ()
    since_start: float | None = None
    since_last_line: float | None = None
    at: float | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dead:
    """A process of the run that a signal ended which was not ours; `rank` None: none, or not known."""

    rank: int | None = None
    pid: int
    signal: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """`argv` is split as a shell would; `env` are assignments before it. `log` None: no log. `unread`: files that could not be read.

    Only the record of a run tells `waits` (None: not looked at), `dead` and `oom`; `recorded`: this is one.
    """

    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    log: bytes | None = None
    processes: tuple[ProcessLine, ...] | None = None
    stacks: tuple[StackDump, ...] = ()
    gpus: tuple[GpuLine, ...] | None = None
    probes: Probes | None = None
    flight_recorder: Comparison | None = None
    waits: tuple[Wait, ...] | None = None
    dead: tuple[Dead, ...] = ()
    oom: bool = False
    recorded: bool = False
    unread: tuple[str, ...] = ()
