"""The closed vocabularies: phases, verdicts, roles. One word for each thing, in code, command line, docs and JSON."""

from enum import StrEnum


class Phase(StrEnum):
    """Stretches of a start-up in their usual order; an engine's profile gives its own order and may leave some out."""

    PROCESS_START = "process_start"
    CONFIG = "config"
    DISTRIBUTED_INIT = "distributed_init"
    WEIGHTS = "weights"
    POST_LOAD = "post_load"
    KV_CACHE = "kv_cache"
    COMPILE = "compile"
    GRAPH_CAPTURE = "graph_capture"
    WARMUP = "warmup"
    LISTENING = "listening"
    FIRST_TOKEN = "first_token"


USUAL_ORDER: tuple[Phase, ...] = tuple(Phase)


class Verdict(StrEnum):
    STARTING = "starting"
    SLOW = "slow"
    WAITING = "waiting"
    STALLED = "stalled"
    HUNG = "hung"
    FAILED = "failed"
    CRASHED = "crashed"
    UNSERVING = "unserving"
    READY = "ready"
    UNKNOWN = "unknown"


OPEN_VERDICTS = frozenset({Verdict.STARTING, Verdict.SLOW, Verdict.WAITING, Verdict.STALLED})
"""Verdicts that may still change by themselves; `wait` returns on the others at once."""


class Role(StrEnum):
    """What the command is for: only `SERVES` is asked for a token."""

    SERVES = "serves"
    FOLLOWER = "follower"
    PREFILL = "prefill"
    DECODE = "decode"
    ROUTER = "router"


class Edge(StrEnum):
    """What a milestone line says about its phase."""

    BEGIN = "begin"
    END = "end"
    INSIDE = "inside"


class ProbeKind(StrEnum):
    """How a token (or what stands for one) was asked for."""

    MODELS = "models"
    COMPLETION = "completion"
    CHAT = "chat"
    NATIVE = "native"
    EMBEDDING = "embedding"
    RERANK = "rerank"
    HEALTH = "health"
