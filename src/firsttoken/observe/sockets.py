"""Which addresses the run's processes listen on.

The tables of TCP and unix sockets belong to a network namespace, so one process stands for each namespace; who holds a socket is told only
by the links in /proc/PID/fd. Reading those costs a microsecond a descriptor, so they are read only when a listening inode or a process is
new.
"""

import re
from collections.abc import Iterable

from firsttoken.hosts.procfs import Procfs
from firsttoken.model.events import Listening, Missed
from firsttoken.model.process import ListenSocket
from firsttoken.observe.socket_tables import Address, tcp_from_kernel, tcp_from_proc, unix_from_proc

_SOCKET_LINK = re.compile(r"socket:\[(\d+)\]$")


class SocketWatcher:
    def __init__(self, procfs: Procfs) -> None:
        self._procfs = procfs
        self._holders: dict[str, int] = {}
        self._foreign: set[str] = set()
        self._pids: frozenset[int] = frozenset()
        self._last: Listening | None = None
        self._told: set[str] = set()
        self._missed: list[Missed] = []

    def look(self, pids: Iterable[int]) -> Listening | None:
        """All listening sockets of these processes, when they differ from those of the look before; at first only when there are any."""
        now = self.listening(pids)
        if now == self._last or (self._last is None and not now.sockets):
            return None
        self._last = now
        return now

    def listening(self, pids: Iterable[int]) -> Listening:
        """Each socket is told once, for the first of `pids` that holds it: give the root first."""
        order = tuple(dict.fromkeys(pids))
        here = frozenset(order)
        table = self._table(order)
        if self._pids - here:  # a holder that is gone may have left its socket to another
            self._holders = {inode: pid for inode, pid in self._holders.items() if pid in here}
        fresh = table.keys() - self._holders.keys() - self._foreign
        self._resolve([pid for pid in order if fresh or pid not in self._pids], set(table) - self._holders.keys())
        self._holders = {inode: pid for inode, pid in self._holders.items() if inode in table}
        self._foreign = set(table) - self._holders.keys()
        self._pids = here
        rows = {ListenSocket(self._holders[inode], *address) for inode, address in table.items() if inode in self._holders}
        return Listening(sockets=tuple(sorted(rows, key=lambda row: (row.pid, row.port or 0, row.host or "", row.path or ""))))

    def missed(self) -> list[Missed]:
        told, self._missed = self._missed, []
        return told

    def _table(self, pids: tuple[int, ...]) -> dict[str, Address]:
        found: dict[str, Address] = {}
        spaces: set[str] = set()
        ours = self._procfs.link("self/ns/net")
        for pid in pids:
            # the link is hidden from those who may not trace: then the process's own table is read, whosoever it shares it with
            space = self._procfs.link(f"{pid}/ns/net") or f"of {pid}"
            if space in spaces:
                continue
            spaces.add(space)
            tcp = tcp_from_kernel() if space == ours else None
            found.update(tcp_from_proc(self._procfs, pid) if tcp is None else tcp)
            found.update(unix_from_proc(self._procfs, pid))
        return found

    def _resolve(self, pids: list[int], wanted: set[str]) -> None:
        if not wanted:
            return
        for pid in pids:
            names = self._procfs.names(f"{pid}/fd")
            if not names and self._procfs.hides_files(pid):
                self._miss(f"the open files of pid {pid} may not be read (another user's process?)")
            for name in names:
                match = _SOCKET_LINK.match(self._procfs.link(f"{pid}/fd/{name}") or "")
                if match is not None and match[1] in wanted:
                    self._holders[match[1]] = pid
                    wanted.discard(match[1])
            if not wanted:
                return

    def _miss(self, reason: str) -> None:
        """Each reason is told once."""
        if reason not in self._told:
            self._told.add(reason)
            self._missed.append(Missed(request="sockets", reason=reason))


def listening(procfs: Procfs, pids: Iterable[int]) -> Listening:
    """One look, without memory."""
    return SocketWatcher(procfs).listening(pids)
