"""How long the phases of the like took on this machine: the mean over earlier ready runs with the same engine, model and sizes."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from firsttoken.history.runs import RunFolder
from firsttoken.model.plan import Plan
from firsttoken.model.words import Phase

_LOOKED_AT = 50
_KNOWN = {phase.value for phase in Phase}


def mean_phases(plan: Plan, folders: Iterable[RunFolder]) -> dict[Phase, float]:
    """Seconds by phase, empty where there is nothing to compare with. `folders` oldest first; the last 50 are looked at."""
    taken: dict[Phase, list[float]] = {}
    for folder in list(folders)[-_LOOKED_AT:]:
        known = folder.result()
        if known.get("verdict") != "ready" or not _alike(plan, known) or folder.attached():
            continue  # to a server that served already somebody attached at any time: that tells nothing of a start
        for name, seconds in _phases(known):
            taken.setdefault(name, []).append(seconds)
    return {phase: sum(seconds) / len(seconds) for phase, seconds in taken.items()}


def _alike(plan: Plan, known: Mapping[str, Any]) -> bool:
    engine, command = known.get("engine"), known.get("command")
    if plan.engine is None or not isinstance(engine, dict) or not isinstance(command, list):
        return False
    model = plan.model is None or plan.model in command
    return engine.get("name") == plan.engine and model and known.get("world_size") == plan.sizes.world


def _phases(known: Mapping[str, Any]) -> Iterator[tuple[Phase, float]]:
    """A result that an older version wrote, or that a disk damaged, teaches what of it can be read."""
    rows = known.get("phases")
    for row in rows if isinstance(rows, list) else ():
        name, seconds = (row.get("name"), row.get("seconds")) if isinstance(row, dict) else (None, None)
        if isinstance(name, str) and name in _KNOWN and isinstance(seconds, int | float):
            yield Phase(name), float(seconds)
