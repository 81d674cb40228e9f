"""Causes ranked by what speaks for and against them.

A confidence is how often such a finding should be right, not how loud the evidence is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from firsttoken.explain.facts import Facts
from firsttoken.explain.rules import Matcher
from firsttoken.explain.singled import singled_out
from firsttoken.knowledge.causes import Cause
from firsttoken.model.checks import Outcome
from firsttoken.model.words import Verdict

LEAST = 0.15
"""confidence below which a cause is not worth a line"""
_MOST = 8
_IF_READY = 0.3
_CHECKED = 0.6
"""what a check that foretold it adds to a cause that was found"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`unknown`: what was not attached and would decide more. `behind`: the ranks that this cause singles out, None where it names none."""

    cause: Cause
    confidence: float
    evidence: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    behind: tuple[int, ...] | None = None
    remedy: str | None = None
    """what to do here, where it is known better than the cause knows it"""

    @property
    def summary(self) -> str:
        return self.cause.meaning

    def row(self) -> dict[str, Any]:
        """As in the result document."""
        return {
            "cause": self.cause.id,
            "confidence": round(self.confidence, 2),
            "summary": self.cause.meaning,
            "evidence": list(self.evidence),
            "against": list(self.against),
            "remedy": self.remedy or self.cause.remedy,
            "settings": [{"kind": s.kind, "name": s.name, "value": s.value, "action": s.action} for s in self.cause.settings],
            "sources": list(self.cause.sources),
            "unknown": list(self.unknown),
        }


def findings(facts: Facts, causes: Iterable[Cause], verdict: Verdict) -> tuple[Finding, ...]:
    """Best first; empty where nothing fits."""
    matcher = Matcher(facts, verdict)
    found = [one for cause in causes if (one := weigh(facts, matcher, cause, verdict)) is not None]
    found.sort(key=lambda one: (-one.confidence, one.cause.id))
    return tuple(found[:_MOST])


def beside_checks(found: Iterable[Finding], checks: Iterable[Mapping[str, str | None]]) -> tuple[Finding, ...]:
    """Of causes that were found: which file, port or process it is, as the checks before the start saw it. `checks`: as in a result.

    A check alone is no cause: the start may have ended for another reason before it came to that.
    """
    told: dict[str, list[Mapping[str, str | None]]] = {}
    for row in checks:
        told.setdefault(str(row["id"]), []).append(row)
    more = []
    for one in found:
        rows = sorted(told.get(one.cause.id, ()), key=lambda row: row["result"] != Outcome.FAIL)
        foretold = any(row["result"] == Outcome.FAIL for row in rows)
        evidence = dict.fromkeys((*(f"before the start: {row['fact']}" for row in rows), *one.evidence))
        confidence = 1.0 - (1.0 - one.confidence) * (1.0 - _CHECKED) if foretold else one.confidence
        remedy = next((row["remedy"] for row in rows if row["remedy"]), None)
        more.append(replace(one, confidence=confidence, evidence=tuple(evidence)[:6], remedy=remedy))
    return tuple(sorted(more, key=lambda one: (-one.confidence, one.cause.id)))


def weigh(facts: Facts, matcher: Matcher, cause: Cause, verdict: Verdict) -> Finding | None:
    engine = facts.reading.plan.engine
    if cause.engines and engine not in cause.engines:
        return None
    if cause.phases and facts.reading.phase not in cause.phases:
        return None
    if cause.verdicts and verdict not in cause.verdicts:
        return None
    if any(matcher.answer(need).holds is not True for need in cause.needs):
        return None
    doubt, evidence, against, unknown = 1.0, list[str](), list[str](), list[str]()
    for item in cause.speaks:
        answer = matcher.answer(item.when)
        if answer.holds:
            doubt *= 1.0 - item.weight
            evidence.extend((item.says,) if item.says else answer.evidence)
        elif answer.holds is None:
            unknown.extend(answer.missing)
    confidence = 1.0 - doubt
    for item in cause.against:
        answer = matcher.answer(item.when)
        if answer.holds:
            confidence *= 1.0 - item.weight
            against.extend((item.says,) if item.says else answer.evidence)
    if verdict is Verdict.READY and Verdict.READY not in cause.verdicts:
        # what would have ended the start did not
        confidence *= _IF_READY
    if confidence < LEAST:
        return None
    return Finding(
        cause=cause,
        confidence=confidence,
        evidence=tuple(dict.fromkeys(evidence))[:6],
        against=tuple(dict.fromkeys(against))[:6],
        unknown=tuple(dict.fromkeys(unknown)),
        behind=singled_out(cause.behind, facts) if cause.behind is not None else None,
    )
