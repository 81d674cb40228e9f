"""Finding and ending what a run left: after a SIGKILL of its keeper, or of keeper and observer.

Nothing is found by name. A process counts when its key stands in keeper.json, or when it is in the run's session, cgroup or tree or carries
the run's mark, on the same boot and in the same pid namespace; each signal goes through a pidfd that was compared with the key.
"""

import contextlib
import os
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from firsttoken.hosts.procfs import Procfs, Stat
from firsttoken.launch.cgroup import recorded
from firsttoken.launch.control import Control, ControlError
from firsttoken.launch.folder import Ended, Folder, KeeperRecord, Key, here, remove_socket
from firsttoken.launch.spec import LadderWaits
from firsttoken.launch.stopping import Stopper
from firsttoken.launch.survivors import append_events
from firsttoken.launch.tree import Claim, ancestors, find_marked, members, of_session, send
from firsttoken.model.process import ProcessKey

_OBSERVER_LEAVES = 3.0
_KEEPER_ANSWERS = 5.0
_KEEPER_LEAVES = 6.0
_STEP = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A living process of a run. `part`: server, member, observer or keeper."""

    process: ProcessKey
    title: str
    part: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What `finish` did. `asked_keeper`: a living keeper did it. `stuck`: what did not end. `was_over`: there was nothing left."""

    ended: tuple[Left, ...] = ()
    stuck: tuple[Left, ...] = ()
    asked_keeper: bool = False
    was_over: bool = False


def find_left(folder: Path, procfs: Procfs | None = None) -> tuple[Left, ...]:
    """Living processes of the run in that folder, ours included. Empty where there are none, or none on this machine."""
    procfs = procfs or Procfs()
    record = Folder(folder).read()
    if record is None or not here(record, procfs):
        return ()
    found = {pid: (stat, "member") for pid, stat in members(procfs, _claim(record, procfs)).items()}
    if record.server is not None and record.server.pid in found:
        found[record.server.pid] = (found[record.server.pid][0], "server")
    found |= {pid: (stat, "observer") for pid, stat in _observers(record, procfs).items()}
    keeper = procfs.stat(record.pid)
    if keeper is not None and keeper.start == record.start and not keeper.dead:
        found[record.pid] = (keeper, "keeper")
    return tuple(
        Left(process=ProcessKey(record.node, pid, stat.start), title=" ".join(procfs.cmdline(pid))[:200] or stat.comm, part=part)
        for pid, (stat, part) in sorted(found.items())
    )


def finish(
    folder: Path, *, waits: LadderWaits | None = None, seconds: float = 60.0, by: str = "cleanup", procfs: Procfs | None = None
) -> Finished:
    """Ends what is left of a run, within about so many seconds, and marks it as ended.

    A living keeper is asked to do it (forced, so also after ready); one that does not answer is killed first.
    """
    procfs = procfs or Procfs()
    place = Folder(folder)
    record = place.read()
    left = find_left(folder, procfs)
    if record is None or not here(record, procfs):
        return Finished(was_over=True)
    deadline = time.monotonic() + seconds
    keeper = Key(record.pid, record.start)
    asked = procfs.alive(*keeper) and _ask_keeper(record, procfs, by, deadline)
    if not asked:
        record = place.read() or record
        if send(procfs, keeper, signal.SIGKILL):
            _wait_gone(procfs, [keeper], 2.0)
        events = _end_members(record, procfs, by, waits or LadderWaits(), deadline)
        _end_observer(record, procfs)
        _write_end(place, procfs, events if left else [])
    stuck = tuple(item for item in left if procfs.alive(item.process.pid, item.process.start))
    ended = tuple(item for item in left if item not in stuck)
    return Finished(ended=ended, stuck=stuck, asked_keeper=asked, was_over=not left)


def _claim(record: KeeperRecord, procfs: Procfs) -> Claim:
    keeper = record.pid if procfs.alive(record.pid, record.start) else None
    marked = find_marked(procfs, record.mark.encode(), since=record.start) if record.mark else ()
    ours = {record.pid} if keeper else set()
    return Claim(
        server=record.server, keeper=keeper, cgroup=recorded(record.cgroup), sessions=frozenset(record.sessions), marked=marked,
        apart=ancestors(procfs, os.getpid()) | ours,
    )  # fmt: skip


def _observers(record: KeeperRecord, procfs: Procfs) -> dict[int, Stat]:
    if record.observer is None:
        return {}
    stats = procfs.stats()
    pids = of_session(record.observer, stats) - ancestors(procfs, os.getpid())
    return {pid: stats[pid] for pid in pids if pid in stats and not stats[pid].dead}


def _ask_keeper(record: KeeperRecord, procfs: Procfs, by: str, deadline: float) -> bool:
    """False where the keeper does not answer; True when it has ended, or its time is over but it works on it."""
    try:
        connected = Control(record.socket, seconds=_KEEPER_ANSWERS)
    except ControlError:
        # One that is just leaving has closed its socket and writes its last line: it is not killed for that.
        _wait_gone(procfs, [Key(record.pid, record.start)], _KEEPER_LEAVES)
        return False
    try:
        with connected as control:
            control.hello("control")
            control.state(seconds=_KEEPER_ANSWERS)
            control.send({"stop": {"by": by, "force": True}})
            while not control.closed and time.monotonic() < deadline:
                for _ in control.frames(seconds=deadline - time.monotonic()):
                    pass
    except ControlError:
        return False
    _wait_gone(procfs, [Key(record.pid, record.start)], max(1.0, deadline - time.monotonic()))
    return True


def _end_members(record: KeeperRecord, procfs: Procfs, by: str, waits: LadderWaits, deadline: float) -> list[dict[str, Any]]:
    """Runs the ladder until nothing is left or the time is over. What it did, as event bodies."""
    events: list[dict[str, Any]] = [{"kind": "stop_asked", "by": by}]
    known: set[Key] = set()

    def claim() -> Claim:
        now = _claim(record, procfs)
        return replace(now, marked=(*now.marked, *known))

    started = time.monotonic()
    stopper = Stopper(
        procfs, claim, events.append, now=started, ready=False, force=True, terminates=record.terminates, waits=waits
    )  # fmt: skip
    root_lives = record.server is not None and procfs.alive(*record.server)
    if not root_lives:
        stopper.root_ended(started)
    while live := members(procfs, claim()):
        known |= {Key(pid, stat.start) for pid, stat in live.items()}
        now = time.monotonic()
        if now > deadline:
            break
        if root_lives and not procfs.alive(*(record.server or (0, 0))):
            root_lives = False
            stopper.root_ended(now)
        stopper.turn(now)
        pause = min(_STEP * 5, max(_STEP, (stopper.next_at or now) - time.monotonic()))
        _wait_gone(procfs, known, pause)
    if not live:
        events.append({"kind": "emptied"})
    return events


def _end_observer(record: KeeperRecord, procfs: Procfs) -> None:
    """It leaves by itself when it has recorded the end; if not, it is told to, then killed with its probes."""
    for number, patience in ((None, _OBSERVER_LEAVES), (signal.SIGTERM, 1.0), (signal.SIGKILL, 1.0)):
        keys = [Key(pid, stat.start) for pid, stat in _observers(record, procfs).items()]
        if not keys:
            return
        if number is not None:
            for key in keys:
                send(procfs, key, number)
        _wait_gone(procfs, keys, patience)


def _write_end(place: Folder, procfs: Procfs, events: list[dict[str, Any]]) -> None:
    record = place.read()
    if record is None or members(procfs, _claim(record, procfs)):
        return
    group = recorded(record.cgroup)
    if group is not None:
        group.remove()
    remove_socket(record, place)
    if record.ended is None:
        with contextlib.suppress(OSError):
            append_events(place.path, record, events)
            place.write(replace(record, ended=Ended(None, None, "cleanup"), observer=None, master_holder=None, sessions=()))


def _wait_gone(procfs: Procfs, keys: "list[Key] | set[Key]", seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(procfs.alive(*key) for key in keys) and time.monotonic() < deadline:
        time.sleep(_STEP)
