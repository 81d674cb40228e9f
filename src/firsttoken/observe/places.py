"""Where every thread of a still run stands in the kernel, and what it waits for.

Three small reads a thread (`stat`, `wchan`, `syscall`); one for each that waits for work beside the main one, and most do. Of a process
whose main thread runs only that one is told; of a blocked one all threads, up to a cap, those that wait for something that can be named
first. What follows from a place (descriptors, memory, tables of locks and sockets) may block on a stuck process or a dead mount, so each
process is read in a thread that can be left behind: one that gives no answer is told as such, and the others are still read.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence

from firsttoken.hosts.procfs import Procfs
from firsttoken.model.events import Places
from firsttoken.model.process import ProcessKey
from firsttoken.model.stillness import ThreadPlace, Wait, WaitKind
from firsttoken.observe.connections import Connections
from firsttoken.observe.edges import Spot, Surroundings
from firsttoken.observe.errands import Errand
from firsttoken.observe.locks import PolledLock
from firsttoken.observe.neighbours import Neighbours
from firsttoken.observe.syscalls import call_name, parse_call
from firsttoken.observe.waits import Reader

MOST_THREADS = 64
MOST_WAITS_TOLD = 32
_MOST_READ = 512
PATIENCE = 2.0
ALL_PATIENCE = 10.0
"""seconds that one process, and all together, may take"""
_MOST_STUCK = 8
_DULL = frozenset({WaitKind.FUTEX, WaitKind.SLEEP, WaitKind.POLL, WaitKind.OTHER, WaitKind.SIGNAL})
"""kinds of waits that tell something of a main thread only"""
_IDLE = {
    str(number).encode(): name
    for number in range(512)
    if (name := call_name(number)) in ("futex", "nanosleep", "clock_nanosleep", "pause", "rt_sigtimedwait", "rt_sigsuspend")
}
"""calls in which threads beside the main one wait for work, by number"""
_OF_ALL = frozenset({WaitKind.STOPPED, WaitKind.TRACED})
"""kinds that all threads share, told of the main thread"""


class PlaceFinder:
    """Remembers the processes at which a read hangs, and passes them over until it has ended."""

    def __init__(self, procfs: Procfs, node: str, *, patience: float = PATIENCE) -> None:
        self._procfs = procfs
        self._node = node
        self._patience = patience
        self._stuck: dict[int, Errand[Places]] = {}

    def look(
        self,
        keys: Iterable[ProcessKey],
        round: int,
        *,
        in_run: Collection[ProcessKey] = (),
        polled: Mapping[tuple[int, int], PolledLock] | None = None,
    ) -> list[Places]:
        """One `Places` for each process that is there. `in_run`: all members of the run (by default `keys`); `polled`: by pid and thread,
        a lock file that the thread's stack says it asks for again and again. Takes milliseconds; at most `patience` a process, and
        `ALL_PATIENCE` in all."""
        order = tuple(dict.fromkeys(keys))
        run = {key.pid for key in (*order, *in_run)}
        around = Surroundings(self._procfs, Neighbours(self._procfs, self._node, run), Connections(self._procfs, sorted(run)), polled or {})
        self._stuck = {pid: errand for pid, errand in self._stuck.items() if not errand.done}
        until = time.monotonic() + ALL_PATIENCE
        found: list[Places] = []
        for key in order:
            errand = self._stuck.get(key.pid)
            if errand is not None:
                found.append(_unread(key, round, f"a read hangs for {time.monotonic() - errand.began:.0f} s (its memory lock is held?)"))
            elif len(self._stuck) >= _MOST_STUCK or time.monotonic() > until:
                found.append(_unread(key, round, "not looked at: reads of other processes hang"))
            elif (places := self._one(key, round, around)) is not None:
                found.append(places)
        return found

    def _one(self, key: ProcessKey, round: int, around: Surroundings) -> Places | None:
        spots: list[Spot] = []

        def work() -> Places | None:
            return _places(self._procfs, key, round, around, spots)

        errand = Errand(work, "firsttoken-places")
        if not errand.wait(self._patience):
            self._stuck[key.pid] = errand  # type: ignore[assignment]  # only `done` and `began` are asked of it
            reason = f"gave no answer within {self._patience:g} s (its memory lock is held, or a file system does not answer?)"
            return Places(process=key, round=round, threads=tuple(_told(spot) for spot in spots[:MOST_THREADS]), error=reason)
        if errand.error is not None:
            return _unread(key, round, f"could not be read: {errand.error}")
        return errand.result


def places(
    procfs: Procfs,
    keys: Iterable[ProcessKey],
    node: str,
    round: int,
    in_run: Collection[ProcessKey] = (),
    polled: Mapping[tuple[int, int], PolledLock] | None = None,
) -> list[Places]:
    """One look, without memory."""
    return PlaceFinder(procfs, node).look(keys, round, in_run=in_run, polled=polled)


def stand(procfs: Procfs, key: ProcessKey, spots: list[Spot], besides: Collection[tuple[int, int]] = ()) -> list[tuple[int, str]]:
    """Reads where the threads of a process stand, before anything is followed from it: the main one first into `spots`, then those that
    may tell something; of those that wait for work, thread id and call are returned. `besides`: pid and thread of some that are no such.
    """
    main = _spot(procfs, key, key.pid)
    idle: list[tuple[int, str]] = []
    if main is None:
        return idle
    spots.append(main)
    for tid in procfs.threads(key.pid)[:_MOST_READ] if main.state != "R" else ():
        call = _idle_call(procfs, key.pid, tid) if main.state == "S" and tid != key.pid and (key.pid, tid) not in besides else None
        if call is not None:
            idle.append((tid, call))
        elif tid != key.pid and (spot := _spot(procfs, key, tid)) is not None:
            spots.append(spot)
    return idle


def _places(procfs: Procfs, key: ProcessKey, round: int, around: Surroundings, spots: list[Spot]) -> Places | None:
    """`spots` is filled on the way, for the case that the rest hangs. None where the process is gone or was replaced."""
    stat = procfs.stat(key.pid)
    if stat is None or stat.start != key.start or stat.dead:
        return None
    idle = stand(procfs, key, spots, around.polled)
    if not spots:
        return None
    main = spots[0]
    reader = Reader(key, around)
    rows: list[tuple[Spot, ThreadPlace, tuple[Wait, ...]]] = []
    for spot in spots:
        read = reader.read(spot)
        waits = tuple(
            wait for wait in read.waits if spot.main or not (wait.kind in _DULL or (wait.kind in _OF_ALL and spot.state == main.state))
        )
        rows.append((spot, _told(spot, read.arguments), waits))
    first, *others = rows
    others.sort(key=lambda row: (not row[2], row[0].state in "SI", row[0].tid))  # what tells something first
    told = (first, *others[: MOST_THREADS - 1])
    idle.sort(key=lambda one: (one[1] == "futex", one[0]))  # who sleeps wakes up by himself
    at_rest = tuple(ThreadPlace(tid=tid, state="S", syscall=call) for tid, call in idle[: MOST_THREADS - len(told)])
    return Places(
        process=key,
        round=round,
        threads=(*(place for _, place, _ in told), *at_rest),
        waits=tuple(wait for _, _, waits in told for wait in waits)[:MOST_WAITS_TOLD],
        error=_error(procfs, key.pid, spots),
    )


def _spot(procfs: Procfs, key: ProcessKey, tid: int) -> Spot | None:
    """State last: a thread that sleeps both before and after its call was read was in that call."""
    folder = f"{key.pid}/task/{tid}"
    wchan = (procfs.read(f"{folder}/wchan", 256) or b"").decode("ascii", "replace").strip("\0\n ")
    call = parse_call(procfs.read(f"{folder}/syscall", 256))
    stat = procfs.thread_stat(key.pid, tid)
    if stat is None:
        return None
    running = stat.state == "R"
    return Spot(
        process=key,
        tid=tid,
        main=tid == key.pid,
        name=stat.comm,
        state=stat.state,
        wchan=wchan if wchan not in ("", "0") and not running else None,
        call=None if running else call,
    )


def _idle_call(procfs: Procfs, pid: int, tid: int) -> str | None:
    """The call in which a thread waits for work, None where it is in another one, runs or does not show it."""
    number, blank, _ = (procfs.read(f"{pid}/task/{tid}/syscall", 256) or b"").partition(b" ")
    return _IDLE.get(number) if blank else None


def _told(spot: Spot, arguments: str | None = None) -> ThreadPlace:
    return ThreadPlace(
        tid=spot.tid,
        main=spot.main,
        name=spot.name,
        state=spot.state,
        wchan=spot.wchan,
        syscall=spot.call.name if spot.call is not None else None,
        arguments=arguments,
    )


def _error(procfs: Procfs, pid: int, spots: Sequence[Spot]) -> str | None:
    """What could not be seen of a process whose threads sleep."""
    asleep = [spot for spot in spots if spot.state in "SD"]
    if not asleep or any(spot.call is not None for spot in asleep):
        return None
    if procfs.read(f"{pid}/task/{asleep[0].tid}/syscall", 256) is not None:
        return None  # it woke up in between
    if any(spot.wchan is not None for spot in asleep):
        return "system calls may not be read (tracing is not permitted: Yama, or a container's profile); kernel functions only"
    return "only thread states may be read (another user's process?)"


def _unread(key: ProcessKey, round: int, reason: str) -> Places:
    return Places(process=key, round=round, error=reason)
