"""How far the weights are loaded, from outside: open shard files, their offsets, and file pages that a process maps.

Key insight: a loader that maps its files (safetensors, GGUF) moves no offset and counts no read, but each page that it touches becomes a
resident file page of its process. `statm` tells their number without a walk, for a warm page cache as for a cold one: while shards are
mapped, its growth since none was is what was touched of them. Plain reads move the descriptor's offset; `pread` and direct reads show only
in the process's read counters. A shard that was seen being read and is closed again is done; since looks are a second apart, shards that
stand before an open one are taken as done too while files were only ever opened in their order. Every estimate is bounded by the sizes
of the files it is about, and `how` says which were used. Costs: descriptors each look, `maps` only of processes that map shards or whose
size changed, and both spaced so that they take about a hundredth of the time at most. Nothing here opens a weight file.
"""

import mmap
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from firsttoken.hosts.procfs import Procfs
from firsttoken.model.events import Missed, WeightProgress
from firsttoken.model.process import ShardFile
from firsttoken.observe.counters import parse_io
from firsttoken.observe.errands import Errand, Errands
from firsttoken.observe.memory import parse_statm
from firsttoken.observe.shard_book import ShardBook
from firsttoken.observe.shards import Read, ShardSet, may_be_weights, place_of, read_directly, survey

_DESCRIPTOR_SHARE = 0.005
_MAPS_SHARE = 0.01
"""looks are spaced so that they take no more CPU time than this"""
_SURVEY_DEADLINE = 5.0
_SURVEY_AGAIN = 10.0
"""files that came after the survey of their folder (a download) are surveyed again after this"""
_MAPS_PATIENCE = 0.5
_MAPS_EVERY = 10.0
_MOST_SURVEYS = 64
_MOST_FILES_TOLD = 64


@dataclass(slots=True)
class _Reader:
    """One process. The `*_before` values are from the last look at which it held no weight file."""

    size: int = -1
    mapped: frozenset[str] = frozenset()
    mapped_at: float = float("-inf")
    based: bool = False
    shared_before: int = 0
    read_before: int = 0
    stored_before: int = 0
    shared: int = 0
    read: int = 0
    stored: int = 0
    offsets: dict[str, int] = field(default_factory=dict)

    @property
    def held(self) -> frozenset[str]:
        return self.mapped | self.offsets.keys()


class WeightWatcher:
    """`paths`: folders or files that the command names, where they are local; others are found when a process opens them. `read`: by what
    an index is read."""

    def __init__(
        self,
        procfs: Procfs,
        paths: Iterable[str] = (),
        *,
        read: Read = read_directly,
        clock: Callable[[], float] = time.monotonic,
        cost: Callable[[], float] = time.thread_time,
        page: int = mmap.PAGESIZE,
    ) -> None:
        self._procfs = procfs
        self._read = read
        self._clock = clock
        self._cost = cost
        self._page = page
        self._book = ShardBook()
        self._readers: dict[int, _Reader] = {}
        self._surveys: dict[str, Errand[tuple[ShardSet, ...]]] = {}
        self._asked: dict[str, float] = {}
        self._late: set[str] = set()
        self._errands = Errands("firsttoken-weights")
        self._maps = Errands("firsttoken-maps", most=2)
        self._next = float("-inf")
        self._maps_next = float("-inf")
        self._last: WeightProgress | None = None
        self._missed: list[Missed] = []
        self._told: set[str] = set()
        self._refused: list[tuple[str, bool]] = []
        for path in dict.fromkeys(paths):
            self._ask(path, given=True)

    def look(self, pids: Iterable[int]) -> WeightProgress | None:
        """What is loaded by now, when it differs from what was told before. Never waits for a file system."""
        now, began = self._clock(), self._cost()
        surveyed = self._collect()
        if now < self._next:
            return self._tell() if surveyed else None
        order = tuple(dict.fromkeys(pids))
        self._readers = {pid: self._readers.get(pid) or _Reader() for pid in order}
        self._read_descriptors()
        self._read_maps(now)
        self._read_counters()
        self._estimate()
        self._next = now + (self._cost() - began) / _DESCRIPTOR_SHARE
        return self._tell()

    def missed(self) -> list[Missed]:
        told, self._missed = self._missed, []
        return told

    def _miss(self, reason: str) -> None:
        """Each reason is told once."""
        if reason not in self._told:
            self._told.add(reason)
            self._missed.append(Missed(request="weights", reason=reason))

    @property
    def holders(self) -> tuple[int, ...]:
        """Processes that had shards open or mapped at the last look."""
        return tuple(pid for pid, reader in self._readers.items() if reader.held)

    @property
    def surveying(self) -> bool:
        """Whether the file system still has to answer."""
        return bool(self._surveys)

    def _ask(self, path: str, *, given: bool) -> None:
        place = path if given else place_of(path)
        now = self._clock()
        if now < self._asked.get(place, float("-inf")) + _SURVEY_AGAIN or (place not in self._asked and len(self._asked) >= _MOST_SURVEYS):
            return
        errand = self._errands.send(lambda: survey(path, given=given, read=self._read))
        if errand is None:
            if given:
                self._refused.append((path, given))
            return
        self._asked[place] = now
        self._surveys[path] = errand

    def _collect(self) -> bool:
        """Takes in the surveys that came back; one that is late is told once, and still taken in when it comes."""
        found = False
        for path, errand in list(self._surveys.items()):
            if errand.done:
                del self._surveys[path]
                for shards in errand.result or ():
                    found = self._book.add(shards) or found
            elif path not in self._late and time.monotonic() - errand.began > _SURVEY_DEADLINE:
                self._late.add(path)
                reason = f"{path}: not checked, its file system gave no answer within {_SURVEY_DEADLINE:.0f} s (a dead mount?)"
                self._miss(reason)
        refused, self._refused = self._refused, []
        for path, given in refused:
            self._ask(path, given=given)
        return found

    def _read_descriptors(self) -> None:
        for pid, reader in self._readers.items():
            reader.offsets = {}
            targets = self._procfs.fds(pid)
            if not targets and self._procfs.hides_files(pid):
                self._miss(f"the open files of pid {pid} may not be read (another user's process?)")
            for fd, target in targets.items():
                if self._wanted(target):
                    offset, reads = parse_fdinfo(self._procfs.read(f"{pid}/fdinfo/{fd}", 512))
                    if reads:
                        reader.offsets[target] = max(offset, reader.offsets.get(target, 0))

    def _read_maps(self, now: float) -> None:
        """Only of processes that map shards (the next has often the size of the last) or whose size changed: a file that is mapped
        changes it."""
        changed: dict[int, int] = {}
        for pid, reader in self._readers.items():
            pages = parse_statm(self._procfs.read(f"{pid}/statm", 256))
            if pages is None:
                reader.mapped = frozenset()
                continue
            size, _, reader.shared = pages
            if size != reader.size or reader.mapped or now - reader.mapped_at >= _MAPS_EVERY:
                changed[pid] = size
        if not changed or now < self._maps_next:
            return
        spent = 0.0
        for pid, (mapped, cost) in self._maps.each(self._mapped, changed, seconds=_MAPS_PATIENCE).items():
            spent += cost
            reader = self._readers[pid]
            reader.mapped = frozenset(path for path in mapped if self._wanted(path))
            reader.size = changed[pid]
            reader.mapped_at = now
        self._maps_next = now + spent / _MAPS_SHARE

    def _mapped(self, pid: int) -> tuple[frozenset[str], float]:
        """Runs in an errand's thread; its own CPU time is the cost, as waiting for the lock or the CPU costs nobody."""
        began = self._cost()
        return mapped_files(self._procfs.read(f"{pid}/maps") or b""), self._cost() - began

    def _wanted(self, path: str) -> bool:
        """Known as a shard; what only looks like one is surveyed, for the next look."""
        if path in self._book:
            return True
        if path.startswith("/") and may_be_weights(path):
            self._ask(path, given=False)
        return False

    def _read_counters(self) -> None:
        for pid, reader in self._readers.items():
            reader.read, reader.stored = (max(value, 0) for value in parse_io(self._procfs.read(f"{pid}/io", 1024)))
            if not (reader.based and reader.held):
                reader.based = True
                reader.shared_before, reader.read_before, reader.stored_before = reader.shared, reader.read, reader.stored
            # a process that was first seen with a shard mapped shows what it has without one when it goes on to the next
            reader.shared_before = min(reader.shared_before, reader.shared)

    def _estimate(self) -> None:
        furthest: dict[str, tuple[int, str]] = {}
        by_counters = 0
        stored = 0
        for reader in self._readers.values():
            touched = max(reader.shared - reader.shared_before, 0) * self._page
            mapped_size = sum(self._book.size(path) for path in reader.mapped)
            for path in reader.held:
                size = self._book.size(path)
                offset = reader.offsets.get(path, 0)
                part = touched * size // mapped_size if path in reader.mapped and mapped_size else 0
                best = (min(offset, size), "offset") if offset >= part else (min(part, size), "mapped")
                furthest[path] = max(furthest.get(path, (0, "")), best)
            if reader.offsets.keys() - reader.mapped:
                by_counters = max(by_counters, reader.read - reader.read_before)
            if reader.held:
                stored += max(reader.stored - reader.stored_before, 0)
        self._book.look(furthest, counted=max(by_counters, stored))

    def _tell(self) -> WeightProgress | None:
        book = self._book
        if not book.shards:
            return None
        progress = WeightProgress(
            shards=book.shards,
            shards_done=book.shards_done,
            bytes=book.bytes,
            bytes_done=book.bytes_done,
            how=book.how,
            files=tuple(ShardFile(*row) for row in book.held[:_MOST_FILES_TOLD]),
        )
        if progress == self._last:
            return None
        self._last = progress
        return progress


def parse_fdinfo(raw: bytes | None) -> tuple[int, bool]:
    """/proc/PID/fdinfo/N → offset, and whether the file is open for reading alone: one that is written is no shard being loaded."""
    told = dict(line.partition(b":")[::2] for line in (raw or b"").split(b"\n"))
    offset, flags = told.get(b"pos", b"").strip(), told.get(b"flags", b"").strip()
    return int(offset) if offset.isdigit() and len(offset) <= 20 else 0, flags[-1:] in (b"0", b"4")


def mapped_files(raw: bytes) -> frozenset[str]:
    """Paths of all files in /proc/PID/maps. The kernel writes a newline in a path as `\\012`."""
    found: set[bytes] = set()
    for line in raw.split(b"\n"):
        at = line.find(b" /")
        if at > 0:
            found.add(line[at + 1 :])
    return frozenset(path.decode("utf8", "surrogateescape").replace("\\012", "\n") for path in found)
