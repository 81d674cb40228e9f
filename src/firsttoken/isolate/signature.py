"""Is it the same failure? Compares what two starts ended in, loosely where a setting may change the look of it, strictly where not.

A hang may move to a neighbouring phase when a setting is changed (eager starts have no compile phase) or stand in other frames. So blocked
starts are alike where the phase or a place is, and nothing that both know contradicts it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from firsttoken.model.isolation import Outcome, Signature
from firsttoken.model.result import Result
from firsttoken.model.words import Verdict

BLOCKED, ENDED, UNSERVING = "blocked", "ended", "unserving"
_SORTS = {
    Verdict.HUNG: BLOCKED,
    Verdict.WAITING: BLOCKED,
    Verdict.STALLED: BLOCKED,
    Verdict.FAILED: ENDED,
    Verdict.CRASHED: ENDED,
    Verdict.UNSERVING: UNSERVING,
}
_ERROR = re.compile(r"\b([A-Za-z_][\w.]*(?:Error|Exception|Exit|Timeout|Interrupt))\b(?:: *(.*))?")
_BARE = re.compile(r"ended with status \d+ after [\d.]+ s(?:, before its first token)?(?:: *)?")
_VARYING = re.compile(r"0x[0-9a-f]+|\d+")


def signature(result: Result) -> Signature | None:
    """None for a start that did not fail, or not in a way that could be told."""
    sort = _SORTS.get(result.verdict)
    if sort is None:
        return None
    return Signature(
        sort=sort,
        phase=result.phase,
        where=tuple(sorted({_VARYING.sub("N", group.where) for group in result.ranks.groups})),
        root=_root(result.root_blocker, result.waits, result.cycle),
        error=_error(result) if sort != BLOCKED else None,
    )


def compare(baseline: Signature, other: Signature | None) -> Outcome:
    """`other` None: could not be told."""
    if other is None:
        return Outcome.UNRESOLVED
    contradicts = _other_root(baseline.root, other.root) or _contradicts(_class(baseline), _class(other)) or baseline.sort != other.sort
    alike = baseline.phase == other.phase or bool(set(baseline.where) & set(other.where))
    alike = alike or (baseline.error is not None and baseline.error == other.error)
    return Outcome.SAME if alike and not contradicts else Outcome.DIFFERENT


def _contradicts(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other


def _other_root(one: str | None, other: str | None) -> bool:
    """A stranger of whom it was not seen how it blocks may be any."""
    return one is not None and other is not None and not one.startswith(other) and not other.startswith(one)


def _root(blocker: Mapping[str, Any] | None, waits: Sequence[Mapping[str, Any]], cycle: Sequence[Mapping[str, Any]]) -> str | None:
    """The kind of what all wait for in the end: a cycle, a member, a stranger that holds something."""
    if cycle:
        return "cycle"
    if blocker is None:
        return None
    if blocker.get("in_run"):
        return "member"
    kinds = {str(wait.get("kind")) for wait in waits if (wait.get("to") or {}).get("pid") == (blocker.get("process") or {}).get("pid")}
    return f"stranger by {min(kinds)}" if kinds else "stranger"


def _class(one: Signature) -> str | None:
    return one.error.partition(": ")[0] if one.error is not None else None


def _error(result: Result) -> str | None:
    """Class and text of the first error that is told, without its numbers; else how the process ended. None where it only ended: a log that
    was read too late tells no error."""
    for text in (result.reason, *result.proof):
        found = _ERROR.search(text)
        if found is not None:
            name = found[1].rpartition(".")[2]
            return f"{name}: {_VARYING.sub('N', found[2])[:100]}" if found[2] else name
    if result.exit.signal is not None:
        return f"signal {result.exit.signal}"
    return _VARYING.sub("N", _BARE.sub("", result.reason))[:100] or None
