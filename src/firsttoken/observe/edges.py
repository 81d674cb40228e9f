"""From an object that a thread is blocked on to the waits that follow: who could end it.

An object is a descriptor (pipe, socket, pidfd…), a locked file or a child. Who is at its other end is found in the tables of one round.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from firsttoken.hosts.procfs import Procfs
from firsttoken.model.process import ProcessKey
from firsttoken.model.stillness import Wait, WaitKind
from firsttoken.observe.connections import LISTEN, SYN_SENT, Connections, Endpoint, TcpSocket
from firsttoken.observe.descriptors import Descriptor, Descriptors
from firsttoken.observe.locks import LockTable, PolledLock
from firsttoken.observe.neighbours import Neighbours
from firsttoken.observe.syscalls import Call

MOST_WAITS = 8
"""of one thread; a poll over hundreds of connections tells nothing"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """One thread's place, undecoded. `wchan` and `call` None where it runs or they may not be read."""

    process: ProcessKey
    tid: int
    main: bool
    name: str
    state: str
    wchan: str | None = None
    call: Call | None = None


@dataclass(frozen=True)
class Surroundings:
    """Tables of one round; each is read when it is first needed. `polled`, by pid and thread, as its stack tells."""

    procfs: Procfs
    neighbours: Neighbours
    connections: Connections
    polled: Mapping[tuple[int, int], PolledLock]

    @cached_property
    def locks(self) -> LockTable:
        return LockTable(self.procfs, self.neighbours)


class Edges:
    """Of one process."""

    def __init__(self, process: ProcessKey, around: Surroundings) -> None:
        self._process = process
        self._around = around
        self.files = Descriptors(around.procfs, process.pid)

    def plain(
        self, spot: Spot, kind: WaitKind, what: str, *, observable: bool = True, nobody: bool = False, timeout_s: float | None = None
    ) -> Wait:
        """A wait for nobody in particular."""
        return Wait(waiter=self._process, tid=spot.tid, kind=kind, what=what, observable=observable, nobody=nobody, timeout_s=timeout_s)

    def to_itself(self, spot: Spot, kind: WaitKind, what: str) -> Wait:
        """A wait that only another thread of the same process could end."""
        return replace(self.plain(spot, kind, what), to=self._process, in_run=True)

    def to_process(self, spot: Spot, kind: WaitKind, what: str, pid: int) -> Wait:
        told = self._around.neighbours.describe(pid)
        if told is None:
            return self.plain(spot, kind, what, observable=False)
        return replace(self.plain(spot, kind, what), to=told[0], to_title=told[1], in_run=pid in self._around.neighbours.run)

    def on(self, spot: Spot, one: Descriptor, writes: bool) -> tuple[str, tuple[Wait, ...]]:
        """What the descriptor is in words, and what a thread waits for that is blocked on it."""
        match one.kind:
            case "pipe" | "fifo":
                return one.link, self._pipe(spot, one, writes)
            case "socket":
                return self._socket(spot, one)
            case "pidfd" if one.pid is not None and one.pid > 0:
                return f"pidfd of {one.pid}", (self.to_process(spot, WaitKind.CHILD, f"the end of pid {one.pid}", one.pid),)
            case "eventfd":
                return one.link, (self.plain(spot, WaitKind.POLL, "an event of another thread (eventfd)"),)
            case "timerfd":
                return one.link, (self.plain(spot, WaitKind.SLEEP, "a timer"),)
            case "signalfd":
                return one.link, (self.plain(spot, WaitKind.SIGNAL, "a signal"),)
            case "terminal":
                what = f"{'output to' if writes else 'input from'} the terminal {one.link}"
                return one.link, (self.plain(spot, WaitKind.TERMINAL, what, observable=False),)
            case "file":
                remote = one.mount is not None and one.mount.remote
                text = f"{one.link} ({one.mount.fs_type})" if one.mount is not None else one.link
                return text, (self.plain(spot, WaitKind.DISK, text, observable=not remote),)
            case _:
                return one.link, (self.plain(spot, WaitKind.OTHER, one.link),)

    def _pipe(self, spot: Spot, one: Descriptor, writes: bool) -> tuple[Wait, ...]:
        fifo = one.kind == "fifo"
        kind, others = (WaitKind.FIFO if fifo else WaitKind.PIPE), 0 if writes else 1
        around, own = self._around.neighbours, self._process.pid
        inode = one.inode if fifo else None

        def ends(everywhere: bool) -> list[int]:
            held = around.holders(one.link, everywhere=everywhere, inode=inode)
            return sorted({holder.pid for holder in held if holder.mode in (others, 2)}, key=lambda pid: (pid not in around.run, pid))

        pids = ends(False)
        if not [pid for pid in pids if pid != own]:
            pids = ends(True)
        foreign = [pid for pid in pids if pid != own]
        if foreign:
            return tuple(self.to_process(spot, kind, one.link, pid) for pid in foreign[:MOST_WAITS])
        if around.hides_ends(own) or (fifo and self._others_may_open(one)):
            return (self.plain(spot, kind, one.link, observable=False),)
        if pids and not fifo:
            return (self.to_itself(spot, kind, f"{one.link}, both of whose ends it holds itself"),)
        return (self.plain(spot, kind, one.link, nobody=True),)

    def _others_may_open(self, one: Descriptor) -> bool:
        """Whether another user, who does not show us what he has open, may hold that FIFO's other end."""
        if os.geteuid() == 0:
            return False
        try:
            return bool(os.stat(self._around.procfs.root / f"{self._process.pid}/fd/{one.fd}").st_mode & 0o022)
        except (OSError, ValueError):
            return True

    def _socket(self, spot: Spot, one: Descriptor) -> tuple[str, tuple[Wait, ...]]:
        assert one.inode is not None, "a socket's link has its inode"
        pid, around = self._process.pid, self._around.connections
        tcp = around.tcp(pid, one.inode)
        if tcp is not None:
            return self._tcp(spot, tcp)
        unix = around.unix(pid, one.inode)
        if unix is None:
            return one.link, (self.plain(spot, WaitKind.SOCKET, one.link, observable=False),)
        peer = around.unix(pid, unix.peer) if unix.peer else None
        path = unix.path or (peer.path if peer is not None else None)
        text = f"unix socket {path}" if path else "unix socket"
        if not unix.peer:
            return text, (self.plain(spot, WaitKind.SOCKET, f"a connection to {text}" if path else one.link),)
        return text, self._to_holders(spot, WaitKind.SOCKET, text, unix.peer)

    def listening(self, spot: Spot, path: str) -> tuple[Wait, ...]:
        """Whoever could accept a connection to that unix socket."""
        inodes = self._around.connections.unix_listeners(self._process.pid, path)
        waits = [wait for inode in inodes for wait in self._to_holders(spot, WaitKind.CONNECT, f"unix socket {path}", inode)]
        return tuple(waits) or (self.plain(spot, WaitKind.CONNECT, f"unix socket {path}", observable=False),)

    def _tcp(self, spot: Spot, tcp: TcpSocket) -> tuple[str, tuple[Wait, ...]]:
        remote = _address(tcp.remote)
        if tcp.state == LISTEN:
            return f"{_address(tcp.local)} (listening)", (self.plain(spot, WaitKind.SOCKET, f"a connection to {_address(tcp.local)}"),)
        text = f"{_address(tcp.local)} to {remote} ({tcp.state_name})"
        around = self._around.connections
        here = around.is_here(tcp.remote[0])
        if tcp.state == SYN_SENT:
            listeners = around.listeners(tcp.remote) if here else ()
            waits = [wait for one in listeners for wait in self._to_holders(spot, WaitKind.CONNECT, remote, one.inode)]
            return text, tuple(waits) or (self.plain(spot, WaitKind.CONNECT, remote, observable=False),)
        other = around.other_end(tcp)
        if other is not None and other.inode:
            return text, self._to_holders(spot, WaitKind.SOCKET, remote, other.inode)
        listeners = around.listeners(tcp.remote) if here and other is not None else ()
        waits = [wait for one in listeners for wait in self._to_holders(spot, WaitKind.SOCKET, f"{remote}, not accepted yet", one.inode)]
        return text, tuple(waits) or (self.plain(spot, WaitKind.SOCKET, remote, observable=False),)

    def _to_holders(self, spot: Spot, kind: WaitKind, what: str, inode: int) -> tuple[Wait, ...]:
        link = f"socket:[{inode}]"
        held = self._around.neighbours.holders(link) or self._around.neighbours.holders(link, everywhere=True)
        pids = dict.fromkeys(holder.pid for holder in held)
        others = [pid for pid in pids if pid != self._process.pid] or list(pids)
        waits = tuple(self.to_process(spot, kind, what, pid) for pid in others[:MOST_WAITS])
        return waits or (self.plain(spot, kind, what, observable=False),)

    def held_by(self, spot: Spot, path: str, pids: Iterable[int], timeout: float | None = None) -> tuple[Wait, ...]:
        waits = tuple(replace(self.to_process(spot, WaitKind.FILE_LOCK, path, pid), timeout_s=timeout) for pid in pids)
        # a lock that is held by nobody here is held by another machine, or by a process out of sight
        return waits or (self.plain(spot, WaitKind.FILE_LOCK, path, observable=False, timeout_s=timeout),)

    def children(self, spot: Spot, pid: int) -> tuple[Wait, ...]:
        """`pid` as the process itself counts: in a pid namespace of its own the child is known by being its only one."""
        children = self._around.neighbours.children(self._process.pid)
        pids = (pid,) if pid in children else children if pid <= 0 or len(children) == 1 else ()
        waits = tuple(self.to_process(spot, WaitKind.CHILD, f"pid {child}", child) for child in pids[:MOST_WAITS])
        return waits or (self.plain(spot, WaitKind.CHILD, f"pid {pid}" if pid > 0 else "any child", observable=False),)


def _address(end: Endpoint) -> str:
    host, port = end
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
