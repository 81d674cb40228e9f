"""How long the phases of the like took on this machine, and how quiet they were: from earlier ready runs with the same engine, model and
sizes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from firsttoken.history.runs import RunFolder
from firsttoken.model.plan import Plan
from firsttoken.model.words import Phase

_LOOKED_AT = 50
_KNOWN = {phase.value for phase in Phase}


def mean_phases(plan: Plan, folders: Iterable[RunFolder]) -> dict[Phase, float]:
    """Seconds by phase, empty where there is nothing to compare with. `folders` oldest first; the last 50 are looked at."""
    taken: dict[Phase, list[float]] = {}
    for known in _ready(plan, folders):
        for name, seconds in _phases(known, "seconds"):
            taken.setdefault(name, []).append(seconds)
    return {phase: sum(seconds) / len(seconds) for phase, seconds in taken.items()}


def with_quiet(plan: Plan, folders: Iterable[RunFolder]) -> Plan:
    """The plan with the longest stillness that each phase showed."""
    quiet: dict[Phase, float] = {}
    for known in _ready(plan, folders):
        for name, seconds in _phases(known, "quiet_s"):
            quiet[name] = max(seconds, quiet.get(name, 0.0))
    return replace(plan, budgets=tuple(replace(budget, quiet_s=quiet.get(budget.phase, 0.0)) for budget in plan.budgets)) if quiet else plan


def _ready(plan: Plan, folders: Iterable[RunFolder]) -> Iterator[Mapping[str, Any]]:
    for folder in list(folders)[-_LOOKED_AT:]:
        known = folder.result()
        # to a server that served already somebody attached at any time: that tells nothing of a start
        if known.get("verdict") == "ready" and _alike(plan, known) and not folder.attached():
            yield known


def _alike(plan: Plan, known: Mapping[str, Any]) -> bool:
    engine, command = known.get("engine"), known.get("command")
    if plan.engine is None or not isinstance(engine, dict) or not isinstance(command, list):
        return False
    model = plan.model is None or plan.model in command
    return engine.get("name") == plan.engine and model and known.get("world_size") == plan.sizes.world


def _phases(known: Mapping[str, Any], figure: str) -> Iterator[tuple[Phase, float]]:
    """A result that an older version wrote, or that a disk damaged, teaches what of it can be read."""
    rows = known.get("phases")
    for row in rows if isinstance(rows, list) else ():
        name, seconds = (row.get("name"), row.get(figure)) if isinstance(row, dict) else (None, None)
        if isinstance(name, str) and name in _KNOWN and isinstance(seconds, int | float):
            yield Phase(name), float(seconds)
