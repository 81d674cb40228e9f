"""Errors in dead files: which one was the root, which are fallout, which was the end. Pure."""

import re

from firsttoken.explain.facts import Facts
from firsttoken.model.events import LogLine
from firsttoken.model.reading import Told

_CRASHES = frozenset({"segfault", "abort", "bus-error", "device-fault", "oom-kill", "killed", "device-exception", "child-signal"})
_REFUSED_BY_DEVICE = re.compile(
    r"not permitted|not supported|invalid (?:argument|value|device ordinal)|initialization error|no kernel image|busy or unavailable"
    r"|during capture"
)


def is_crash(line: LogLine) -> bool:
    """A death by signal, abort or device fault; an operation that the device's runtime refuses is an error like any other."""
    if line.error == "device-fault" and _REFUSED_BY_DEVICE.search(line.text):
        return False
    return line.error in _CRASHES or _signal(line)


_LAST_LINES = 25
_LIVES_ON = frozenset({"python-error", "device-fault", "device-out-of-memory", "store-timeout", "killed", "collective-timeout"})


def at_the_end(facts: Facts, errors: list[Told], ready_at: int) -> list[Told]:
    """Errors that need not be the end, and were: nothing but a few lines of their own came after them."""
    log = facts.attached.log or b""
    last = [one for one in errors if one.line.error in _LIVES_ON]
    if not last or facts["rank_busy"]:
        return []
    after = log[last[-1].line.offset :].count(b"\n")
    told = facts.reading.told
    later = [one for one in told[told.index(last[-1]) + 1 :] if one.line.phase is not None]
    return [last[-1]] if after <= _LAST_LINES and not later and (ready_at < 0 or told.index(last[-1]) > ready_at) else []


def _signal(line: LogLine) -> bool:
    codes = [line.values.get(name) for name in ("code", "exit_code", "ended_with")]
    if any(isinstance(code, int | float) and (code in (-9, -11, -6, -7, 137, 139, 134)) for code in codes):
        return True
    return line.values.get("signal") in (4, 6, 7, 8, 9, 11)


def root_error(facts: Facts) -> Told | None:
    """The first error that is no fallout of another's: generic texts and broken connections are."""
    errors = [one for one in facts.reading.told if one.line.error is not None]
    plain = [one for one in errors if not is_fallout(one.line)]
    return next(iter(plain or errors), None)


_FALLOUT = (
    "broken pipe",
    "connection reset",
    "connection closed by peer",
    "recvvalue failed",
    "root cause",
    "child failed",
    "core failed to start",
    "proc failed to start",
)


def is_fallout(line: LogLine) -> bool:
    text = line.text.lower()
    return any(word in text for word in _FALLOUT)
