"""File locks: who holds what, and who waits for whom, from /proc/locks.

The table names files by device and inode and holders by pid. A lock of an open file description has no pid, and a flock's pid is whoever
took it, which may be gone while a child still has the descriptor: then holders are found by their descriptors, whose fdinfo has the lock's
row again. A thread that asks, is refused and sleeps in turns (Python's filelock) stands in no table: it is known by its stack or by the
descriptor that it keeps open, and its holder is whoever has a lock on that file.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from firsttoken.hosts.procfs import Procfs
from firsttoken.observe.descriptors import parse_fdinfo
from firsttoken.observe.neighbours import Neighbours

Identity = tuple[str, int]
"""device (`major:minor`, hexadecimal) and inode"""


class PolledLock(NamedTuple):
    """A lock file that a thread asks for again and again. `stands`: it is locked for as long as it is there, and whoever made it keeps it
    open until it takes it away."""

    path: str
    stands: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLock:
    """One row. `number` joins a lock and those that wait for it. `pid`: -1 where it is not told. `sort`: FLOCK, POSIX, OFDLCK…"""

    number: int
    waiting: bool
    sort: str
    access: str
    pid: int
    file: Identity


class LockTable:
    """/proc/locks in one round."""

    def __init__(self, procfs: Procfs, neighbours: Neighbours) -> None:
        self._procfs = procfs
        self._neighbours = neighbours
        self.rows = parse_locks(procfs.read("locks"))

    def waited_for(self, pid: int) -> tuple[FileLock, ...]:
        """Rows of locks that this process waits for."""
        return tuple(row for row in self.rows if row.waiting and row.pid == pid)

    def held(self, file: Identity) -> tuple[FileLock, ...]:
        return tuple(row for row in self.rows if not row.waiting and row.file == file)

    def holders(self, file: Identity, name: str, *, besides: int | None = None) -> tuple[int, ...]:
        """Live pids that hold a lock on the file, `besides` one. `name`: its last part, by which descriptors are looked for."""
        found: dict[int, None] = {}
        for row in self.held(file):
            if row.pid > 0 and self._has(row.pid, file):
                found[row.pid] = None
                continue
            for holder in self._neighbours.named(name):
                if any(one.file == file for line in holder.info.locks for one in parse_locks(line.encode())):
                    found[holder.pid] = None
            if row.pid > 0 and not found and self._procfs.stat(row.pid) is not None:
                found[row.pid] = None  # its descriptors may not be read
        return tuple(pid for pid in found if pid != besides)

    def path_holders(self, path: str, *, besides: int) -> tuple[int, ...]:
        """Live pids that hold a lock on the file with that path, by descriptors with this very link."""
        held = {row.file[1] for row in self.rows if not row.waiting}
        found: dict[int, None] = {}
        for holder in self._neighbours.named(os.path.basename(path)):
            if holder.info.inode in held and self._procfs.link(f"{holder.pid}/fd/{holder.fd}") == path and holder.info.locks:
                found[holder.pid] = None
        return tuple(pid for pid in found if pid != besides)

    def inode_holders(self, inode: int, *, besides: int) -> tuple[int, ...]:
        """The same by the table alone, for holders that do not show their descriptors."""
        pids = dict.fromkeys(row.pid for row in self.rows if not row.waiting and row.file[1] == inode and row.pid > 0)
        return tuple(pid for pid in pids if pid != besides and self._procfs.stat(pid) is not None)

    def openers(self, path: str, inode: int | None, *, besides: int) -> tuple[int, ...]:
        """Live pids that have that file open, under whatever path they see it."""
        holders = self._neighbours.named(os.path.basename(path))
        same = (holder for holder in holders if inode is None or holder.info.inode in (None, inode))
        return tuple(dict.fromkeys(holder.pid for holder in same if holder.pid != besides))

    def kept_open(self, pid: int, links: Iterable[tuple[int, str]]) -> tuple[str, tuple[int, ...]] | None:
        """A lock file that this process keeps open while others hold a lock on it: its path and those others."""
        held = {row.file[1]: row.file for row in self.rows if not row.waiting}
        for fd, link in links:
            if not link.startswith("/") or "lock" not in os.path.basename(link).lower():
                continue
            info = parse_fdinfo(self._procfs.read(f"{pid}/fdinfo/{fd}"))
            if info.locks or info.inode not in held:
                continue
            others = self.path_holders(link, besides=pid) or self.holders(held[info.inode], os.path.basename(link), besides=pid)
            if others:
                return link, others
        return None

    def _has(self, pid: int, file: Identity) -> bool:
        """Whether the process is there and has a descriptor on that inode (or does not show its descriptors)."""
        names = self._procfs.names(f"{pid}/fd")
        if not names:
            return self._procfs.stat(pid) is not None and self._procfs.hides_files(pid)
        return any(parse_fdinfo(self._procfs.read(f"{pid}/fdinfo/{name}")).inode in (file[1], None) for name in names)


def parse_locks(raw: bytes | None) -> tuple[FileLock, ...]:
    """/proc/locks, or the `lock:` rows of an fdinfo. Rows that cannot be read are left out."""
    found: list[FileLock] = []
    for line in (raw or b"").decode("utf8", "replace").split("\n"):
        number, _, rest = line.strip().partition(":")
        words = rest.split()
        waiting = bool(words) and words[0] == "->"
        if waiting:
            words = words[1:]
        if not number.isdecimal() or len(number) > 15 or len(words) < 5:
            continue
        sort, _, access, pid, place = words[:5]
        device, _, inode = place.rpartition(":")
        digits = pid.removeprefix("-")
        if digits.isdecimal() and len(digits) < 10 and inode.isdecimal() and len(inode) <= 20 and ":" in device:
            file = (device.lower(), int(inode))
            found.append(FileLock(number=int(number), waiting=waiting, sort=sort, access=access, pid=int(pid), file=file))
    return tuple(found)
