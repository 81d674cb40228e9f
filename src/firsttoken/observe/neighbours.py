"""Who holds the other end, and who that is: owners of pipes, sockets and files among all processes, told in words.

Links in /proc/PID/fd are the only place where holders are told. The run's own processes are looked through first (their peers are mostly
each other), all others only when a question needs them, each once a round: 1.5 µs a descriptor. Processes whose descriptors may not be
read can hold anything; those that matter are told apart: members of the run and its ancestors (an inherited pipe end is nowhere else).
"""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from firsttoken.hosts.procfs import Procfs, Stat
from firsttoken.model.process import ProcessKey
from firsttoken.model.redact import mask_argv
from firsttoken.observe.descriptors import FdInfo, parse_fdinfo
from firsttoken.observe.errands import Errands

_TITLE_CHARS = 160
_TITLE_PATIENCE = 0.25
_MOST_HOLDERS = 64
_STATES = {"R": "running", "S": "asleep", "D": "in uninterruptible sleep", "T": "stopped", "t": "stopped by a tracer", "Z": "a zombie"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process with a descriptor on what was asked for. `mode`: 0 reads, 1 writes, 2 both."""

    pid: int
    fd: int
    mode: int = 0
    info: FdInfo


class Neighbours:
    """The processes of this machine in one round. `run`: pids of the run's members."""

    def __init__(self, procfs: Procfs, node: str, run: Collection[int]) -> None:
        self._procfs = procfs
        self._node = node
        self.run = frozenset(run)
        self._index: dict[str, list[tuple[int, int]]] = {}
        self._searched: set[int] = set()
        self._everyone = False
        self._hidden: set[int] = set()
        self._told: dict[int, tuple[ProcessKey, str] | None] = {}
        self._titles = Errands("firsttoken-titles")

    def holders(self, link: str, *, everywhere: bool = False, inode: int | None = None) -> tuple[Holder, ...]:
        """All descriptors with that link, in the run's processes or `everywhere`. `inode`: of a file, where another mount may show
        another file by the same name."""
        self._search(self.run)
        if everywhere and not self._everyone:
            self._everyone = True
            self._search(self._procfs.pids())
        found = []
        for pid, fd in self._index.get(link, ())[:_MOST_HOLDERS]:
            info = parse_fdinfo(self._procfs.read(f"{pid}/fdinfo/{fd}"))
            if inode is None or info.inode in (None, inode):
                found.append(Holder(pid=pid, fd=fd, mode=info.mode, info=info))
        return tuple(found)

    def named(self, name: str) -> tuple[Holder, ...]:
        """Descriptors on files of that name in any folder, everywhere: mounts may show one file at several places."""
        self.holders("", everywhere=True)
        links = [link for link in self._index if link.endswith("/" + name)]
        return tuple(holder for link in links for holder in self.holders(link))

    def hides_ends(self, pid: int) -> bool:
        """Whether a member of the run, or an ancestor of `pid`, does not show its descriptors: it may hold the other end."""
        self._search(self.run)
        if self._hidden & self.run:
            return True
        return any(self._procfs.hides_files(parent) for parent in self.ancestors(pid))

    def ancestors(self, pid: int) -> tuple[int, ...]:
        found: list[int] = []
        stat = self._procfs.stat(pid)
        while stat is not None and stat.ppid > 1 and stat.ppid not in found:
            found.append(stat.ppid)
            stat = self._procfs.stat(stat.ppid)
        return tuple(found)

    def children(self, pid: int) -> tuple[int, ...]:
        """Live ones, oldest first."""
        known = self._procfs.children(pid)
        pids: Iterable[int] = known if known is not None else (p for p, s in self._procfs.stats().items() if s.ppid == pid)
        stats: Mapping[int, Stat | None] = {child: self._procfs.stat(child) for child in pids}
        live = [stat for stat in stats.values() if stat is not None and not stat.dead]
        return tuple(stat.pid for stat in sorted(live, key=lambda stat: (stat.start, stat.pid)))

    def describe(self, pid: int) -> tuple[ProcessKey, str] | None:
        """Key, and title with age and state: `python -m other.job, started 3 h ago, asleep`. None where it is gone."""
        if pid not in self._told:
            self._told[pid] = self._describe(pid)
        return self._told[pid]

    def _describe(self, pid: int) -> tuple[ProcessKey, str] | None:
        stat = self._procfs.stat(pid)
        if stat is None:
            return None
        argv = self._titles.each(self._procfs.cmdline, (pid,), seconds=_TITLE_PATIENCE).get(pid, ())
        title = " ".join(" ".join(mask_argv(argv)).split()) or f"[{stat.comm}]"
        if len(title) > _TITLE_CHARS:
            title = title[: _TITLE_CHARS - 1] + "…"
        age = self._age(stat)
        parts = [title, *([f"started {in_words(age)} ago"] if age is not None else []), _STATES.get(stat.state, f"state {stat.state}")]
        return ProcessKey(self._node, pid, stat.start), ", ".join(parts)

    def _age(self, stat: Stat) -> float | None:
        words = (self._procfs.read("uptime", 128) or b"").split()
        try:
            return max(float(words[0]) - stat.start / os.sysconf("SC_CLK_TCK"), 0.0)
        except (IndexError, ValueError):
            return None

    def _search(self, pids: Iterable[int]) -> None:
        for pid in pids:
            if pid in self._searched:
                continue
            self._searched.add(pid)
            links = self._procfs.fds(pid)
            if not links and self._procfs.hides_files(pid):
                self._hidden.add(pid)
            for fd, link in links.items():
                self._index.setdefault(link, []).append((pid, fd))


def in_words(seconds: float) -> str:
    """`12 s`, `3 min`, `5 h`, `2 days`."""
    for size, unit in ((172800, "days"), (7200, "h"), (120, "min")):
        if seconds >= size:
            return f"{seconds / {'days': 86400, 'h': 3600, 'min': 60}[unit]:.0f} {unit}"
    return f"{seconds:.0f} s"
