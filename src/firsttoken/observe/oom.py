"""Did the kernel's OOM killer take a process of the run?

The kernel log names the victim: where it can be read it decides alone. Often it cannot (a container, `dmesg_restrict`). Then the memory
cgroups of the run's processes count their kills, but name nobody and may be shared with others: a count that grew is told as a kill of ours
only where a process of that cgroup went away at about the same time.
"""

import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from firsttoken.hosts.procfs import Procfs
from firsttoken.model.events import Missed, OomKill
from firsttoken.model.process import ProcessKey
from firsttoken.observe.cgroups import MemoryCgroup, memory_cgroup

NEAR = 5.0
"""seconds between a kill that was counted and the process that is missing"""
_RECORDS = 2000
_REMEMBERED = 4096
_KILLED = re.compile(r"[^;\n]*\bKilled process (\d{1,10}) \([^\n]{0,64}?\)[^\n]{0,160}")
_FIRST_PID_SPACE = "pid:[4026531836]"


class _Gone(NamedTuple):
    at: float
    key: ProcessKey
    group: MemoryCgroup | None


class _Grown(NamedTuple):
    """`group` None: the count of the whole machine."""

    at: float
    group: MemoryCgroup | None
    number: int


class OomWatcher:
    """Counts from when it was made: kills before that are not told. To be closed."""

    def __init__(self, procfs: Procfs, *, kmsg: Path | str | None = "/dev/kmsg", clock: Callable[[], float] = time.monotonic) -> None:
        self._procfs = procfs
        self._clock = clock
        self._missed: list[Missed] = []
        self._groups: dict[ProcessKey, MemoryCgroup | None] = {}
        self._counts: dict[MemoryCgroup, int] = {}
        self._machine = self._machine_kills()
        self._gone: tuple[_Gone, ...] = ()
        self._grown: tuple[_Grown, ...] = ()
        self._seen: dict[int, None] = {}
        self._kmsg = None if kmsg is None else self._open(kmsg)

    def look(self, keys: Iterable[ProcessKey]) -> list[OomKill]:
        """Kills since the last look. `keys`: the run's processes now."""
        now = self._clock()
        self._follow(frozenset(keys), now)
        if self._kmsg is not None:
            return self._told_by_kernel()
        self._count(now)
        return self._told_by_counts()

    def missed(self) -> list[Missed]:
        told, self._missed = self._missed, []
        return told

    def close(self) -> None:
        if self._kmsg is not None:
            os.close(self._kmsg)
            self._kmsg = None

    def _open(self, kmsg: Path | str) -> int | None:
        if self._procfs.link("self/ns/pid") not in (None, _FIRST_PID_SPACE):
            self._missed.append(
                Missed(request="kernel log", reason="not used: it names processes by the machine's pids, and this is a container")
            )
            return None
        try:
            fd = os.open(kmsg, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self._tell(kmsg, error)
            return None
        try:
            os.lseek(fd, 0, os.SEEK_END)
        except OSError as error:
            os.close(fd)
            self._tell(kmsg, error)
            return None
        return fd

    def _tell(self, kmsg: Path | str, error: OSError) -> None:
        reason = f"{kmsg} cannot be read ({error.strerror}): OOM kills are told by cgroup counters alone"
        self._missed.append(Missed(request="kernel log", reason=reason))

    def _follow(self, here: frozenset[ProcessKey], now: float) -> None:
        """A process's cgroup is looked up once; one that moves later is not followed."""
        recent = [entry for entry in self._gone if now - entry.at <= NEAR]
        recent += [_Gone(now, key, self._groups.pop(key)) for key in sorted(self._groups.keys() - here)]
        self._gone = tuple(recent[-1000:])
        for key in here - self._groups.keys():
            group = self._groups[key] = memory_cgroup(self._procfs, key.pid)
            self._seen[key.pid] = None
            if group is not None and group not in self._counts and (count := group.oom_kills()) is not None:
                self._counts[group] = count
        while len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]

    def _told_by_kernel(self) -> list[OomKill]:
        events: list[OomKill] = []
        for match in _KILLED.finditer("\n".join(self._records())):
            pid = int(match[1])
            if pid in self._seen:
                del self._seen[pid]
                events.append(OomKill(source="kmsg", pid=pid, text=match[0].strip()))
        return events

    def _records(self) -> list[str]:
        """One read gives one record; EPIPE: some were overwritten before they were read."""
        found: list[str] = []
        for _ in range(_RECORDS):
            if self._kmsg is None:
                break
            try:
                raw = os.read(self._kmsg, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue
            except OSError as error:
                self._tell("the kernel log", error)
                self.close()
                break
            if not raw:
                break
            found.append(raw.decode("utf8", "replace"))
        return found

    def _count(self, now: float) -> None:
        grown = [entry for entry in self._grown if now - entry.at <= NEAR]
        for group, before in list(self._counts.items()):
            count = group.oom_kills()
            if count is not None and count != before:
                self._counts[group] = count
                if count > before:
                    grown.append(_Grown(now, group, count - before))
        machine = self._machine_kills()
        if machine is not None and self._machine is not None and machine > self._machine and not self._counts:
            grown.append(_Grown(now, None, machine - self._machine))
        self._machine = machine
        self._grown = tuple(grown)

    def _told_by_counts(self) -> list[OomKill]:
        events: list[OomKill] = []
        unexplained: list[_Grown] = []
        for entry in self._grown:
            gone = [each.key.pid for each in self._gone if entry.group is None or each.group == entry.group]
            if not gone:
                unexplained.append(entry)
                continue
            where = "this machine" if entry.group is None else f"cgroup {entry.group.folder}"
            pids = ", ".join(map(str, gone[:8])) + (" …" if len(gone) > 8 else "")
            text = f"the OOM kills counted for {where} grew by {entry.number} as processes of the run went away (pid {pids})"
            events.append(OomKill(source="cgroup", pid=gone[0] if len(gone) == 1 else None, text=text))
        self._grown = tuple(unexplained)
        return events

    def _machine_kills(self) -> int | None:
        for line in (self._procfs.read("vmstat", None) or b"").split(b"\n"):
            name, _, value = line.partition(b" ")
            if name == b"oom_kill" and value.isdigit():
                return int(value)
        return None
