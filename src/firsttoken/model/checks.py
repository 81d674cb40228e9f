"""What a command will meet before its server has started: one check, one fact, one remedy."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

WILL_FAIL = 78
"""EX_CONFIG of sysexits.h: the start will fail"""


class Outcome(StrEnum):
    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    """the start will fail, or never become ready"""
    NOT_CHECKED = "not_checked"


PATIENCE = 20.0
"""seconds that a part of the checks may take"""


class Part(StrEnum):
    """What a check looks at."""

    KERNELS = "kernels"
    WEIGHTS = "weights"
    MEMORY = "memory"
    MACHINE = "machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """`id`: that of the cause which it would become, where there is one. `fact`: what was found; of `not_checked`, why.

    `remedy` and `price` (what happens if it is ignored) belong to warn and fail.
    """

    id: str
    part: Part
    result: Outcome
    fact: str
    remedy: str | None = None
    price: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeeds:
    """What the launch will hold, in bytes and tokens, of the rank that holds most; None where it could not be told.

    `weights_by_rank`: of one replica, stage by stage, without the draft. `room`: left for the cache on a rank. `longest`: the longest
    sequence that fits there; `concurrency`: how many of the full `context` fit at a time."""

    weights_by_rank: tuple[int, ...] = ()
    draft: int = 0
    kv_per_token: float = 0.0
    kv_per_sequence: float = 0.0
    context: int | None = None
    kv_of_context: float | None = None
    room: float | None = None
    longest: int | None = None
    concurrency: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """`command` masked. `seconds`: how long the checks took."""

    command: tuple[str, ...] = ()
    engine: str | None = None
    model: str | None = None
    checks: tuple[Check, ...] = ()
    memory: MemoryNeeds | None = None
    seconds: float = 0.0


def exit_status(checks: Iterable[Check]) -> int:
    """0, 1 with warnings, 78 where the start will fail."""
    results = {check.result for check in checks}
    return WILL_FAIL if Outcome.FAIL in results else 1 if Outcome.WARN in results else 0


def fail(part: Part, name: str, fact: str, remedy: str, price: str) -> Check:
    return Check(id=name, part=part, result=Outcome.FAIL, fact=fact, remedy=remedy, price=price)


def warn(part: Part, name: str, fact: str, remedy: str, price: str) -> Check:
    return Check(id=name, part=part, result=Outcome.WARN, fact=fact, remedy=remedy, price=price)


def passed(part: Part, name: str, fact: str) -> Check:
    return Check(id=name, part=part, result=Outcome.PASS, fact=fact)


def skipped(part: Part, name: str, why: str) -> Check:
    return Check(id=name, part=part, result=Outcome.NOT_CHECKED, fact=why)
