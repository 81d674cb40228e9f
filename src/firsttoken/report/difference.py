"""What changed between two runs: for a start that worked yesterday.

Verdict, versions, flags, environment, machine, sizes and times stand side by side; what was not recorded is said, because a difference that
was not looked for must not read as none.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from firsttoken.model.result import Result
from firsttoken.report.document import document

_SECTIONS = ("verdict", "versions", "command", "environment", "machine", "server", "weights")
_NOTABLE = 1.25
"""times that differ by less are the same"""
_NOTABLE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One run: its result, and its spec.json ({} where there is none)."""

    result: Result
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """None: it was not there. `section` is one of verdict, versions, command, environment, machine, server, weights."""

    section: str
    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTimes:
    """Seconds; None where the phase was not reached, or not left. `ratio`: after by before."""

    name: str
    before: float | None
    after: float | None
    ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """`before` and `after` name the runs."""

    before: str
    after: str
    changes: tuple[Change, ...]
    phases: tuple[PhaseTimes, ...]
    not_compared: tuple[str, ...]

    def section(self, name: str) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.section == name)


def compare(before: Side, after: Side) -> Difference:
    pairs = (before, after)
    changes = [
        *_changes("verdict", *(_verdict(side.result) for side in pairs)),
        *_changes("versions", *(_versions(side) for side in pairs)),
        *_changes("command", *(options(side.result.command) for side in pairs)),
        *_changes("machine", *(_machine(side.spec) for side in pairs)),
        *_changes("server", *(_server(side.result) for side in pairs)),
        *_changes("weights", *(_weights(side.result) for side in pairs)),
    ]
    missing = []
    environments = [side.spec.get("environment") for side in pairs]
    if all(isinstance(env, dict) for env in environments):
        changes += _changes("environment", *(_environment(side.spec) for side in pairs))
    else:
        missing.append("environment: it was not recorded of " + _which(environments))
    if not all(isinstance(side.spec.get("machine"), dict) for side in pairs):
        missing.append("machine: it was not recorded of " + _which([side.spec.get("machine") for side in pairs]))
    missing += ["caches (compiled kernels, page cache), GPUs and drivers: not recorded"]
    changes.sort(key=lambda change: _SECTIONS.index(change.section))
    return Difference(
        before=before.result.run or "before",
        after=after.result.run or "after",
        changes=tuple(changes),
        phases=_phases(before.result, after.result),
        not_compared=tuple(missing),
    )


def _environment(spec: Mapping[str, Any]) -> dict[str, str]:
    """The user's own variables; what `run --arm` set counts as one."""
    armed = {"run --arm": "given"} if spec.get("armed") else {}
    return {**{str(name): str(value) for name, value in (spec.get("environment") or {}).items()}, **armed}


def options(command: Sequence[str]) -> dict[str, str]:
    """Flags with their values as they were written, and the leading words by their place. A flag that comes again adds to itself."""
    found: dict[str, str] = {}
    flag: str | None = None
    place = 0
    for word in command:
        if word.startswith("-") and len(word) > 1 and not _is_number(word):
            name, equals, value = word.partition("=")
            flag = name
            found[name] = f"{found[name]}, {value}".strip(", ") if name in found else value if equals else ""
        elif flag is not None:
            found[flag] = f"{found[flag]} {word}".strip()
        else:
            place += 1
            found[f"word {place}"] = word
    return found


def difference_document(difference: Difference) -> dict[str, Any]:
    """Kind `difference`."""
    return document("difference", **msgspec.to_builtins(difference))


def difference_text(difference: Difference) -> str:
    return "\n".join(_lines(difference))


def _lines(difference: Difference) -> Iterator[str]:
    yield f"from {difference.before}"
    yield f"to   {difference.after}"
    for section in _SECTIONS:
        rows = difference.section(section)
        if rows:
            yield from ("", f"  {section}")
            width = max(len(row.name) for row in rows)
            yield from (f"    {row.name:<{width}}  {_change(row)}" for row in rows)
    if difference.phases:
        yield from ("", f"  {'phase':<18}{'before':>10}{'after':>10}")
        yield from (f"  {row.name:<18}{_took(row.before):>10}{_took(row.after):>10}  {_ratio(row)}".rstrip() for row in difference.phases)
    same = [name for name in ("versions", "command", "environment", "machine") if not difference.section(name)]
    compared = [name for name in same if not any(text.startswith(f"{name}:") for text in difference.not_compared)]
    if compared:
        yield from ("", f"  the same: {', '.join(compared)}")
    yield from ("", "  not compared:", *(f"    {text}" for text in difference.not_compared))


def _change(row: Change) -> str:
    if row.before is None:
        return f"added: {row.after}" if row.after else "added"
    if row.after is None:
        return f"removed (was: {row.before})" if row.before else "removed"
    return f"{row.before or '(empty)'} → {row.after or '(empty)'}"


def _changes(section: str, before: Mapping[str, str], after: Mapping[str, str]) -> list[Change]:
    names = dict.fromkeys((*before, *after))
    return [
        Change(section=section, name=name, before=before.get(name), after=after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    ]


def _verdict(result: Result) -> dict[str, str]:
    """The reason belongs to the verdict: it is shown where that changed."""
    return {"verdict": f"{result.verdict}: {result.reason}" if result.verdict != "ready" else "ready", "phase": result.phase or "unknown"}


def _versions(side: Side) -> dict[str, str]:
    result = side.result
    engine = {result.engine.name or "engine": result.engine.version} if result.engine.version else {}
    own = {"firsttoken": str(side.spec["firsttoken"])} if "firsttoken" in side.spec else {}
    return {**result.versions, **engine, **own}


def _machine(spec: Mapping[str, Any]) -> dict[str, str]:
    machine = spec.get("machine")
    known = {str(name): str(value) for name, value in machine.items()} if isinstance(machine, dict) else {}
    return {**known, **({"cwd": str(spec["cwd"])} if "cwd" in spec else {})}


def _server(result: Result) -> dict[str, str]:
    told = {
        "engine": result.engine.name,
        "role": result.role,
        "ranks": result.world_size,
        "endpoint": result.endpoint.url,
        "model": result.endpoint.model,
        "ranks behind": ", ".join(map(str, result.ranks.behind)) or None,
    }
    return {name: str(value) for name, value in told.items() if value is not None}


def _weights(result: Result) -> dict[str, str]:
    """Sizes exactly; rates only in words that small jitter does not change."""
    w = result.weights
    told = {
        "shards": str(w.shards) if w.shards else None,
        "bytes": str(w.bytes) if w.bytes else None,
        "rate": f"{float(f'{w.bytes_per_s / 1e6:.1g}'):g} MB/s" if w.bytes_per_s else None,
        "source": w.source,
    }
    return {name: value for name, value in told.items() if value is not None}


def _phases(before: Result, after: Result) -> tuple[PhaseTimes, ...]:
    first, second = ({row.name: row.seconds for row in result.phases} for result in (before, after))
    found = []
    for name in dict.fromkeys((*first, *second)):
        old, new = first.get(name), second.get(name)
        ratio = new / old if old and new is not None else None
        found.append(PhaseTimes(name=name, before=old, after=new, ratio=ratio))
    return tuple(found)


def _took(seconds: float | None) -> str:
    return f"{seconds:.1f} s" if seconds is not None else "…"


def _ratio(row: PhaseTimes) -> str:
    if row.ratio is None or row.before is None or row.after is None or abs(row.after - row.before) < _NOTABLE_S:
        return ""
    if 1 / _NOTABLE < row.ratio < _NOTABLE:
        return ""
    return f"{row.ratio:.1f} times" if row.ratio >= 1 else f"{row.ratio:.2f} times"


def _which(values: Sequence[object]) -> str:
    missing = [name for name, value in zip(("the first run", "the second run"), values, strict=True) if not isinstance(value, dict)]
    return "either run" if len(missing) == 2 else missing[0]


def _is_number(word: str) -> bool:
    return word[1:].replace(".", "", 1).isdecimal()
