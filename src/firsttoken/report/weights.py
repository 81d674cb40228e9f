"""What loading weights takes, for people and scripts: before a start, and after it."""

from typing import Any

from firsttoken.model.weights import Bound, Forecast, Limit, LoadRow, Rate
from firsttoken.report.document import document

_PACE = {
    Bound.STORAGE: "the storage",
    Bound.NETWORK: "the network storage",
    Bound.ENGINE: "what the engine does with the bytes",
    Bound.MEMORY: "copying out of memory",
}


def forecast_document(told: Forecast) -> dict[str, Any]:
    """Kind `weights`, of a load that has not begun."""
    return document(
        "weights",
        path=told.path,
        engine=told.engine,
        bytes=told.bytes,
        shards=told.shards,
        cached_bytes=told.cached,
        cached_share=_share(told),
        storage=told.place,
        storage_bytes_per_s=told.storage.bytes_per_s if told.storage is not None else None,
        storage_rate=_rate(told.storage),
        warm_rate=_rate(told.warm),
        achieved_bytes_per_s=None,
        seconds=None,
        source=None,
        predicted_cold_s=told.cold_s,
        predicted_warm_s=told.warm_s,
        predicted_now_s=told.now_s,
        limit=_limit(told.limit),
        room_bytes=told.room,
        reasons=[],
        says=[],
        problems=list(told.problems),
    )


def load_document(row: LoadRow, run: str) -> dict[str, Any]:
    """Kind `weights`, of a run's load."""
    return document(
        "weights",
        run=run,
        bytes=row.bytes,
        shards=None,
        cached_share=row.cached_share,
        storage_bytes_per_s=row.storage_bytes_per_s,
        achieved_bytes_per_s=row.bytes_per_s,
        seconds=row.seconds,
        source=row.source,
        prefetched_bytes=row.prefetched,
        predicted_cold_s=row.next_cold_s,
        predicted_warm_s=row.seconds if row.source == "page_cache" else None,
        limit=_limit(row.limit),
        reasons=list(row.reasons),
        says=list(row.says),
    )


def forecast_text(told: Forecast) -> str:
    share = _share(told)
    cached = "how much of it is in memory is not told" if share is None else f"{share:.0%} of it in the page cache"
    lines = [f"{told.path}: {size(told.bytes)} in {told.shards} file{'' if told.shards == 1 else 's'}, {cached}"]
    if told.place is not None:
        rate = f"{size(told.storage.bytes_per_s)}/s in sequence ({_how(told.storage)})" if told.storage is not None else "rate not known"
        lines.append(f"  storage  {told.place}: {rate}")
    if told.warm is not None:
        known = "as earlier loads of the like" if told.warm.how == "runs" else "as one core copies; no earlier load of the like is known"
        lines.append(f"  memory   {size(told.warm.bytes_per_s)}/s ({known})")
    lines.append(f"  to load  {_time(told.cold_s)} cold, {_time(told.warm_s)} warm, {_time(told.now_s)} as it is now")
    if told.limit is not None:
        lines.append(f"  limit    {_PACE[told.limit.what]}, {size(told.limit.bytes_per_s)}/s")
    if told.room is not None and told.room < told.bytes:
        lines.append(f"  memory has room for {size(told.room)} of it: a load will be cold in part, whatever came before")
    if share is not None and share < 0.95 and told.cold_s is not None and told.warm_s is not None and told.room not in (None, 0):
        lines.append("  `--prefetch` puts it into memory beforehand, `firsttoken run --prefetch -- …` beside the start")
    return "\n".join([*lines, *(f"  problem: {text}" for text in told.problems)])


def load_text(row: LoadRow) -> str:
    if not row.says:
        return "the weights of this run were not loaded to the end so far, or nothing tells when"
    return "\n".join([row.says[0], *(f"  why: {text}" for text in row.says[1:])])


def size(count: float) -> str:
    """Decimal, as disks and networks are sold."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{count / unit:.2f} {name}" if count < 10 * unit else f"{count / unit:.0f} {name}"
    return f"{count / 1e3:.1f} kB"


def _share(told: Forecast) -> float | None:
    return round(told.cached / told.bytes, 4) if told.cached is not None and told.bytes else None


def _rate(rate: Rate | None) -> dict[str, Any] | None:
    return None if rate is None else {"bytes_per_s": rate.bytes_per_s, "how": rate.how, "age_s": round(rate.age_s)}


def _limit(limit: Limit | None) -> dict[str, Any] | None:
    return None if limit is None else {"what": str(limit.what), "bytes_per_s": limit.bytes_per_s}


def _how(rate: Rate) -> str:
    if rate.how != "remembered":
        return rate.how
    hours = rate.age_s / 3600
    return f"measured {hours:.0f} h ago" if hours >= 1 else f"measured {rate.age_s / 60:.0f} min ago"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "not known how long"
    return f"{seconds:.1f} s" if seconds < 600 else f"{seconds / 60:.0f} min"
