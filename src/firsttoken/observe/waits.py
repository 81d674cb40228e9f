"""From a thread's place in the kernel to what it waits for, and who could end that.

One rule a way of waiting. What a system call was given tells the object (a descriptor, a child, an address in memory); tables of locks,
sockets and descriptors tell who is at its other end. Where the call may not be read (no right to trace), the kernel function in which
the thread sleeps (`wchan`) still tells the way of waiting, and file locks and children can still be named.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from firsttoken.model.process import ProcessKey
from firsttoken.model.stillness import Wait, WaitKind
from firsttoken.observe.edges import MOST_WAITS, Edges, Spot, Surroundings
from firsttoken.observe.lock_waits import LockWaits
from firsttoken.observe.syscalls import PAGE_FAULT, Call
from firsttoken.observe.target_memory import PollEntry, TargetMemory

_READS = frozenset(
    {
        "read",
        "readv",
        "pread64",
        "preadv",
        "preadv2",
        "recvfrom",
        "recvmsg",
        "recvmmsg",
        "accept",
        "accept4",
        "splice",
        "tee",
        "getdents64",
        "getdents",
        "readahead",
    }
)
_WRITES = frozenset(
    {
        "write",
        "writev",
        "pwrite64",
        "pwritev",
        "pwritev2",
        "sendto",
        "sendmsg",
        "sendmmsg",
        "sendfile",
        "vmsplice",
        "fsync",
        "fdatasync",
        "ftruncate",
    }
)
_BY_NAME = frozenset(
    {
        "open", "creat", "stat", "lstat", "access", "readlink", "chdir", "statfs", "execve", "truncate", "mkdir", "rmdir", "unlink",
        "rename", "link", "symlink", "chmod", "chown", "utimes", "getxattr", "lgetxattr", "listxattr", "mknod",
    }
)  # fmt: skip
_BY_NAME_AT = frozenset(
    {
        "openat", "openat2", "newfstatat", "statx", "readlinkat", "faccessat", "faccessat2", "execveat", "mkdirat", "unlinkat", "renameat",
        "renameat2", "fchmodat", "utimensat", "mknodat",
    }
)  # fmt: skip
"""calls that go to a file system by a name, which is their first argument, or their second behind a folder's descriptor"""
_FORKS = frozenset({"vfork", "clone", "clone3", "fork"})
_SIGNALS = frozenset({"pause", "rt_sigsuspend", "rt_sigtimedwait"})
_SETLKW = frozenset({7, 38})
"""fcntl's commands that wait for a POSIX lock, and for one of an open file description"""
_UNINTERRUPTED = frozenset({WaitKind.CHILD, WaitKind.DISK, WaitKind.FILE_LOCK})
_AT_FDCWD = -100
_P_PID, _P_PIDFD = 1, 3
_PRIVATE, _REALTIME, _BITSET = 128, 256, 9
_REMOTE_SLEEP = ("nfs", "rpc_", "fuse", "request_wait_answer", "cifs", "smb", "ceph", "p9_", "netfs", "lustre", "cl_sync")
_MOST_POLLED = 64
_FROZEN = frozenset({"__refrigerator", "do_freezer_trap"})
_BY_WCHAN: tuple[tuple[str, WaitKind, str], ...] = (
    ("wait_for_partner", WaitKind.FIFO, "a FIFO whose other end nobody has opened"),
    ("pipe_read", WaitKind.PIPE, "data from a pipe"),
    ("pipe_write", WaitKind.PIPE, "room in a pipe"),
    ("unix_stream", WaitKind.SOCKET, "data from a unix socket"),
    ("inet_csk_accept", WaitKind.SOCKET, "a connection"),
    ("wait_woken", WaitKind.SOCKET, "a socket or terminal"),
    ("hrtimer_nanosleep", WaitKind.SLEEP, "time to pass"),
    ("futex", WaitKind.FUTEX, "a lock in memory"),
    ("poll", WaitKind.POLL, "events"),
    ("select", WaitKind.POLL, "events"),
    ("sigtimedwait", WaitKind.SIGNAL, "a signal"),
    ("pause", WaitKind.SIGNAL, "a signal"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A spot decoded: `arguments` as people read them, and the waits that follow."""

    arguments: str | None = None
    waits: tuple[Wait, ...] = ()


class Reader:
    """Reads the spots of one process. Reads of memory may block: to be called from a thread that can be left behind."""

    def __init__(self, process: ProcessKey, around: Surroundings) -> None:
        self._process = process
        self._around = around
        self._procfs = around.procfs
        self._edges = Edges(process, around)
        self._files = self._edges.files
        self._locks = LockWaits(process, around, self._edges)
        self._memory = TargetMemory(around.procfs, process.pid)

    def read(self, spot: Spot) -> Read:
        match spot.state:
            case "T":
                return Read(waits=(self._edges.plain(spot, WaitKind.STOPPED, "stopped (state T): it goes on with SIGCONT only"),))
            case "t":
                return Read(waits=(self._traced(spot),))
            case "R" | "Z" | "X":
                return Read()
            case _:
                pass
        if spot.wchan in _FROZEN:
            return Read(waits=(self._edges.plain(spot, WaitKind.STOPPED, f"frozen by its cgroup{self._cgroup()}"),))
        if spot.call is None or spot.call.name == "restart_syscall":
            return Read(waits=self._by_wchan(spot))
        found = self._by_call(spot, spot.call)
        far = (spot.wchan or "").startswith(_REMOTE_SLEEP)  # which some file systems sleep in interruptibly
        if (spot.state == "D" or far) and not any(wait.kind in _UNINTERRUPTED for wait in found.waits):
            return replace(found, waits=(self._disk(spot, spot.call),))
        return found

    def _by_call(self, spot: Spot, call: Call) -> Read:
        arguments = (*call.arguments, 0, 0, 0, 0, 0, 0)
        name = call.name
        if name in _READS or name in _WRITES:
            return self._on_descriptor(spot, arguments[0], name in _WRITES)
        if name in _BY_NAME or name in _BY_NAME_AT:
            return self._named(spot, name in _BY_NAME_AT, arguments)
        if name in _FORKS:
            return Read(arguments="waits until its child has begun its program", waits=self._edges.children(spot, -1))
        if name in _SIGNALS:
            timeout = self._memory.seconds(arguments[2]) if name == "rt_sigtimedwait" and arguments[2] else None
            return Read(arguments="a signal", waits=(self._edges.plain(spot, WaitKind.SIGNAL, "a signal", timeout_s=timeout),))
        rule = _RULES.get(name)
        if rule is not None:
            return rule(self, spot, arguments)
        if spot.state == "D":
            return Read()
        return Read(waits=(self._edges.plain(spot, WaitKind.OTHER, name if name != PAGE_FAULT else spot.wchan or name),))

    # files

    def _on_descriptor(self, spot: Spot, fd: int, writes: bool, timeout: float | None = None) -> Read:
        one = self._files.get(fd, wchan=spot.wchan, may_stat=spot.state != "D")
        if one is None:
            return Read(arguments=f"fd {fd}", waits=(self._edges.plain(spot, WaitKind.OTHER, f"descriptor {fd}", timeout_s=timeout),))
        text, waits = self._edges.on(spot, one, writes)
        return Read(arguments=f"fd {fd}: {text}", waits=tuple(replace(wait, timeout_s=timeout) for wait in waits))

    def _connect(self, spot: Spot, arguments: tuple[int, ...]) -> Read:
        """A unix socket does not know yet whom it connects to; the call does."""
        address = self._memory.address(arguments[1], arguments[2])
        if not isinstance(address, str):
            return self._on_descriptor(spot, arguments[0], True)
        return Read(arguments=f"unix socket {address}", waits=self._edges.listening(spot, address))

    def _named(self, spot: Spot, at: bool, arguments: tuple[int, ...]) -> Read:
        path = self._memory.text(arguments[1] if at else arguments[0])
        if path is not None and not path.startswith("/"):
            base = self._files.get(_signed(arguments[0])) if at and _signed(arguments[0]) != _AT_FDCWD else None
            folder = base.link if base is not None else self._procfs.link(f"{self._process.pid}/cwd")
            path = os.path.normpath(os.path.join(folder, path)) if folder else path
        told = path or "a file whose name cannot be read"
        if spot.wchan == "wait_for_partner":
            return Read(
                arguments=told, waits=(self._edges.plain(spot, WaitKind.FIFO, path or "a FIFO whose name cannot be read", nobody=True),)
            )
        mount = self._files.mount_of(path) if path else None
        text = f"{told} ({mount.fs_type})" if mount is not None else told
        return Read(arguments=told, waits=(self._edges.plain(spot, WaitKind.DISK, text, observable=mount is None or not mount.remote),))

    def _disk(self, spot: Spot, call: Call) -> Wait:
        remote = (spot.wchan or "").startswith(_REMOTE_SLEEP)
        if call.name == PAGE_FAULT:
            return self._edges.plain(spot, WaitKind.DISK, f"a page of a mapped file ({spot.wchan})", observable=not remote)
        one = self._files.get(_signed(call.arguments[0]), may_stat=False) if call.arguments else None
        what = f"{one.link} in {call.name}" if one is not None and one.link.startswith("/") else f"{call.name} ({spot.wchan})"
        kind = WaitKind.OTHER if one is not None and one.kind == "device" else WaitKind.DISK
        return self._edges.plain(spot, kind, what, observable=not remote)

    # locks

    def _fcntl(self, spot: Spot, arguments: tuple[int, ...]) -> Read:
        if arguments[1] not in _SETLKW:
            return self._on_descriptor(spot, arguments[0], False)
        return self._file_lock(spot, arguments[0])

    def _file_lock(self, spot: Spot, fd: int) -> Read:
        text, waits = self._locks.on(spot, fd)
        return Read(arguments=text, waits=waits)

    def _futex(self, spot: Spot, arguments: tuple[int, ...]) -> Read:
        address, operation, value = arguments[:3]
        timeout = None
        if arguments[3]:
            clock = 0 if operation & _REALTIME else 1
            timeout = self._memory.until(arguments[3], clock) if operation & 127 == _BITSET else self._memory.seconds(arguments[3])
        private = bool(operation & _PRIVATE)
        if not spot.main:
            text = "private futex" if private else "shared futex"
            return Read(arguments=text, waits=(self._edges.plain(spot, WaitKind.FUTEX, text, timeout_s=timeout),))
        owner = self._memory.mutex_owner(address)
        if owner is not None and owner != spot.tid and self._procfs.thread_stat(self._process.pid, owner) is not None:
            what = f"a mutex that its own thread {owner} holds"
            return Read(arguments=what, waits=(self._edges.to_itself(spot, WaitKind.FUTEX, what),))
        if not private and value == self._memory.word(address) and self._procfs.thread_stat(self._process.pid, value) is not None:
            what = f"the end of its own thread {value}"
            return Read(arguments=what, waits=(self._edges.to_itself(spot, WaitKind.FUTEX, what),))
        file = None if private else self._memory.mapped(address)
        what = "a lock in its own memory" if private else "a lock in shared memory" + (f" ({file})" if file is not None else "")
        if not private and owner is not None and (process := self._process_of(owner)) is not None:
            return Read(arguments=what, waits=(replace(self._edges.to_process(spot, WaitKind.FUTEX, what, process), timeout_s=timeout),))
        return Read(arguments=what, waits=(self._edges.plain(spot, WaitKind.FUTEX, what, timeout_s=timeout),))

    def _asynchronous(self, spot: Spot, arguments: tuple[int, ...]) -> Read:
        """What was asked for, of a disk or of a peer, is not to be seen."""
        return Read(waits=(self._edges.plain(spot, WaitKind.DISK, "asynchronous input or output", observable=False),))

    # several at once

    def _poll(self, spot: Spot, arguments: tuple[int, ...]) -> Read:
        milliseconds = _signed(arguments[2])
        return self._any_of(spot, self._memory.poll_set(arguments[0], arguments[1]), None if milliseconds < 0 else milliseconds / 1e3)

    def _ppoll(self, spot: Spot, arguments: tuple[int, ...]) -> Read:
        timeout = self._memory.seconds(arguments[2]) if arguments[2] else None
        return self._any_of(spot, self._memory.poll_set(arguments[0], arguments[1]), timeout)

    def _select(self, spot: Spot, arguments: tuple[int, ...]) -> Read:
        micro = spot.call is not None and spot.call.name == "select"
        timeout = self._memory.seconds(arguments[4], micro=micro) if arguments[4] else None
        if not arguments[1] and not arguments[2]:
            return self._sleeping(spot, timeout)
        return self._any_of(spot, self._memory.select_set(arguments[0], arguments[1], arguments[2]), timeout)

    def _epoll(self, spot: Spot, arguments: tuple[int, ...]) -> Read:
        if spot.call is not None and spot.call.name == "epoll_pwait2":
            timeout = self._memory.seconds(arguments[3]) if arguments[3] else None
        else:
            milliseconds = _signed(arguments[3])
            timeout = None if milliseconds < 0 else milliseconds / 1e3
        one = self._files.get(_signed(arguments[0]))
        entries = [PollEntry(fd) for fd in one.watched] if one is not None and one.kind == "eventpoll" else None
        return self._any_of(spot, entries, timeout)

    def _any_of(self, spot: Spot, entries: Iterable[PollEntry] | None, timeout: float | None) -> Read:
        """Any of these descriptors could end the wait. What they are is told once a kind."""
        texts: list[str] = []
        waits: dict[tuple[object, ...], Wait] = {}
        for entry in self._flat(entries or ()):
            one = self._files.get(entry.fd)
            if one is None:
                continue
            text, more = self._edges.on(spot, one, entry.writes)
            texts.append(f"fd {one.fd}: {text}")
            for wait in more:
                waits.setdefault((wait.kind, wait.what, wait.to), wait)
        told = ", ".join(texts[:MOST_WAITS]) + (f" and {len(texts) - MOST_WAITS} more" if len(texts) > MOST_WAITS else "")
        if not waits:
            waits[()] = self._edges.plain(spot, WaitKind.POLL, "events")
        return Read(arguments=told or None, waits=tuple(replace(wait, timeout_s=timeout) for wait in waits.values())[:MOST_WAITS])

    def _flat(self, entries: Iterable[PollEntry]) -> list[PollEntry]:
        """With the members of epoll sets in place of the sets."""
        found: list[PollEntry] = []
        for entry in entries:
            one = self._files.get(entry.fd)
            found += [PollEntry(fd) for fd in one.watched] if one is not None and one.kind == "eventpoll" else [entry]
        return found[:_MOST_POLLED]

    # time, children, states

    def _nanosleep(self, spot: Spot, arguments: tuple[int, ...]) -> Read:
        return self._sleeping(spot, self._memory.seconds(arguments[0]))

    def _clock_nanosleep(self, spot: Spot, arguments: tuple[int, ...]) -> Read:
        until = bool(arguments[1] & 1)
        return self._sleeping(spot, self._memory.until(arguments[2], arguments[0]) if until else self._memory.seconds(arguments[2]))

    def _sleeping(self, spot: Spot, timeout: float | None) -> Read:
        waits = self._locks.polled(spot, timeout) or (self._edges.plain(spot, WaitKind.SLEEP, "time to pass", timeout_s=timeout),)
        return Read(arguments=f"{timeout:.3g} s" if timeout is not None else None, waits=waits)

    def _wait4(self, spot: Spot, arguments: tuple[int, ...]) -> Read:
        pid = _signed(arguments[0])
        return Read(arguments=f"pid {pid}" if pid > 0 else "any child", waits=self._edges.children(spot, pid))

    def _waitid(self, spot: Spot, arguments: tuple[int, ...]) -> Read:
        sort, pid = arguments[0], _signed(arguments[1])
        if sort == _P_PIDFD:
            one = self._files.get(pid)
            pid = one.pid if one is not None and one.pid is not None else -1
        elif sort != _P_PID:
            pid = -1
        return Read(arguments=f"pid {pid}" if pid > 0 else "any child", waits=self._edges.children(spot, pid))

    def _traced(self, spot: Spot) -> Wait:
        raw = self._procfs.read(f"{self._process.pid}/task/{spot.tid}/status", 4096) or b""
        words = next((line.split() for line in raw.split(b"\n") if line.startswith(b"TracerPid:")), [])
        tracer = int(words[1]) if len(words) == 2 and words[1].isdigit() and len(words[1]) < 10 else 0
        if tracer > 0:
            return self._edges.to_process(spot, WaitKind.TRACED, f"its tracer, pid {tracer}", tracer)
        return self._edges.plain(spot, WaitKind.TRACED, "its tracer", observable=False)

    def _by_wchan(self, spot: Spot) -> tuple[Wait, ...]:
        """Where the system call may not be read."""
        wchan = spot.wchan or ""
        if "lock" in wchan or "fcntl" in wchan or (spot.main and not wchan):
            waits = self._locks.by_table(spot)
            if waits:
                return waits
        if not wchan:
            return ()
        if wchan == "do_wait":
            return self._edges.children(spot, -1)
        if spot.state == "D":
            return (self._edges.plain(spot, WaitKind.DISK, wchan, observable=not wchan.startswith(_REMOTE_SLEEP)),)
        for part, kind, what in _BY_WCHAN:
            if part in wchan:
                return (self._edges.plain(spot, kind, what, nobody=kind is WaitKind.FIFO),)
        return (self._edges.plain(spot, WaitKind.OTHER, wchan),)

    def _process_of(self, tid: int) -> int | None:
        raw = self._procfs.read(f"{tid}/status", 4096) or b""
        words = next((line.split() for line in raw.split(b"\n") if line.startswith(b"Tgid:")), [])
        return int(words[1]) if len(words) == 2 and words[1].isdigit() and len(words[1]) < 10 else None

    def _cgroup(self) -> str:
        raw = (self._procfs.read(f"{self._process.pid}/cgroup", 1 << 16) or b"").decode("utf8", "replace")
        paths = [line.split(":", 2)[2] for line in raw.splitlines() if line.startswith("0::") or ":freezer" in line]
        path = next((path for path in paths if path != "/"), None)
        return f" {path}" if path else ""


_RULES: Mapping[str, Callable[[Reader, Spot, tuple[int, ...]], Read]] = {
    "connect": Reader._connect,
    "flock": lambda reader, spot, arguments: reader._file_lock(spot, arguments[0]),
    "fcntl": Reader._fcntl,
    "futex": Reader._futex,
    "poll": Reader._poll,
    "ppoll": Reader._ppoll,
    "select": Reader._select,
    "pselect6": Reader._select,
    "epoll_wait": Reader._epoll,
    "epoll_pwait": Reader._epoll,
    "epoll_pwait2": Reader._epoll,
    "nanosleep": Reader._nanosleep,
    "clock_nanosleep": Reader._clock_nanosleep,
    "wait4": Reader._wait4,
    "waitid": Reader._waitid,
    "ioctl": lambda reader, spot, arguments: reader._on_descriptor(spot, _signed(arguments[0]), False),
    "io_uring_enter": Reader._asynchronous,
    "io_getevents": Reader._asynchronous,
    "io_pgetevents": Reader._asynchronous,
}


def _signed(value: int) -> int:
    """An `int` argument, of which a register shows 32 or 64 bits."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
