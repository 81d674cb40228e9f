"""Has anything moved? Strong signals between two samples, and stillness counted in sampled seconds.

CPU time by itself is weak: deadlocked collectives spin and idle engines poll. Strong is what does work that leaves traces: bytes, faults,
children, fresh log text, weight files. The floors below keep out what a hung start still does (measured on hung vLLM 0.32: one keep-alive
line a minute moves 269 bytes and 5 faults, its sockets' polling moves none; the host of a torch store that waits for a node which never
comes asks its own store 100 times a second, 4,600 bytes in all).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from firsttoken.model.process import Sample

BYTES_FLOOR, STORAGE_FLOOR = 8192, 4096
FAULTS_FLOOR = 16
_CAP = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Motion:
    """`still`: sampled seconds without a strong signal. `signals`: what moved at the last sample that moved. `pending`: signals from
    other events since the last sample. `busy`: cores used over the last interval, `reading` bytes a second. `stopped`: sampled seconds in
    state T or t, by pid.
    """

    samples: Mapping[int, Sample] = field(default_factory=dict)
    at: float | None = None
    still: float = 0.0
    moved_at: float = 0.0
    signals: tuple[str, ...] = ()
    pending: frozenset[str] = frozenset()
    busy: float = 0.0
    reading: float = 0.0
    children: float = 0.0
    starved: bool = False
    stopped: Mapping[int, float] = field(default_factory=dict)


def hint(motion: Motion, signal: str) -> Motion:
    """A strong signal that came by another event (fresh log text, a process born). It ends stillness at once: a proof must not be taken
    between it and the next sample, which tells it."""
    return motion if signal in motion.pending else replace(motion, pending=motion.pending | {signal}, still=0.0)


def sampled(motion: Motion, samples: Iterable[Sample], t: float, interval: float, ticks_per_second: int = 100) -> Motion:
    """After one round of counters at `t`. Each gap counts at most twice the sampling interval: our own pause is not stillness."""
    rows = {sample.pid: sample for sample in samples}
    if motion.at is None:
        return replace(motion, samples=rows, at=t, moved_at=t, pending=frozenset())
    gap = max(t - motion.at, 1e-3)
    pairs = [(old, new) for pid, new in rows.items() if (old := motion.samples.get(pid)) is not None and old.start == new.start]
    moved = {
        "bytes": _sum(pairs, lambda s: max(s.rw_bytes, 0)) >= BYTES_FLOOR * gap,
        "storage": _sum(pairs, lambda s: max(s.read_bytes, 0)) >= STORAGE_FLOOR,
        "faults": _sum(pairs, lambda s: s.faults) >= FAULTS_FLOOR * gap,
        "children": _sum(pairs, lambda s: s.child_ticks) > 0,
    }
    signals = tuple(sorted({name for name, yes in moved.items() if yes} | motion.pending))
    ticks = _sum(pairs, lambda s: s.ticks)
    starved = not signals and any(new.state == "R" and new.ticks == old.ticks for old, new in pairs)
    still = 0.0 if signals else motion.still + (0.0 if starved else min(gap, _CAP * interval))
    return Motion(
        samples=rows,
        at=max(t, motion.at),
        still=still,
        moved_at=t if signals else motion.moved_at,
        signals=signals or motion.signals,
        busy=ticks / ticks_per_second / gap,
        reading=max(_sum(pairs, lambda s: max(s.rw_bytes, 0)), 0) / gap,
        children=_sum(pairs, lambda s: s.child_ticks) / ticks_per_second / gap,
        starved=starved,
        stopped={
            pid: motion.stopped.get(pid, 0.0) + min(gap, _CAP * interval)
            for pid, new in rows.items()
            if new.state in "Tt" and (old := motion.samples.get(pid)) is not None and old.start == new.start and old.state in "Tt"
        },
    )


def _sum(pairs: list[tuple[Sample, Sample]], read: Callable[[Sample], int]) -> int:
    return sum(max(read(new) - read(old), 0) for old, new in pairs)
