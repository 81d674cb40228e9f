"""What can go wrong on demand: the grammar `KIND@PHASE[:rank=K][:after=S][:for=S]` and the cells that make sense.

Key insight: the table of cells is data, and a refusal is a sentence, so that the command line, tests and benchmarks ask the
same question: `refusal(kind, phase, ranks)`. Nothing here does anything; `cues` lets faults happen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from .phases import MAIN_PHASES, Phase


class Kind(StrEnum):
    SKIP = "skip"
    CYCLE = "cycle"
    FIFO = "fifo"
    CHILD = "child"
    CHATTER = "chatter"
    STOP = "stop"
    SPIN = "spin"
    LOCK = "lock"
    CONNECT = "connect"
    PEER = "peer"
    DOWNLOAD = "download"
    STALL = "stall"
    SLOW = "slow"
    QUIET = "quiet"
    COMPILE = "compile"
    JIT = "jit"
    GRIND = "grind"
    CRASH = "crash"
    EXIT = "exit"
    KILL = "kill"
    ORPHAN = "orphan"
    MUTE = "mute"
    ERROR = "error"
    SECOND = "second"
    EARLY = "early"
    LOGSTOP = "logstop"


class BadFault(ValueError):
    """A fault that cannot be: the message is a sentence for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault as asked for. `after_s` counts from the phase's begin; `for_s` None means for ever."""

    kind: Kind
    phase: Phase
    rank: int | None = None
    after_s: float = 0.0
    for_s: float | None = None

    def targets(self, ranks: int) -> frozenset[int]:
        """World ranks that the fault hits in a phase of the ranks; for `peer` the rank that is never started."""
        if self.kind in WHOLE_SERVER:
            return frozenset({0})
        last = ranks - 1 if self.rank is None else self.rank
        if self.kind is Kind.CYCLE:
            return frozenset({last, (last - 1) % ranks})
        if self.kind in ONE_RANK or self.rank is not None:
            return frozenset({last})
        return frozenset(range(ranks))

    def __str__(self) -> str:
        text = f"{self.kind}@{self.phase}"
        if self.rank is not None:
            text += f":rank={self.rank}"
        if self.after_s:
            text += f":after={self.after_s:g}"
        return text if self.for_s is None else f"{text}:for={self.for_s:g}"


ONE_RANK = frozenset({Kind.SKIP, Kind.SPIN, Kind.KILL, Kind.ORPHAN, Kind.PEER})
"""Kinds that hit one rank, the last, where none is named."""

SEVERAL_RANKS = frozenset({Kind.SKIP, Kind.CYCLE, Kind.PEER, Kind.KILL, Kind.ORPHAN})
"""Kinds that need more than one rank."""

WHOLE_SERVER = frozenset({Kind.MUTE, Kind.ERROR, Kind.SECOND, Kind.EARLY})
"""Kinds that are a property of the server, so that a rank makes no sense."""

ENDLESS = frozenset({Kind.CRASH, Kind.EXIT, Kind.KILL, Kind.ORPHAN, Kind.PEER, Kind.EARLY})
"""Kinds that nothing can end, so that `for=S` makes no sense."""


def parse_fault(text: str) -> Fault:
    """The fault that `text` asks for; raises BadFault with a sentence where it is none."""
    cell, *options = text.split(":")
    kind_text, at, phase_text = cell.partition("@")
    if not at:
        raise BadFault(f"fault {text!r} is not KIND@PHASE[:rank=K][:after=S][:for=S].")
    try:
        kind = Kind(kind_text)
    except ValueError:
        raise BadFault(f"fault {text!r}: there is no kind {kind_text!r}; kinds are {', '.join(Kind)}.") from None
    try:
        phase = Phase(phase_text)
    except ValueError:
        raise BadFault(f"fault {text!r}: there is no phase {phase_text!r}; phases are {', '.join(Phase)}.") from None
    values: dict[str, float] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if name not in ("rank", "after", "for") or not equals:
            raise BadFault(f"fault {text!r}: {option!r} is none of rank=K, after=S, for=S.")
        if name in values:
            raise BadFault(f"fault {text!r}: {name} is given twice.")
        values[name] = _number(text, name, value)
    return Fault(
        kind=kind,
        phase=phase,
        rank=int(values["rank"]) if "rank" in values else None,
        after_s=values.get("after", 0.0),
        for_s=values.get("for"),
    )


def refusal(fault: Fault, ranks: int) -> str | None:
    """A sentence that says why this fault makes no sense with so many ranks, or None where it does."""
    kind, phase = fault.kind, fault.phase
    only = _ONLY_IN.get(kind)
    if only is not None and phase not in only:
        return f"{kind}@{phase} makes no sense: {_WHY[kind]}"
    if kind in SEVERAL_RANKS and ranks < 2:
        return f"{kind}@{phase} makes no sense with one rank: it needs another rank that goes on or waits (--ranks 2 or more)."
    if fault.rank is not None:
        if kind in WHOLE_SERVER:
            return f"{kind} is about the whole server, so rank={fault.rank} makes no sense."
        if phase in MAIN_PHASES:
            return f"{kind}@{phase}:rank={fault.rank} makes no sense: {phase} is over before there are ranks."
        if fault.rank >= ranks:
            return f"{kind}@{phase}:rank={fault.rank} makes no sense: with --ranks {ranks} the last rank is {ranks - 1}."
    if fault.for_s is not None and kind in ENDLESS:
        return f"{kind}@{phase}:for={fault.for_s:g} makes no sense: nothing ends a {kind}."
    if kind is Kind.PEER and fault.after_s:
        return f"peer@{phase}:after={fault.after_s:g} makes no sense: the rank is never started at all."
    return None


def clash(faults: tuple[Fault, ...]) -> str | None:
    """A sentence where two faults cannot both happen, or None."""
    if sum(fault.kind is Kind.PEER for fault in faults) > 1:
        return "peer can be given once only."
    seen: set[tuple[Kind, Phase, int | None]] = set()
    for fault in faults:
        key = (fault.kind, fault.phase, fault.rank)
        if key in seen:
            return f"{fault.kind}@{fault.phase} is given twice for the same rank."
        seen.add(key)
    return None


_WITH_RANKS = frozenset(set(Phase) - MAIN_PHASES)
_REQUESTS = frozenset({Phase.FIRST_TOKEN})
_NOT_READY = frozenset(set(Phase) - {Phase.PROCESS_START, Phase.LISTENING, Phase.FIRST_TOKEN})

_ONLY_IN: Mapping[Kind, frozenset[Phase]] = MappingProxyType(
    {
        Kind.SKIP: _WITH_RANKS,
        Kind.CYCLE: _WITH_RANKS,
        Kind.SPIN: _WITH_RANKS,
        Kind.KILL: _WITH_RANKS,
        Kind.ORPHAN: _WITH_RANKS,
        Kind.PEER: frozenset({Phase.DISTRIBUTED_INIT}),
        Kind.FIFO: frozenset({Phase.WEIGHTS}),
        Kind.DOWNLOAD: frozenset({Phase.WEIGHTS}),
        Kind.STALL: frozenset({Phase.WEIGHTS}),
        Kind.MUTE: _REQUESTS,
        Kind.ERROR: _REQUESTS,
        Kind.SECOND: _REQUESTS,
        Kind.EARLY: _NOT_READY,
    }
)

_WHY: Mapping[Kind, str] = MappingProxyType(
    {
        Kind.SKIP: "collectives begin with distributed_init.",
        Kind.CYCLE: "two ranks are needed, and ranks begin with distributed_init.",
        Kind.SPIN: "a rank spins, and ranks begin with distributed_init.",
        Kind.KILL: "a rank is killed, and ranks begin with distributed_init.",
        Kind.ORPHAN: "a rank is killed, and ranks begin with distributed_init.",
        Kind.PEER: "ranks wait for each other to come in distributed_init.",
        Kind.FIFO: "shards are read in weights.",
        Kind.DOWNLOAD: "shards are downloaded in weights.",
        Kind.STALL: "shards are downloaded in weights.",
        Kind.MUTE: "requests are answered in first_token.",
        Kind.ERROR: "requests are answered in first_token.",
        Kind.SECOND: "requests are answered in first_token.",
        Kind.EARLY: "the server can say too early that it is ready from config to warmup.",
    }
)


def _number(text: str, name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise BadFault(f"fault {text!r}: {name} must be a number, not {value!r}.") from None
    if not math.isfinite(number) or number < 0 or (name == "rank" and number != int(number)):
        raise BadFault(f"fault {text!r}: {name}={value} is not possible.")
    return number
