"""How long the phases of the like took on this machine: the mean over earlier runs that became ready with the same engine, model and sizes."""

from collections.abc import Iterable, Mapping
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
        if known.get("verdict") != "ready" or not _alike(plan, known):
            continue
        for row in known.get("phases") or []:
            if row.get("name") in _KNOWN and isinstance(row.get("seconds"), int | float):
                taken.setdefault(Phase(row["name"]), []).append(float(row["seconds"]))
    return {phase: sum(seconds) / len(seconds) for phase, seconds in taken.items()}


def _alike(plan: Plan, known: Mapping[str, Any]) -> bool:
    engine = (known.get("engine") or {}).get("name")
    model = plan.model is None or plan.model in known.get("command", ())
    return plan.engine is not None and engine == plan.engine and model and known.get("world_size") == plan.sizes.world
