"""GPUs as witnesses: traffic is progress, and full use without any traffic, at little power, is a kernel that only waits.

Utilisation alone says nothing: it is 100 % while any kernel runs, and a collective whose peers never come runs for ever. What tells the two
apart is what work leaves behind: memory, PCIe and NVLink traffic, and the power that arithmetic takes. Only GPUs on which a process of the
run is seen count as evidence; of GPUs whose processes cannot be told (in a container) traffic is taken for ours, and nothing else is.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from firsttoken.model.events import Gpus
from firsttoken.model.gpu import GpuSample

TRAFFIC = 32e6
"""bytes a second over PCIe or NVLink that are work; what a waiting kernel and the driver exchange stays far below"""
GROWTH = 8 << 20
"""bytes of device memory, taken or given back"""
DRAM, MEMORY_BUSY = 0.02, 0.05
"""shares of memory bandwidth (GPM) and of time with memory accesses that are work"""
FULL = 0.95
LOW_POWER = 0.45
"""share of what a card may draw: below it nothing is computed"""
SPINS_AFTER, SPINS_ALONE_AFTER = 30.0, 60.0
"""sampled seconds, on all ranks' GPUs and where there is one rank only, after which spinning proves that nothing will come of it"""
_KEPT_XIDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuWatch:
    """`samples` of the last time, by index; `own`: GPUs on which the run has been seen, `spun`: sampled seconds for which each has only
    spun. `moved`: what moved between the last two samples.
    """

    samples: Mapping[int, GpuSample] = field(default_factory=dict)
    at: float | None = None
    source: str = ""
    driver: str | None = None
    own: frozenset[int] = frozenset()
    spun: Mapping[int, float] = field(default_factory=dict)
    moved: tuple[str, ...] = ()
    xids: tuple[tuple[int, int], ...] = ()
    """(GPU, error) in the order in which they came"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spin:
    """`ranks` whose GPUs spin, `still` ranks whose GPUs do nothing; `proven`: all ranks' GPUs spin, and for long enough."""

    ranks: tuple[int, ...]
    idle: tuple[int, ...]
    seconds: float
    text: str
    proven: bool


def noted(watch: GpuWatch, body: Gpus, t: float, pids: Collection[int]) -> GpuWatch:
    """`pids`: of the run's processes."""
    rows = {sample.index: sample for sample in body.samples}
    here = frozenset(index for index, sample in rows.items() if any(process.pid in pids for process in sample.processes or ()))
    own = watch.own | here
    told = any(sample.processes for sample in rows.values())
    gap = 0.0 if watch.at is None else min(max(t - watch.at, 0.0), 2 * body.interval)
    moved = [
        signal for index, sample in sorted(rows.items()) if index in own or not told for signal in _moved(watch.samples.get(index), sample)
    ]
    return replace(
        watch,
        samples=rows,
        at=t,
        source=body.source,
        driver=body.driver or watch.driver,
        own=own,
        spun={index: watch.spun.get(index, 0.0) + gap for index in here if _spins(watch.samples.get(index), rows[index])},
        moved=tuple(dict.fromkeys(moved)),
        xids=(*watch.xids, *((index, xid) for index, sample in rows.items() for xid in sample.xids))[-_KEPT_XIDS:],
    )


def spin(watch: GpuWatch, ranks: Mapping[int, int]) -> Spin | None:
    """None where no rank's GPU spins. `ranks`: world ranks by pid, of all ranks on this machine."""
    used: dict[int, set[int]] = {}
    for index, sample in watch.samples.items():
        for process in sample.processes or ():
            if process.pid in ranks:
                used.setdefault(ranks[process.pid], set()).add(index)
    spinning = sorted(rank for rank, indices in used.items() if any(watch.spun.get(index, 0.0) > 0 for index in indices))
    if not spinning:
        return None
    gpus = sorted({index for rank in spinning for index in used[rank] if watch.spun.get(index, 0.0) > 0})
    seconds = min(watch.spun[index] for index in gpus)
    idle = tuple(sorted(rank for rank, indices in used.items() if all(_idles(watch.samples[index]) for index in indices)))
    everywhere = set(spinning) == set(ranks.values())
    return Spin(
        ranks=tuple(spinning),
        idle=idle,
        seconds=seconds,
        text=_said(watch, gpus, seconds),
        proven=everywhere and seconds >= (SPINS_AFTER if len(spinning) > 1 else SPINS_ALONE_AFTER),
    )


def rows(watch: GpuWatch, pids: Collection[int]) -> tuple[dict[str, Any], ...]:
    """As in the result document: per cent, MiB, watts, bytes a second."""
    return tuple(_row(watch, sample, pids) for _, sample in sorted(watch.samples.items()))


def notes(watch: GpuWatch) -> tuple[str, ...]:
    """Facts about the run's GPUs worth a line beside any verdict: errors, throttling, a slow link."""
    told = [f"GPU {index} reported Xid {xid}" for index, xid in dict.fromkeys(watch.xids)]
    for index, sample in sorted(watch.samples.items()):
        if index not in watch.own and not sample.lost:
            continue
        if sample.lost:
            told.append(f"GPU {index} does not answer its driver any more")
        if sample.throttled:
            told.append(f"GPU {index} is slowed down: {', '.join(sample.throttled)}")
        if sample.link_width is not None and sample.link_width_most is not None and sample.link_width < sample.link_width_most:
            told.append(f"GPU {index} has {sample.link_width} of {sample.link_width_most} PCIe lanes")
    return tuple(told)


def _moved(old: GpuSample | None, new: GpuSample) -> list[str]:
    """Strong signals of one GPU."""
    found = []
    if old is not None and old.memory_used is not None and new.memory_used is not None and abs(new.memory_used - old.memory_used) >= GROWTH:
        found.append("gpu memory")
    if _traffic(new) >= TRAFFIC:
        found.append("gpu traffic")
    if (new.dram if new.dram is not None else 0.0) >= DRAM or (new.dram is None and (new.memory_busy or 0.0) >= MEMORY_BUSY):
        found.append("gpu work")
    return found


def _spins(old: GpuSample | None, new: GpuSample) -> bool:
    """What is not told is not taken for quiet: without power, or without any traffic counter, nothing spins."""
    if new.busy is None or new.busy < FULL or not new.power or not new.power_limit:
        return False
    if new.dram is None and new.memory_busy is None:
        return False
    return new.power < LOW_POWER * new.power_limit and old is not None and not _moved(old, new)


def _idles(sample: GpuSample) -> bool:
    return sample.busy is not None and sample.busy < 0.05


def _traffic(sample: GpuSample) -> float:
    return max(value or 0.0 for value in (sample.pcie_rx, sample.pcie_tx, sample.nvlink_rx, sample.nvlink_tx))


def _said(watch: GpuWatch, gpus: Sequence[int], seconds: float) -> str:
    shown = [watch.samples[index] for index in gpus]
    least, most = min(sample.power or 0.0 for sample in shown), max(sample.power or 0.0 for sample in shown)
    limit = max(sample.power_limit or 0.0 for sample in shown)
    watts = f"{most:.0f}" if most - least < 1 else f"{least:.0f} to {most:.0f}"
    who = f"GPU {gpus[0]} is" if len(gpus) == 1 else f"{len(gpus)} GPUs are"
    use = f"{who} fully used without memory, PCIe or link traffic, at {watts} W of {limit:.0f} W"
    return f"{use}, for {seconds:.0f} s: a kernel that only waits"


def _row(watch: GpuWatch, sample: GpuSample, pids: Collection[int]) -> dict[str, Any]:
    own = sample.index in watch.own
    doing = None
    if sample.lost:
        doing = "lost"
    elif watch.spun.get(sample.index, 0.0) > 0:
        doing = "spinning"
    elif _moved(None, sample):
        doing = "working"
    elif _idles(sample):
        doing = "idle"
    return {
        "index": sample.index,
        "uuid": sample.uuid or None,
        "name": sample.name or None,
        "compute_capability": sample.compute_capability,
        "in_run": own,
        "doing": doing,
        "spun_s": watch.spun.get(sample.index),
        "utilisation": _percent(sample.busy),
        "memory_busy": _percent(sample.memory_busy),
        "dram_busy": _percent(sample.dram),
        "memory_used_mib": _mib(sample.memory_used),
        "memory_total_mib": _mib(sample.memory_total),
        "power_w": sample.power,
        "power_limit_w": sample.power_limit,
        "pcie_bytes_per_s": _sum(sample.pcie_rx, sample.pcie_tx),
        "nvlink_bytes_per_s": _sum(sample.nvlink_rx, sample.nvlink_tx),
        "temperature_c": sample.temperature,
        "sm_clock_mhz": sample.sm_clock,
        "throttled": list(sample.throttled),
        "xids": [xid for index, xid in watch.xids if index == sample.index],
        "link": {
            "generation": sample.link_generation,
            "generation_most": sample.link_generation_most,
            "lanes": sample.link_width,
            "lanes_most": sample.link_width_most,
        },
        "processes": [{"pid": p.pid, "memory_mib": _mib(p.memory), "in_run": p.pid in pids} for p in sample.processes or ()],
    }


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None and second is None else (first or 0.0) + (second or 0.0)


def _percent(share: float | None) -> float | None:
    return None if share is None else round(share * 100, 1)


def _mib(size: int | None) -> float | None:
    return None if size is None else round(size / (1 << 20), 1)
