"""Conditions against facts: yes with its evidence, no, or unknown for want of something that was not attached. Pure."""

import re
from dataclasses import dataclass

from firsttoken.explain.facts import Facts
from firsttoken.knowledge.causes import Condition
from firsttoken.knowledge.profile import compiled
from firsttoken.model.redact import mask_text
from firsttoken.model.words import Verdict

_LAST_LINES = 40
_EVIDENCE = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`holds` None: unknown, for want of what `missing` names."""

    holds: bool | None
    evidence: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class Matcher:
    """Answers conditions on one set of facts; searches of the same text are made once."""

    def __init__(self, facts: Facts, verdict: Verdict) -> None:
        self._facts = facts
        self._verdict = verdict
        attached = facts.attached
        self._log = facts.reading.log if attached.log is not None else None
        self._tail = (
            "\n".join([line for line in facts.reading.log.splitlines() if line.strip()][-_LAST_LINES:])
            if attached.log is not None
            else None
        )
        frames = [f"{f.function} ({f.file}:{f.line})" for dump in attached.stacks for thread in dump.threads for f in thread.frames]
        self._stack = "\n".join(frames) if attached.stacks else None
        self._process = "\n".join(p.title for p in attached.processes) if attached.processes is not None else None
        self._probe = attached.probes.text if attached.probes is not None else None
        self._command = attached.command or None
        # a wrapper's own options (-e NAME=value) are settings as well as assignments before the command
        self._environment = (
            "\n".join([*(f"{name}={value}" for name, value in attached.env.items()), *(w for w in attached.argv if "=" in w)]) or None
        )
        self._found: dict[tuple[str, str], str | None] = {}

    def answer(self, condition: Condition) -> Answer:
        own = self._own(condition)
        if condition.phases and own.holds is not False and self._facts.reading.phase not in condition.phases:
            return Answer(holds=False)
        if condition.verdicts and own.holds is not False and self._verdict not in condition.verdicts:
            return Answer(holds=False)
        return own

    def _own(self, condition: Condition) -> Answer:
        for kind, pattern, text in (
            ("log", condition.log, self._log),
            ("last lines", condition.last_log, self._tail),
            ("stacks", condition.stack, self._stack),
            ("processes", condition.process, self._process),
            ("probes", condition.probe, self._probe),
            ("command", condition.command, self._command),
            ("environment", condition.environment, self._environment),
        ):
            if pattern is not None:
                return self._search(kind, pattern, text)
        if condition.error is not None:
            lines = [one.line.text for one in self._facts.reading.told if one.line.error == condition.error]
            return Answer(holds=bool(lines), evidence=tuple(_short(line) for line in lines[:1]))
        if condition.fact is not None:
            return self._fact(condition)
        if condition.none:
            return _none([self.answer(one) for one in condition.none])
        if condition.any:
            return _any([self.answer(one) for one in condition.any])
        if condition.count is not None:
            return _count([self.answer(one) for one in condition.of], condition.count)
        if condition.all:
            return _all([self.answer(one) for one in condition.all])
        return Answer(holds=True)

    def _search(self, kind: str, pattern: str, text: str | None) -> Answer:
        if text is None:
            # nothing asked for in the command or the environment is an answer; a log or stacks that were not attached are none
            return Answer(holds=False) if kind in ("environment", "command") else Answer(holds=None, missing=(kind,))
        key = (kind, pattern)
        if key not in self._found:
            match = compiled(pattern).search(text)
            self._found[key] = _line(text, match) if match is not None else None
        line = self._found[key]
        return Answer(holds=False) if line is None else Answer(holds=True, evidence=(line,))

    def _fact(self, condition: Condition) -> Answer:
        name = condition.fact or ""
        value = self._verdict.value if name == "verdict" else self._facts[name]
        if value is None:
            return Answer(holds=None, missing=(name,))
        if condition.at_least is not None or condition.at_most is not None:
            number = float(value) if isinstance(value, int | float) else 0.0
            holds = (condition.at_least is None or number >= condition.at_least) and (
                condition.at_most is None or number <= condition.at_most
            )
        elif condition.matches is not None:
            holds = compiled(condition.matches).search(str(value)) is not None
        elif condition.equals is not None:
            holds = str(value) == condition.equals
        else:
            holds = bool(value)
        words = name.replace("_", " ")
        told = f"{words}: {value}" if not isinstance(value, bool) else words if value else f"not {words}"
        return Answer(holds=holds, evidence=(told,) if holds else ())


def _all(answers: list[Answer]) -> Answer:
    if any(one.holds is False for one in answers):
        return Answer(holds=False)
    missing = tuple(dict.fromkeys(name for one in answers for name in one.missing))
    if any(one.holds is None for one in answers):
        return Answer(holds=None, missing=missing)
    return Answer(holds=True, evidence=tuple(dict.fromkeys(text for one in answers for text in one.evidence)))


def _any(answers: list[Answer]) -> Answer:
    for one in answers:
        if one.holds:
            return one
    missing = tuple(dict.fromkeys(name for one in answers for name in one.missing))
    return Answer(holds=None, missing=missing) if any(one.holds is None for one in answers) else Answer(holds=False)


def _none(answers: list[Answer]) -> Answer:
    """What is not known to be there is taken as not there: a condition that excludes must not keep everything unknown."""
    return Answer(holds=not any(one.holds for one in answers))


def _count(answers: list[Answer], least: int) -> Answer:
    yes = [one for one in answers if one.holds]
    if len(yes) >= least:
        return Answer(holds=True, evidence=tuple(dict.fromkeys(text for one in yes for text in one.evidence)))
    unknown = [one for one in answers if one.holds is None]
    if len(yes) + len(unknown) >= least:
        return Answer(holds=None, missing=tuple(dict.fromkeys(name for one in unknown for name in one.missing)))
    return Answer(holds=False)


def _line(text: str, match: re.Match[str]) -> str:
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    return _short(text[start : end if end >= 0 else len(text)])


def _short(line: str) -> str:
    line = mask_text(line.strip()[:4000])
    return line if len(line) <= _EVIDENCE else line[: _EVIDENCE - 1] + "…"
