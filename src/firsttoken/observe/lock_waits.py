"""From a thread that wants a file lock to who holds it.

Three ways of wanting: blocked in the call that asks for it; asking, being refused and sleeping in turns, as its stack or a descriptor that
it keeps open tells; and waiting until a file is gone whose being there is the lock.
"""

import os
from collections.abc import Iterable

from firsttoken.model.process import ProcessKey
from firsttoken.model.stillness import Wait, WaitKind
from firsttoken.observe.descriptors import parse_fdinfo
from firsttoken.observe.edges import Edges, Spot, Surroundings

_FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""the machine's own: PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h"""
_PRIVATE = frozenset({"overlay", "tmpfs"})
"""file systems of a container alone"""


class LockWaits:
    """Of one process."""

    def __init__(self, process: ProcessKey, around: Surroundings, edges: Edges) -> None:
        self._pid = process.pid
        self._around = around
        self._edges = edges
        self._files = edges.files

    def on(self, spot: Spot, fd: int) -> tuple[str, tuple[Wait, ...]]:
        """A thread blocked on a lock of that descriptor: what it is in words, and who holds it."""
        one = self._files.get(fd, may_stat=False)
        if one is None:
            return f"fd {fd}", (self._edges.plain(spot, WaitKind.FILE_LOCK, f"descriptor {fd}", observable=False),)
        pids: Iterable[int] = ()
        if one.identity is not None:
            pids = self._around.locks.holders(one.identity, os.path.basename(one.link), besides=self._pid)
            if not pids and any(row.pid == self._pid for row in self._around.locks.held(one.identity)):
                pids = (self._pid,)
        return f"fd {fd}: {one.link}", self._edges.held_by(spot, one.link, pids)

    def by_table(self, spot: Spot) -> tuple[Wait, ...]:
        """What the table of locks says that this process waits for; the descriptor that has the inode gives it a name."""
        found: list[Wait] = []
        for row in self._around.locks.waited_for(self._pid):
            device, inode = row.file
            path = f"inode {inode} of device {device}"
            for fd, link in self._files.links().items():
                if link.startswith("/") and parse_fdinfo(self._around.procfs.read(f"{self._pid}/fdinfo/{fd}")).inode == inode:
                    path = link
            pids = self._around.locks.holders(row.file, os.path.basename(path), besides=self._pid)
            found += self._edges.held_by(spot, path, pids)
        return tuple(found)

    def polled(self, spot: Spot, timeout: float | None) -> tuple[Wait, ...]:
        """The lock that a sleeping thread asks for again and again; empty where it asks for none."""
        polled = self._around.polled.get((self._pid, spot.tid))
        if polled is not None:
            path = os.path.normpath(os.path.join(self._around.procfs.link(f"{self._pid}/cwd") or "/", polled.path))
            if polled.stands:
                return self._standing(spot, path, timeout)
            pids = self._around.locks.path_holders(path, besides=self._pid) or self._hidden_holders(path)
            return self._edges.held_by(spot, path, pids, timeout)
        if not spot.main or not self._around.locks.rows:
            return ()
        kept = self._around.locks.kept_open(self._pid, self._files.links().items())
        return () if kept is None else self._edges.held_by(spot, *kept, timeout)

    def _standing(self, spot: Spot, path: str, timeout: float | None) -> tuple[Wait, ...]:
        """Who made the file has it open. Where nobody has, and nobody who could have it is out of sight, it was left behind, and no one
        will take it away.
        """
        stat = self._stat(path)
        pids = self._around.locks.openers(path, stat.st_ino if stat is not None else None, besides=self._pid)
        if pids or stat is None:
            return self._edges.held_by(spot, path, pids, timeout)
        mount = self._files.mount_of(path)
        # processes of other users do not show what they have open, those outside of a container are not seen at all
        alone = self._around.procfs.link("self/ns/pid") == _FIRST_PID_NAMESPACE or (mount is not None and mount.fs_type in _PRIVATE)
        seen = alone and os.geteuid() in (0, stat.st_uid)
        return (self._edges.plain(spot, WaitKind.FILE_LOCK, path, nobody=seen, observable=seen, timeout_s=timeout),)

    def _hidden_holders(self, path: str) -> tuple[int, ...]:
        stat = self._stat(path)
        return () if stat is None else self._around.locks.inode_holders(stat.st_ino, besides=self._pid)

    def _stat(self, path: str) -> os.stat_result | None:
        """As the process sees that path; None where it is gone, or where asking may hang."""
        mount = self._files.mount_of(path)
        if mount is None or mount.remote:
            return None
        try:
            return os.stat(f"{self._around.procfs.root}/{self._pid}/root{path}")
        except (OSError, ValueError):
            return None
