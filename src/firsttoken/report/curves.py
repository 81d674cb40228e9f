"""Counters over time, for all processes of a run together.

Key insight: a process's counters hold those of its children that it has reaped, so the sum over all live processes never counts anything
twice and loses nothing; its changes are what the run did.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from firsttoken.model.events import Counters, Event, Gpus, LogActivity, Memory, WeightProgress
from firsttoken.model.gpu import GpuSample
from firsttoken.model.process import Sample
from firsttoken.report.content import Curve

_TICKS = 100
"""USER_HZ: ticks a second, on all architectures of today's Linux"""
_MOST_POINTS = 240

Points = list[tuple[float, float]]

_GPUS: dict[tuple[str, str], Callable[[GpuSample], float | None]] = {
    ("GPUs busy", "GPUs"): lambda gpu: gpu.busy,
    ("GPU memory", "GB"): lambda gpu: gpu.memory_used / 1e9 if gpu.memory_used is not None else None,
    ("GPU power", "W"): lambda gpu: gpu.power,
    ("GPU links", "MB/s"): lambda gpu: sum(rate or 0.0 for rate in (gpu.pcie_rx, gpu.pcie_tx, gpu.nvlink_rx, gpu.nvlink_tx)) / 1e6,
}
_GPU_NOTE = "all GPUs of the machine; a kernel that only waits keeps one busy too"


def curves(events: Iterable[Event], until: float) -> tuple[Curve, ...]:
    """Those of which there is anything to see, up to `until`."""
    samples: list[tuple[float, Sequence[Sample]]] = []
    sampled_at = -1.0
    lines: Points = []
    fresh: Points = []
    weights: Points = []
    memory: Points = []
    gpus: dict[tuple[str, str], Points] = {}
    told_at = 0.0
    for event in events:
        if event.t > until:
            continue
        match event.body:
            case Counters() if event.t - sampled_at >= event.body.interval / 2:  # two that came together were only late
                samples.append((event.t, event.body.samples))
                sampled_at = event.t
            case LogActivity():
                span = max(event.t - told_at, 0.5)
                lines.append((event.t, event.body.lines / span))
                fresh.append((event.t, event.body.fresh / span))
                told_at = event.t
            case Gpus():
                for name, of in _GPUS.items():
                    told = [value for sample in event.body.samples if (value := of(sample)) is not None]
                    gpus.setdefault(name, []).extend([(event.t, sum(told))] if told else [])
            case WeightProgress():
                weights.append((event.t, event.body.bytes_done / 1e9))
            case Memory():
                memory.append((event.t, (event.body.unique + event.body.shared) / 1e9))
            case _:
                pass
    io_note = "reads and writes of all processes, pipes and page cache included"
    storage_note = "what was not in the page cache"
    found = (
        Curve(name="CPU", unit="cores", points=_rate(samples, lambda s: (s.ticks + s.child_ticks) / _TICKS), note="of all processes"),
        Curve(name="read and written", unit="MB/s", points=_rate(samples, lambda s: s.rw_bytes / 1e6), note=io_note),
        Curve(name="read from storage", unit="MB/s", points=_rate(samples, lambda s: s.read_bytes / 1e6), note=storage_note),
        Curve(name="log", unit="lines/s", points=_quiet(lines, until)),
        Curve(name="log, lines that say something new", unit="lines/s", points=_quiet(fresh, until)),
        *(Curve(name=name, unit=unit, points=tuple(points), note=_GPU_NOTE) for (name, unit), points in gpus.items()),
        Curve(name="weights read", unit="GB", points=tuple(weights)),
        Curve(name="memory", unit="GB", points=tuple(memory), note="private, and shared counted once"),
    )
    return tuple(replace(one, points=_thinned(one.points)) for one in found if len(one.points) > 1 and any(v for _, v in one.points))


def _rate(samples: Sequence[tuple[float, Sequence[Sample]]], of: Callable[[Sample], float]) -> tuple[tuple[float, float], ...]:
    """A second. A process that went without being reaped takes its counters with it: the sum then falls, and nothing is told."""
    points: Points = []
    before: tuple[float, float] | None = None
    for t, rows in samples:
        known = [value for row in rows if (value := of(row)) >= 0]
        total = sum(known)
        if before is not None and t > before[0] and known:
            points.append((t, max(total - before[1], 0.0) / (t - before[0])))
        if known:
            before = (t, total)
    return tuple(points)


def _quiet(points: Points, until: float) -> tuple[tuple[float, float], ...]:
    """Activity is told only where there is some: between two of them more than two seconds apart there was none."""
    filled: Points = []
    last = 0.0
    for t, value in points:
        if t - last > 2.0:
            filled += [(last + 1.0, 0.0), (t - 1.0, 0.0)]
        filled.append((t, value))
        last = t
    if points and until - last > 2.0:
        filled += [(last + 1.0, 0.0), (until, 0.0)]
    return tuple(filled)


def _thinned(points: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    """Of each stretch of time the highest value: a peak must not get lost."""
    if len(points) <= _MOST_POINTS:
        return tuple((round(t, 2), round(value, 3)) for t, value in points)
    size = -(-len(points) // _MOST_POINTS)
    groups = [points[at : at + size] for at in range(0, len(points), size)]
    return tuple((round(group[-1][0], 2), round(max(value for _, value in group), 3)) for group in groups)
