"""How fast weights of the like were loaded here before, out of memory and from storage: from the results of earlier ready runs."""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from firsttoken.history.runs import RunFolder
from firsttoken.model.weights import Source

_LOOKED_AT = 50
_LATEST = 5
"""of each kind count: machines and engines change"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRates:
    """Bytes a second, medians; None where there was no such load."""

    warm: float | None = None
    cold: float | None = None


def load_rates(engine: str | None, path: str | None, folders: Iterable[RunFolder]) -> LoadRates:
    """Of loads of the same files, by the same engine where it is known; and where there was none, of any files by it. `folders` oldest
    first; `path`: the files' folder. Prefetched loads are left out of both kinds: they are neither."""
    rows = [row for folder in list(folders)[-_LOOKED_AT:] if (row := _load(folder.result())) is not None]
    rows = [row for row in rows if engine is None or row[0] == engine]
    same = [(source, rate) for _, where, source, rate in rows if path is not None and where == path]
    alike = [(source, rate) for _, _, source, rate in rows] if engine is not None else []
    return LoadRates(warm=_of(same, True) or _of(alike, True), cold=_of(same, False) or _of(alike, False))


def _of(rows: list[tuple[str, float]], warm: bool) -> float | None:
    found = [rate for source, rate in rows if (source == Source.PAGE_CACHE) is warm][-_LATEST:]
    return statistics.median(found) if found else None


def _load(known: Mapping[str, Any]) -> tuple[str | None, str | None, str, float] | None:
    """Engine, path, source, rate. A result that an older version wrote, or that a disk damaged, teaches what of it can be read."""
    told, weights = known.get("engine"), known.get("weights")
    if not isinstance(told, dict) or not isinstance(weights, dict):
        return None
    source, rate = weights.get("source"), weights.get("bytes_per_s")
    if not isinstance(source, str) or not isinstance(rate, int | float) or rate <= 0 or weights.get("seconds") is None:
        return None
    return None if weights.get("prefetched") else (told.get("name"), weights.get("path"), source, float(rate))
