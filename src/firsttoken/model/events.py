"""Everything that is observed, as a list of events: the one input of judge, replay, report and tests.

An `Event` is an envelope (`seq` orders, `t` and `wall` are data) around a body. The JSON form is flat, one object a line:
`{"seq":1,"t":0.0,"wall":…,"node":"…","kind":"launched",…}`. Kinds that this version does not know become `UnknownEvent`.
`t` is seconds on the recorder's monotonic clock since the run's launch (negative before it); `wall` is Unix time in seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from firsttoken.model.checks import Check
from firsttoken.model.collectives import Comparison
from firsttoken.model.gpu import GpuSample
from firsttoken.model.plan import Plan, Policy
from firsttoken.model.process import ListenSocket, Member, ProcessKey, RankTag, Sample, ShardFile
from firsttoken.model.stillness import ThreadPlace, ThreadStack, Wait
from firsttoken.model.words import Edge, Phase, ProbeKind, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What will be run and by which thresholds it is judged; a later one (engine recognised only then) replaces it."""

    kind: ClassVar[str] = "plan"
    plan: Plan
    policy: Policy
    firsttoken: str = ""
    """version of the program that decided"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """`adopted`: somebody else started it, and firsttoken attached later; `t` is then when the process began, before the event was made.
    A pid of 0: a server of which no process can be seen, only its address; `t` is then when firsttoken attached.
    """

    kind: ClassVar[str] = "launched"
    process: ProcessKey
    argv: tuple[str, ...]
    pty: bool = True
    cgroup: str | None = None
    run: str = ""
    attempt: int = 1
    adopted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFailed:
    """The command could not be started at all. `code` 127 not found, 126 not executable."""

    kind: ClassVar[str] = "launch_failed"
    error: str
    code: int = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSeen:
    """A process of the run, when it is first seen and again whenever its title changes."""

    kind: ClassVar[str] = "member"
    member: Member


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberGone:
    """A process is no longer there. Only the keeper's own `Exited` knows how it ended."""

    kind: ClassVar[str] = "member_gone"
    process: ProcessKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited:
    """A process that the keeper reaped. Exactly one of `code` and `signal` is set. `root`: the launched command itself."""

    kind: ClassVar[str] = "exited"
    process: ProcessKey
    code: int | None = None
    signal: int | None = None
    root: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Emptied:
    """No process of the run is left; the last event of a run but for the keeper's farewell."""

    kind: ClassVar[str] = "emptied"


@dataclass(frozen=True, slots=True, kw_only=True)
class OomKill:
    """The kernel's OOM killer took a process of the run. `source`: cgroup or kmsg."""

    kind: ClassVar[str] = "oom_kill"
    source: str
    pid: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A log line that matched a pattern of the profile. `offset` and `length` are bytes of the raw log; `text` is clean and capped.

    `stamp`: Unix time in the line, if it has one. `milestone` with `phase` and `edge`, or `error` with its id, or both None
    for lines that carry facts only (`values`: seconds, shards, shards_done, percent, bytes, version, port, url…).
    `scope` of a milestone: rank (each rank logs it), one (one rank for all) or main. `fatal`: after this error the start cannot succeed.
    `read_at`: seconds since launch at which the server's bytes came, where this event was made much later (an observer that came late).
    """

    kind: ClassVar[str] = "log_line"
    offset: int
    length: int
    text: str
    stamp: float | None = None
    tag: RankTag | None = None
    milestone: str | None = None
    phase: Phase | None = None
    edge: Edge | None = None
    error: str | None = None
    scope: str = "one"
    fatal: bool = False
    claims_ready: bool = False
    values: Mapping[str, str | float] = field(default_factory=dict)
    read_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogActivity:
    """At most one a second. `fresh` counts lines that say something new (shape not seen before, or a matched number moved)."""

    kind: ClassVar[str] = "log_activity"
    bytes: int
    lines: int
    fresh: int
    offset: int
    """end of what was read"""
    last: str = ""
    """the last fresh line, clean and capped"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Counters of all processes of the run at one time. `interval`: the sampling interval in force, seconds."""

    kind: ClassVar[str] = "counters"
    interval: float
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """All listening sockets of the run's processes, whenever that set changes."""

    kind: ClassVar[str] = "listening"
    sockets: tuple[ListenSocket, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightProgress:
    """From outside: shard files found and how far they are read, whenever that changes.

    `how`: what `bytes_done` rests on, joined by ` + `: closed (files that were open and are closed), order (files before the first open
    one), offset, mapped (resident file pages of one process), counters (bytes read by processes); empty before any file is opened.
    """

    kind: ClassVar[str] = "weight_progress"
    shards: int
    shards_done: int
    bytes: int
    bytes_done: int
    how: str = ""
    files: tuple[ShardFile, ...] = ()
    """only those open or mapped at the moment"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightStorage:
    """The weights as they lie before they are loaded: `cached` of `bytes` in the page cache (None: not told).

    `path` is their folder or file; `place` names mount and device, `network` whether it is on another machine; `bytes_per_s` is its
    rate in sequence as it was measured `age_s` before, None where it never was."""

    kind: ClassVar[str] = "weight_storage"
    shards: int
    bytes: int
    cached: int | None = None
    path: str = ""
    place: str = ""
    network: bool = False
    bytes_per_s: float | None = None
    age_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSample:
    """What all processes of the run together did in the `seconds` before, while weights are loaded.

    `user_s` and `system_s` processor time; `reads` calls that read, `read_bytes` through them; `stored_bytes` what came from storage for
    them; `major_faults` page faults that waited for a disk; `readers` threads that read (calls or storage); `starved_s` how long a main
    thread that loads was ready to run and got no processor, the most of any; `swapped_bytes` (in and out) and `received_bytes` (network,
    without loopback) of the whole machine. -1: could not be read.
    """

    kind: ClassVar[str] = "load_sample"
    seconds: float
    user_s: float = 0.0
    system_s: float = 0.0
    major_faults: int = 0
    reads: int = -1
    read_bytes: int = -1
    stored_bytes: int = -1
    readers: int = 0
    starved_s: float = 0.0
    swapped_bytes: int = -1
    received_bytes: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefetched:
    """Weights that a prefetch beside the start has put into the page cache: `done` of `bytes` are there, `read` of them came from storage.

    `ended`: None while it goes on; done, stopped, loaded (the engine was through), room (no more memory), error (`problem`)."""

    kind: ClassVar[str] = "prefetched"
    bytes: int
    done: int
    read: int
    seconds: float
    ended: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory of the run's processes, bytes, told once and never as a sum of RSS. `unique` is private, `shared` counted once."""

    kind: ClassVar[str] = "memory"
    unique: int
    shared: int
    page_cache: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """One finished request of ours. `status` None: no answer (`error` says why). `model` and `key_source` (never the key) are told.

    `sane` False: a single repeated token or non-finite log probabilities; None where it cannot be told.
    """

    kind: ClassVar[str] = "http_answer"
    probe: ProbeKind
    url: str
    status: int | None = None
    seconds: float = 0.0
    first_token_s: float | None = None
    text: str | None = None
    tokens: int | None = None
    sane: bool | None = None
    model: str | None = None
    error: str | None = None
    body: str | None = None
    key_source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAsked:
    """A request of ours is under way; it is never cancelled."""

    kind: ClassVar[str] = "http_asked"
    probe: ProbeKind
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCounters:
    """What the engine's own metrics tell while it serves, summed over their labels; None: not told.

    `steps` changes while the engine works where `generation_tokens` only counts answers that have ended. `error`: nothing was told, and
    why; `available` False: this server has no such page for us, and is not asked again.
    """

    kind: ClassVar[str] = "engine_counters"
    generation_tokens: float | None = None
    prompt_tokens: float | None = None
    running: float | None = None
    waiting: float | None = None
    steps: float | None = None
    error: str | None = None
    available: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacks:
    """One snapshot of one process's threads, main thread first. `round` numbers the snapshots of all ranks that were taken together.

    `tool`: what read it (py-spy, pystack). `error` set and no threads: it could not be read, and why.
    """

    kind: ClassVar[str] = "stacks"
    process: ProcessKey
    round: int
    threads: tuple[ThreadStack, ...] = ()
    tool: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where each thread of one process stands in the kernel, and the waits that follow from it, main thread first."""

    kind: ClassVar[str] = "places"
    process: ProcessKey
    round: int
    threads: tuple[ThreadPlace, ...] = ()
    waits: tuple[Wait, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """All GPUs of the machine at one time. `source`: nvml or nvidia-smi. `interval`: seconds between two samples while in force."""

    kind: ClassVar[str] = "gpus"
    interval: float
    samples: tuple[GpuSample, ...]
    source: str = "nvml"
    driver: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collectives:
    """What ranks' own recorders say about their collectives, compared. A witness: not everything that ranks exchange is recorded."""

    kind: ClassVar[str] = "collectives"
    comparison: Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What the quick checks found of this command, looked at beside its start. `seconds`: how long they took."""

    kind: ClassVar[str] = "checked"
    checks: tuple[Check, ...]
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """Versions of packages in the server's own environment, by distribution name."""

    kind: ClassVar[str] = "installed"
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """A piece of evidence that was wanted and could not be had."""

    kind: ClassVar[str] = "missed"
    request: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAsked:
    """Somebody asked for the end: `by` names it (stop, signal SIGINT, observer death…)."""

    kind: ClassVar[str] = "stop_asked"
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalSent:
    """A signal went to a process of the run. `why`: forwarded or a rung of the stop ladder."""

    kind: ClassVar[str] = "signal_sent"
    signal: int
    pid: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time passes. The only way in which it enters the judge."""

    kind: ClassVar[str] = "tick"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Something was not recorded: `what` (log, events, sampling), how much and why."""

    kind: ClassVar[str] = "gap"
    what: str
    amount: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretsInLog:
    """Where secrets that are known by value stand in the raw log: (offset, length) each. What leaves the machine is masked there."""

    kind: ClassVar[str] = "secrets_in_log"
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingStopped:
    kind: ClassVar[str] = "recording_stopped"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserverStarted:
    kind: ClassVar[str] = "observer_started"
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserverLost:
    kind: ClassVar[str] = "observer_lost"
    pid: int
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The verdict after the events before it. The judge itself never reads it; a replay compares with it."""

    kind: ClassVar[str] = "judged"
    verdict: Verdict
    phase: Phase
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownEvent:
    """A kind that this version does not know, or a body that it cannot read; kept as it came."""

    kind: ClassVar[str] = "unknown"
    original: str
    fields: Mapping[str, Any] = field(default_factory=dict)


Body = (
    Planned | Launched | LaunchFailed | MemberSeen | MemberGone | Exited | Emptied | OomKill | LogLine | LogActivity | Counters
    | Listening | WeightProgress | WeightStorage | LoadSample | Prefetched | Memory | Stacks | Places | Gpus | Collectives | Installed
    | Checked | HttpAsked | HttpAnswer | EngineCounters | Missed | StopAsked | SignalSent | Tick | Gap | SecretsInLog | RecordingStopped
    | ObserverStarted | ObserverLost | Judged | UnknownEvent
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    seq: int
    t: float
    wall: float
    node: str
    body: Body
