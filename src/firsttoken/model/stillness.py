"""What a thread that does not move shows: its stack, its place in the kernel, and what it waits for."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from firsttoken.model.process import ProcessKey


class Frame(NamedTuple):
    """One stack frame. `line` 0: unknown. Native frames have addresses taken out, so that ranks can be compared."""

    function: str
    file: str
    line: int
    native: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStack:
    """`frames` innermost first. `sign`: id of the frame signature that fits, `doing` its kind (collective, file_read, sleep_retry…),
    `where` the function that it was found in. They are told with the stack, so that a replay needs no knowledge of its own.
    `active`: it had a CPU, or was about to.
    """

    tid: int
    name: str | None = None
    main: bool = False
    frames: tuple[Frame, ...] = ()
    active: bool | None = None
    sign: str | None = None
    doing: str | None = None
    where: str | None = None


class WaitKind(StrEnum):
    """What a blocked thread waits for."""

    FILE_LOCK = "file_lock"
    FIFO = "fifo"
    PIPE = "pipe"
    SOCKET = "socket"
    CONNECT = "connect"
    FUTEX = "futex"
    CHILD = "child"
    SLEEP = "sleep"
    POLL = "poll"
    STOPPED = "stopped"
    TRACED = "traced"
    DISK = "disk"
    SIGNAL = "signal"
    TERMINAL = "terminal"
    COLLECTIVE = "collective"
    OTHER = "other"


WAIT_VERBS: Mapping[WaitKind, str] = {
    WaitKind.FILE_LOCK: "waits for the file lock",
    WaitKind.FIFO: "waits for the FIFO",
    WaitKind.CHILD: "waits for its child",
    WaitKind.CONNECT: "tries to connect to",
    WaitKind.SOCKET: "waits for data from",
    WaitKind.PIPE: "waits for the pipe",
    WaitKind.SLEEP: "sleeps:",
    WaitKind.POLL: "waits for events:",
    WaitKind.DISK: "waits for the disk or network file system of",
}
"""what a thread does that waits so, before the name of what it waits for"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadPlace:
    """`state` as in /proc (R S D T t Z). `wchan`, `syscall` (its name) and `arguments` (decoded where known) None where unreadable.

    `name` is the kernel's name of the thread, 15 characters at most. A thread that runs has neither `wchan` nor `syscall`.
    """

    tid: int
    main: bool = False
    name: str | None = None
    state: str = "?"
    wchan: str | None = None
    syscall: str | None = None
    arguments: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One edge of the wait-for graph: a thread of `waiter` waits for `what`, which `to` could end.

    `to` None: nobody in particular, or nobody who can be seen. `to_title` describes it, with how long it has run and what it does.
    `in_run`: `to` is a process of the run. `observable` False: who could end it is on another machine, of another user, or out of
    sight, so that it may still come. `nobody`: it was looked for and there is nobody who could ever end it (a FIFO without a writer).
    `to` equal to `waiter`: only the process itself could end it, by another of its threads (a pipe both of whose ends it holds).
    Several waits of one thread: any one of them could end it (a poll of several descriptors). `timeout_s`: after so many seconds
    the call returns by itself, as a thread does that polls; None where it never does, or where that cannot be read.
    """

    waiter: ProcessKey
    tid: int
    kind: WaitKind
    what: str
    to: ProcessKey | None = None
    to_title: str | None = None
    in_run: bool = False
    observable: bool = True
    nobody: bool = False
    timeout_s: float | None = None
