"""What will be run, read from the unmodified command: engine, role, endpoint, sizes, expected phases, budgets, timers."""

from dataclasses import dataclass, field

from firsttoken.model.words import USUAL_ORDER, Phase, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """An engine's own timer that ends a start. `phases`: where it runs; empty means from launch to ready."""

    name: str
    seconds: float
    phases: tuple[Phase, ...] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the server is expected to listen. None is unknown. `unix_socket` excludes host and port."""

    host: str | None = None
    port: int | None = None
    unix_socket: str | None = None
    tls: bool = False
    root_path: str = ""
    served_model: str | None = None
    needs_key: bool = False
    """A key is configured; the key itself is never part of a plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Paths of the engine's HTTP face, from its profile; None where it has none."""

    health: str | None = None
    models: str | None = "/v1/models"
    completions: str | None = "/v1/completions"
    chat: str | None = "/v1/chat/completions"
    embeddings: str | None = "/v1/embeddings"
    rerank: str | None = None
    native: str | None = None
    metrics: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long a phase usually takes: `seconds` from profile, size and history; beyond it a moving start is `slow`.

    `quiet_s`: for how long ready starts of the like on this machine stood still in it, at most, while nothing ran.
    """

    phase: Phase
    seconds: float
    source: str
    """profile, size or history"""
    quiet_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Parallel sizes of the whole server; `ranks_here` is how many of them this command starts on this node."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    nodes: int = 1
    node_rank: int = 0
    world: int = 1
    ranks_here: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`command` has its secrets masked. `engine` None: not recognised (yet). `not_read`: what was there but not readable, and why.

    `task`: generate, embed or rerank. `phases`: the profile's order. `contained`: a container client starts the server elsewhere, so
    that its sockets are not ours to see. `ended_by_line`: the phases whose end the engine logs; any other ends where the next begins.
    `weight_files`: folders or files that hold the weights, where they are local. `terminates`: how many SIGTERMs a stop sends before it
    escalates.
    """

    command: tuple[str, ...] = ()
    engine: str | None = None
    engine_version: str | None = None
    profile_hash: str | None = None
    role: Role = Role.SERVES
    wrapper: str | None = None
    contained: bool = False
    model: str | None = None
    task: str = "generate"
    endpoint: Endpoint = field(default_factory=Endpoint)
    routes: Routes = field(default_factory=Routes)
    sizes: Sizes = field(default_factory=Sizes)
    phases: tuple[Phase, ...] = USUAL_ORDER
    ended_by_line: tuple[Phase, ...] = ()
    budgets: tuple[Budget, ...] = ()
    timers: tuple[Timer, ...] = ()
    weight_files: tuple[str, ...] = ()
    terminates: int = 1
    listens_before_load: bool = False
    not_read: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Thresholds that decide, in seconds. They stand in the `plan` event, so that a replay judges alike.

    `still_after`: no strong signal for this long is `stalled`. `long_stall_patience` holds in weights and compile.
    `answer_budget`: an accepted request that brings no token for this long, with nothing moving, makes the server `unserving`.
    """

    sample_interval: float = 1.0
    still_after: float = 12.0
    stall_patience: float = 120.0
    long_stall_patience: float = 300.0
    max_waiting: float = 600.0
    answer_budget: float = 60.0
    probe: bool = True
