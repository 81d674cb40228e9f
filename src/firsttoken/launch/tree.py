"""Which processes belong to a run, and signals that cannot hit another one.

A living keeper is the subreaper of everything that it started, so descent finds all of it. A dead one leaves four traces: the server's key
with its descendants, its session, the cgroup and the mark. Nothing is ever found by name. Each signal goes through a pidfd whose process
was compared with the key, so a reused pid is never hit.
"""

import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass

from firsttoken.hosts.procfs import Procfs, Stat
from firsttoken.launch.cgroup import Cgroup
from firsttoken.launch.folder import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """By what processes are known to be the run's.

    `keeper`: pid of a living subreaper, all of whose descendants belong but those of `sessions` (observers and their probes).
    `marked`: what an earlier sweep found by the mark. `apart`: pids that never belong (keeper, observer, ourselves).
    """

    server: Key | None = None
    keeper: int | None = None
    cgroup: Cgroup | None = None
    sessions: frozenset[int] = frozenset()
    marked: tuple[Key, ...] = ()
    apart: frozenset[int] = frozenset()


def members(procfs: Procfs, claim: Claim) -> dict[int, Stat]:
    """All living processes of the run (zombies left out), from one sweep over /proc: 20 µs a process of the machine."""
    stats = procfs.stats()
    found: set[int] = set()
    if claim.keeper is not None:
        found |= procfs.family([claim.keeper], stats=stats).keys()
    if claim.server is not None:
        found |= of_session(claim.server, stats)
    if claim.cgroup is not None:
        found |= set(claim.cgroup.pids())
    found |= {key.pid for key in claim.marked if key.pid in stats and stats[key.pid].start == key.start}
    found -= claim.apart
    found |= procfs.family(found, stats=stats).keys()
    live = {pid: stats[pid] for pid in found if pid in stats and not stats[pid].dead}
    return {pid: stat for pid, stat in live.items() if pid not in claim.apart and stat.sid not in claim.sessions}


def is_empty(procfs: Procfs, claim: Claim) -> bool:
    """The same question without a sweep, for a living keeper: has it no child and has the cgroup no process?

    A child that is dead but not reaped counts as there: its end is yet to be told.
    """
    assert claim.keeper is not None
    children = procfs.children(claim.keeper)
    if children is None:
        return not members(procfs, claim)
    candidates = [*(claim.cgroup.pids() if claim.cgroup else ()), *(key.pid for key in claim.marked if _same(procfs, key))]
    for pid in children:
        stat = procfs.stat(pid) if pid not in claim.apart else None
        if stat is not None and stat.sid not in claim.sessions:
            return False
    for pid in candidates:
        stat = procfs.stat(pid) if pid not in claim.apart else None
        if stat is not None and not stat.dead and stat.sid not in claim.sessions:
            return False
    return True


def find_marked(procfs: Procfs, mark: bytes, *, since: int = 0) -> tuple[Key, ...]:
    """Living processes that carry the mark, born at tick `since` or later. Reads environments: may block (see `hosts.procfs`)."""
    own = os.getpid()
    found = []
    for pid in procfs.pids():
        stat = procfs.stat(pid)
        if pid == own or stat is None or stat.dead or stat.start < since:
            continue
        if procfs.environ_has(pid, mark):
            found.append(Key(pid, stat.start))
    return tuple(found)


def of_session(leader: Key, stats: dict[int, Stat]) -> set[int]:
    """The leader, and its session also after its own end: a session's id is not given away while anybody is in it."""
    now = stats.get(leader.pid)
    if now is not None and now.start != leader.start:
        return set()
    return {leader.pid} | {pid for pid, stat in stats.items() if stat.sid == leader.pid and stat.start >= leader.start}


def ancestors(procfs: Procfs, pid: int) -> frozenset[int]:
    """`pid` and all above it: what a cleanup must never signal is itself."""
    found: set[int] = set()
    while pid > 0 and pid not in found:
        found.add(pid)
        stat = procfs.stat(pid)
        pid = stat.ppid if stat else 0
    return frozenset(found)


def send(procfs: Procfs, key: Key, number: int) -> bool:
    """Signals exactly that process. False where it is gone, is another one by now, or may not be signalled."""
    try:
        fd = os.pidfd_open(key.pid)
    except OSError as error:
        return _send_plainly(procfs, key, number) if error.errno not in _GONE else False
    try:
        if not procfs.alive(key.pid, key.start):
            return False
        signal.pidfd_send_signal(fd, number)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def send_group(procfs: Procfs, leader: Key, number: int) -> bool:
    """Signals the process group that `leader` leads, after its key was checked."""
    stat = procfs.stat(leader.pid)
    if stat is None or stat.start != leader.start or stat.pgid != leader.pid:
        return False
    try:
        os.killpg(leader.pid, number)
    except OSError:
        return False
    return True


_GONE = (3, 22)
"""ESRCH, and EINVAL for pids that cannot be: any other errno says that the kernel has no pidfd to give."""


def _send_plainly(procfs: Procfs, key: Key, number: int) -> bool:
    """For kernels (and sandboxes) without pidfd: check, then signal."""
    if not procfs.alive(key.pid, key.start):
        return False
    try:
        os.kill(key.pid, number)
    except OSError:
        return False
    return True


def _same(procfs: Procfs, key: Key) -> bool:
    return procfs.alive(key.pid, key.start)


def describe(stats: Iterable[Stat]) -> str:
    """`123 (name, state D)`, the first few."""
    listed = list(stats)
    text = ", ".join(f"{stat.pid} ({stat.comm}, state {stat.state})" for stat in listed[:5])
    return text + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")
