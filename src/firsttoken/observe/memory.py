"""How much memory the run takes, told as unique and shared: a sum of RSS counts every shared page once for each rank.

Two ways. The cheap one reads `statm` (no lock, no walk): unique is the sum of anonymous pages, shared the largest count of file and shared
pages that any one process maps. That is a lower bound for shared: eight ranks that map the same weights show it exactly, ranks that map
different files show too little. The exact one reads `smaps_rollup`, which walks every resident page under the mmap lock; it is for a run
that stands still or has just become ready, and takes its reads in a thread that can be left behind.
"""

import mmap
from collections.abc import Iterable

from firsttoken.hosts.procfs import Procfs
from firsttoken.model.events import Memory
from firsttoken.observe.cgroups import MemoryCgroup, memory_cgroup
from firsttoken.observe.errands import Errands

_PATIENCE = 5.0


def memory(procfs: Procfs, pids: Iterable[int], cgroup: MemoryCgroup | None = None, *, page: int = mmap.PAGESIZE) -> Memory:
    """The cheap way. `page_cache` and `limit` are of `cgroup`, or of the first process's where it is None; with no cgroup limit, `limit`
    is the machine's memory. Processes that are gone count nothing."""
    order = tuple(pids)
    unique = shared = 0
    for pid in order:
        pages = parse_statm(procfs.read(f"{pid}/statm", 256))
        if pages is not None:
            _, resident, common = pages
            unique += max(resident - common, 0) * page
            shared = max(shared, common * page)
    return _with_limits(procfs, order, cgroup, unique, shared)


def exact_memory(procfs: Procfs, pids: Iterable[int], cgroup: MemoryCgroup | None = None, *, seconds: float = _PATIENCE) -> Memory | None:
    """By `smaps_rollup`: unique is private, shared the rest of the proportional share, so that pages shared within the run count once and
    those shared with others in part. None where not every process could be read in time."""
    order = tuple(pids)
    rollups = Errands("firsttoken-smaps", most=1).each(lambda pid: procfs.read(f"{pid}/smaps_rollup", 1 << 14), order, seconds=seconds)
    if len(rollups) < len(order):
        return None
    unique = shared = 0
    for pid, raw in rollups.items():
        told = None if raw is None else parse_rollup(raw)
        if told is not None:
            private, proportional = told
            unique += private
            shared += max(proportional - private, 0)
        elif procfs.stat(pid) is not None:
            return None
    return _with_limits(procfs, order, cgroup, unique, shared)


def parse_statm(raw: bytes | None) -> tuple[int, int, int] | None:
    """Pages: size, resident, resident of files and shared memory."""
    fields = (raw or b"").split()
    if len(fields) < 3 or not all(field.isdigit() and len(field) <= 18 for field in fields[:3]):
        return None
    return int(fields[0]), int(fields[1]), int(fields[2])


def parse_rollup(raw: bytes) -> tuple[int, int] | None:
    """Bytes: private (clean and dirty, huge pages too), proportional. None where there is no `Pss`."""
    told: dict[bytes, int] = {}
    for line in raw.split(b"\n"):
        name, _, rest = line.partition(b":")
        value = rest.split()
        if len(value) == 2 and value[1] == b"kB" and value[0].isdigit() and len(value[0]) <= 18:
            told[name] = int(value[0]) << 10
    if b"Pss" not in told:
        return None
    huge = told.get(b"Private_Hugetlb", 0)  # outside Pss
    return told.get(b"Private_Clean", 0) + told.get(b"Private_Dirty", 0) + huge, told[b"Pss"] + huge + told.get(b"Shared_Hugetlb", 0)


def _with_limits(procfs: Procfs, pids: tuple[int, ...], cgroup: MemoryCgroup | None, unique: int, shared: int) -> Memory:
    if cgroup is None and pids:
        cgroup = memory_cgroup(procfs, pids[0])
    machine = _machine(procfs)
    limits = [limit for limit in (machine, None if cgroup is None else cgroup.limit()) if limit is not None]
    return Memory(
        unique=unique,
        shared=shared,
        page_cache=None if cgroup is None else cgroup.page_cache(),
        limit=min(limits, default=None),
    )


def _machine(procfs: Procfs) -> int | None:
    for line in (procfs.read("meminfo", 1 << 14) or b"").split(b"\n"):
        fields = line.split()
        if len(fields) == 3 and fields[0] == b"MemTotal:" and fields[1].isdigit():
            return int(fields[1]) << 10
    return None
