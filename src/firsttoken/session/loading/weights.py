"""How long the weights will take to load, and how the load of a run went.

Key insight: whatever asks the weights' file system runs in a child with a deadline, so that a dead mount ends in a sentence. A forecast is
what the like took here before, where that is known; else storage and memory one after the other, which is how loaders that map their files
read. The storage is measured for a moment only where nobody did so lately.
"""

import json
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from firsttoken.history.loads import load_rates
from firsttoken.history.runs import RunFolder, home, runs
from firsttoken.hosts.procfs import Procfs
from firsttoken.judge.advance import advance, initial
from firsttoken.judge.load import load_row
from firsttoken.model.weights import Bound, Forecast, Limit, LoadRow, Rate
from firsttoken.observe.expendable import Expendable
from firsttoken.session.far_files import FAR, Silence
from firsttoken.session.loading.child import room
from firsttoken.survey.storage_rates import RateBook

CHILD = (sys.executable, "-P", "-m", "firsttoken.session.loading.child")
SURVEY_WITHIN, MEASURE_WITHIN = 10.0, 10.0
"""seconds; a start of Python on a busy machine among them"""
_LATELY = 24 * 3600.0
"""seconds for which a measured rate is taken as it is"""
_MEASURED_BY = 8
"""files, the longest"""
_ALL = 0.95
_COPIED = 32 << 20


class WeightsUnknown(Exception):
    """Nothing can be told of the weights; the text says why, and what was tried. `silent`: their file system gave no answer, or the look
    failed; else it says that they are not there."""

    def __init__(self, text: str, *, silent: bool = False) -> None:
        super().__init__(text)
        self.silent = silent


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Weight files as they lie: (path, bytes) in the order of loading, how much of each is cached (None: not told), and their place."""

    path: str
    engine: str | None = None
    files: tuple[tuple[str, int], ...] = ()
    cached: tuple[int | None, ...] = ()
    place: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.files)

    @property
    def cached_bytes(self) -> int | None:
        told = [count for count in self.cached if count is not None]
        return sum(told) if len(told) == len(self.cached) else None

    @property
    def key(self) -> str:
        return str(self.place.get("key", ""))

    @property
    def words(self) -> str:
        return str(self.place.get("words", ""))

    @property
    def network(self) -> bool:
        return bool(self.place.get("network"))

    @property
    def read_ahead(self) -> int:
        return int(self.place.get("read_ahead", 128 << 10))


async def find(request: Mapping[str, Any], *, within: float = SURVEY_WITHIN, child: Sequence[str] = CHILD) -> Found:
    """`request`: `{"path": …}` or `{"argv": […]}`. WeightsUnknown where there are no weights, or their file system gives no answer."""
    path = os.path.abspath(request["path"]) if "path" in request else None  # noqa: ASYNC240  # asks no file system
    asked = {**request, "path": path} if path is not None else dict(request)
    outcome = await Expendable().run((*child, "survey", json.dumps(asked)), within, line=True)
    if outcome.error is not None:
        what, named = (path, [path]) if path is not None else (shlex.join(request["argv"]), request["argv"])
        why = _late(what, named, within) if outcome.late else f"{what}: its weights could not be looked at ({outcome.error})"
        raise WeightsUnknown(why, silent=True)
    told = _json(outcome.output)
    if "silent" in told:
        raise WeightsUnknown(str(told["silent"]), silent=True)
    if "error" in told:
        broken = "; ".join(told.get("problems", ()))
        raise WeightsUnknown(f"{told['error']}{f' ({broken})' if broken else ''}")
    return Found(
        path=str(told["path"]),
        engine=told.get("engine"),
        files=tuple((str(name), int(size)) for name, size in told["files"]),
        cached=tuple(told["cached"]),
        place=told.get("place") or {},
        problems=tuple(told.get("problems", ())),
    )


def rate_book() -> RateBook:
    return RateBook(home() / "storage-rates.json")


def remembered(found: Found) -> Rate | None:
    kept = rate_book().get(found.key)
    return Rate(bytes_per_s=kept.bytes_per_s, how="remembered", age_s=kept.age_s) if kept is not None else None


async def storage_rate(
    found: Found, *, anew: bool = False, within: float = MEASURE_WITHIN, child: Sequence[str] = CHILD
) -> tuple[Rate | None, str | None]:
    """Remembered where it was measured lately, else measured for a moment; and why it is not known. WeightsUnknown where the file system
    has died meanwhile."""
    if found.place.get("memory"):
        return None, None
    kept = remembered(found)
    if kept is not None and kept.age_s < _LATELY and not anew:
        return kept, None
    longest = [path for path, _ in sorted(found.files, key=lambda file: -file[1])[:_MEASURED_BY]]
    outcome = await Expendable().run((*child, "measure", json.dumps({"paths": longest})), within, line=True)
    told = _json(outcome.output)
    if outcome.error is None and "bytes_per_s" in told:
        rate = float(told["bytes_per_s"])
        rate_book().keep(found.key, rate)
        return Rate(bytes_per_s=rate, how="measured"), None
    if outcome.late and (silence := FAR.silence(longest[0])) is not None:
        raise WeightsUnknown(silence.advice(found.path), silent=True)
    why = outcome.error or told.get("error") or "no answer"
    return kept, f"the storage was not measured: {why}"


async def forecast(request: Mapping[str, Any], *, anew: bool = False, child: Sequence[str] = CHILD) -> tuple[Found, Forecast]:
    """`anew`: measure the storage even where its rate is remembered. WeightsUnknown as in `find`."""
    found = await find(request, child=child)
    storage, problem = await storage_rate(found, anew=anew, child=child)
    past = load_rates(found.engine, found.path, runs())
    warm = Rate(bytes_per_s=past.warm, how="runs") if past.warm is not None else Rate(bytes_per_s=_copy_rate(), how="measured")
    told = Forecast(
        path=found.path,
        engine=found.engine,
        shards=len(found.files),
        bytes=found.bytes,
        cached=found.cached_bytes,
        place=found.words or None,
        network=found.network,
        storage=storage,
        warm=warm,
        room=room(Procfs()),
        problems=(*found.problems, *((problem,) if problem else ())),
    )
    return found, timed(told, cold=past.cold)


def timed(told: Forecast, *, cold: float | None = None) -> Forecast:
    """With the times that follow. `cold`: bytes a second of earlier cold loads of the like. Pure."""
    warm_s = told.bytes / told.warm.bytes_per_s if told.warm is not None else None
    cold_s = None
    if cold is not None:
        cold_s = told.bytes / cold
    elif told.storage is not None and warm_s is not None:
        cold_s = told.bytes / told.storage.bytes_per_s + warm_s
    if cold_s is not None and warm_s is not None:
        cold_s = max(cold_s, warm_s)
    share = told.cached / told.bytes if told.cached is not None and told.bytes else None
    now_s = None
    if share is not None and warm_s is not None:
        now_s = warm_s if share >= 1 else share * warm_s + (1 - share) * cold_s if cold_s is not None else None
    return replace(told, cold_s=cold_s, warm_s=warm_s, now_s=now_s, limit=_limit(told, share, now_s))


def _limit(told: Forecast, share: float | None, now_s: float | None) -> Limit | None:
    """What sets the pace of a load that begins now."""
    if share is None or not told.bytes:
        return None
    if told.storage is not None and now_s is not None and share < _ALL:
        far = told.bytes * (1 - share) / told.storage.bytes_per_s
        if far >= now_s / 2:
            return Limit(what=Bound.NETWORK if told.network else Bound.STORAGE, bytes_per_s=told.storage.bytes_per_s)
    if told.warm is None:
        return None
    known = told.warm.how == "runs"
    return Limit(what=Bound.ENGINE if known else Bound.MEMORY, bytes_per_s=told.bytes / now_s if known and now_s else told.warm.bytes_per_s)


async def load_of(folder: RunFolder, *, anew: bool = False) -> LoadRow:
    """How the load of a run went. Where its storage was not measured then, that is made up for, if the weights are still there."""
    state = initial()
    for event in folder.events():
        state = advance(state, event)
    seen = state.load.storage
    if seen is None or seen.bytes_per_s is None or anew:
        path = next(iter(state.plan.weight_files), None)
        if path is not None:
            try:
                found = await find({"path": path})
                rate, _ = await storage_rate(found, anew=anew)
            except WeightsUnknown:
                rate = None
            if rate is not None:
                state = replace(state, load=replace(state.load, storage_rate=rate.bytes_per_s, network=found.network))
    return load_row(state)


def _copy_rate() -> float:
    """Bytes a second that one core copies: what a load out of memory can reach at most, where nothing better is known."""
    source, target = memoryview(bytearray(_COPIED)), bytearray(_COPIED)
    best = 0.0
    for _ in range(3):
        began = time.thread_time()  # processor time: a machine that is busy now may not be later
        target[:] = source
        best = max(best, _COPIED / max(time.thread_time() - began, 1e-6))
    return best


def _late(what: str, named: Sequence[str], within: float) -> str:
    """`named`: words of which some may be paths."""
    far = (FAR.mount(word) for word in named if word.startswith("/"))
    mount = next((mount for mount in far if mount is not None and not mount.here), None)
    if mount is not None:
        return Silence(mount=mount, seconds=within).advice(what)
    return f"{what}: its file system gave no answer within {within:.0f} s. Is a mount dead? `df` shows where it stops"


def _json(raw: bytes) -> dict[str, Any]:
    try:
        told = json.loads(raw)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}
