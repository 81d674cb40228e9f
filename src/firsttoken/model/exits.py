"""Exit statuses of the command line: one a verdict, so that scripts need no parsing."""

from firsttoken.model.plan import Policy
from firsttoken.model.result import Result
from firsttoken.model.words import Phase, Verdict

USAGE = 2
CANNOT_CREATE = 73
"""EX_CANTCREAT of sysexits.h"""
STILL = 75
UNKNOWN = 76
TIMED_OUT = 124
NOT_EXECUTABLE = 126
NOT_FOUND = 127
INTERRUPTED = 130

_CODES = {
    Verdict.READY: 0,
    Verdict.FAILED: 69,
    Verdict.CRASHED: 69,
    Verdict.HUNG: 70,
    Verdict.UNSERVING: 71,
    Verdict.UNKNOWN: UNKNOWN,
}
_PATIENT_PHASES = (Phase.WEIGHTS, Phase.COMPILE)


def decision(result: Result, policy: Policy) -> int | None:
    """The status with which `wait` returns now, None while the verdict is open and patience lasts."""
    code = _CODES.get(result.verdict)
    if code is not None:
        return code
    still = result.still_s or 0.0
    if result.verdict is Verdict.WAITING:
        return STILL if still >= policy.max_waiting else None
    if result.verdict is Verdict.STALLED:
        patience = policy.long_stall_patience if result.phase in _PATIENT_PHASES else policy.stall_patience
        return STILL if still >= patience else None
    return None


def server_status(code: int | None, signal: int | None) -> int:
    """The server's own end as a shell would report it."""
    if signal is not None:
        return 128 + signal
    return code if code is not None else 1
