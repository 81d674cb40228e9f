"""What the processes of a run do while weights are loaded: the figures that tell why a load is slower than its storage.

Key insight: a slow load has few reasons, and each has its own counter: page faults that wait for a disk, the kernel's share of processor
time, the size of a read, the number of threads that read, swapping, and the network. They are read only while some process holds shards,
and once before, so that the first difference is whole.
"""

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from firsttoken.hosts.procfs import Procfs
from firsttoken.model.events import LoadSample

_HZ = 100.0
"""USER_HZ, on every architecture that runs servers"""
_PAGE = 4096
_MOST_THREADS = 512
_READS_A_THREAD = 1 << 18
"""bytes between two looks; less is no reading of weights"""


@dataclass(frozen=True, slots=True)
class _Row:
    user: int = 0
    system: int = 0
    major: int = 0
    calls: int = -1
    chars: int = -1
    stored: int = -1


@dataclass(frozen=True, slots=True)
class _Look:
    at: float
    rows: dict[int, _Row]
    threads: dict[int, int] = field(default_factory=dict)
    starved: dict[int, int] = field(default_factory=dict)
    swapped: int = -1
    received: int = -1
    held: bool = False


class LoadWatcher:
    def __init__(self, procfs: Procfs, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._procfs, self._clock = procfs, clock
        self._last: _Look | None = None

    def look(self, pids: Iterable[int], holders: Collection[int]) -> LoadSample | None:
        """`holders`: the pids that have shards open or mapped. None while nobody has, and nobody had at the last look."""
        threads = {tid: count for pid in holders for tid, count in self._threads(pid)}
        starved = {pid: _second(self._procfs.read(f"{pid}/schedstat", 256)) for pid in holders}
        swapped = _swapped(self._procfs.read("vmstat", 1 << 16))
        received = _received(self._procfs.read("net/dev", 1 << 16))
        now = _Look(self._clock(), {pid: self._row(pid) for pid in pids}, threads, starved, swapped, received, bool(holders))
        before, self._last = self._last, now
        if before is None or not (now.held or before.held):
            return None
        return _between(before, now)

    def _row(self, pid: int) -> _Row:
        stat = self._procfs.read(f"{pid}/stat", 4096) or b""
        fields = stat[stat.rfind(b")") + 1 :].split(None, 14)
        io = _pairs(self._procfs.read(f"{pid}/io", 1024), b":")
        try:
            user, system, major = int(fields[11]), int(fields[12]), int(fields[9])
        except (IndexError, ValueError):
            user = system = major = 0
        return _Row(user, system, major, io.get(b"syscr", -1), io.get(b"rchar", -1), io.get(b"read_bytes", -1))

    def _threads(self, pid: int) -> Iterable[tuple[int, int]]:
        """Bytes by thread, by calls or from storage, whichever is more."""
        for tid in list(self._procfs.threads(pid))[:_MOST_THREADS]:
            io = _pairs(self._procfs.read(f"{pid}/task/{tid}/io", 1024), b":")
            yield tid, max(io.get(b"rchar", 0), io.get(b"read_bytes", 0))


def _between(before: _Look, now: _Look) -> LoadSample:
    """A process that is new counts from its start, one that has gone nothing."""
    pairs = [(before.rows.get(pid, _Row(calls=0, chars=0, stored=0)), row) for pid, row in now.rows.items()]
    told = [(old, new) for old, new in pairs if new.calls >= 0]
    readers = sum(count - before.threads.get(tid, 0) >= _READS_A_THREAD for tid, count in now.threads.items() if before.threads)
    return LoadSample(
        seconds=round(now.at - before.at, 3),
        user_s=sum(max(new.user - old.user, 0) for old, new in pairs) / _HZ,
        system_s=sum(max(new.system - old.system, 0) for old, new in pairs) / _HZ,
        major_faults=sum(max(new.major - old.major, 0) for old, new in pairs),
        reads=sum(max(new.calls - max(old.calls, 0), 0) for old, new in told) if told else -1,
        read_bytes=sum(max(new.chars - max(old.chars, 0), 0) for old, new in told) if told else -1,
        stored_bytes=sum(max(new.stored - max(old.stored, 0), 0) for old, new in told) if told else -1,
        readers=readers,
        starved_s=round(max((count - before.starved.get(pid, count) for pid, count in now.starved.items()), default=0) / 1e9, 3),
        swapped_bytes=max(now.swapped - before.swapped, 0) if min(now.swapped, before.swapped) >= 0 else -1,
        received_bytes=max(now.received - before.received, 0) if min(now.received, before.received) >= 0 else -1,
    )


def _second(raw: bytes | None) -> int:
    """/proc/PID/schedstat: nanoseconds on a processor, and waiting for one."""
    fields = (raw or b"").split()
    return int(fields[1]) if len(fields) > 1 and fields[1].isdigit() and len(fields[1]) <= 20 else 0


def _swapped(raw: bytes | None) -> int:
    told = _pairs(raw, b" ")
    return (told[b"pswpin"] + told[b"pswpout"]) * _PAGE if b"pswpin" in told and b"pswpout" in told else -1


def _received(raw: bytes | None) -> int:
    """Bytes that all interfaces but loopback received."""
    total = -1
    for line in (raw or b"").split(b"\n"):
        name, colon, rest = line.partition(b":")
        first = rest.split(None, 1)[:1]
        if colon and name.strip() != b"lo" and first and first[0].isdigit() and len(first[0]) <= 20:
            total = max(total, 0) + int(first[0])
    return total


def _pairs(raw: bytes | None, mark: bytes) -> dict[bytes, int]:
    told: dict[bytes, int] = {}
    for line in (raw or b"").split(b"\n"):
        name, _, value = line.partition(mark)
        value = value.strip()
        if value.isdigit() and len(value) <= 20:
            told[name] = int(value)
    return told
