"""Looking closely: places and stacks of all processes, several times some seconds apart. What is the same in several rounds stands still.

A thread's *posture* is its stack without line jitter (the innermost Python line may differ between two looks at the same loop) and its
place in the kernel. Numbers that move by themselves (line of the innermost frame, sleep times) are left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from firsttoken.model.events import Places, Stacks
from firsttoken.model.process import ProcessKey
from firsttoken.model.stillness import Frame, ThreadPlace, ThreadStack, Wait, WaitKind

KEPT = 8
_OF_A_THREAD = frozenset({WaitKind.FIFO, WaitKind.FILE_LOCK, WaitKind.DISK})
"""what a thread that others wait for hangs at; service threads wait for sockets and pipes all day"""

TRIES = frozenset({"sleep_retry", "network"})
"""kinds in which a process tries again and again"""
_OUTER = 6

Posture = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One process in one round. `at`: seconds since launch."""

    round: int
    at: float
    places: Places | None = None
    stacks: Stacks | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Closeup:
    """The last looks at each process by pid, oldest first. `round` is the last one begun, `begun` what has come of it so far.

    A round counts once it is whole, else all would seem to move between its places and its stacks.
    """

    looks: Mapping[int, tuple[Look, ...]] = field(default_factory=dict)
    round: int = 0
    at: float | None = None
    begun: Mapping[int, Look] = field(default_factory=dict)


def noted(closeup: Closeup, body: Places | Stacks, t: float) -> Closeup:
    """A round is whole with the last place or stack that misses."""
    pid = body.process.pid
    if body.round < closeup.round:
        return closeup  # too late: another round has begun
    begun = {} if body.round > closeup.round else closeup.begun
    last = begun.get(pid) or Look(round=body.round, at=t)
    last = replace(last, places=body) if isinstance(body, Places) else replace(last, stacks=body)
    begun = {**begun, pid: last}
    at = t if body.round > closeup.round or closeup.at is None else closeup.at
    closeup = replace(closeup, round=max(closeup.round, body.round), at=at, begun=begun)
    if not all(_whole(look) for look in begun.values()):
        return closeup
    return replace(closeup, looks={**closeup.looks, **{p: _added(closeup.looks.get(p, ()), look) for p, look in begun.items()}})


def forget(closeup: Closeup) -> Closeup:
    """Something moved: what was seen before proves nothing any more. The rounds go on counting."""
    return Closeup(round=closeup.round)


def main_place(look: Look) -> ThreadPlace | None:
    if look.places is None:
        return None
    return next((thread for thread in look.places.threads if thread.main), None)


def main_stack(look: Look) -> ThreadStack | None:
    """The main thread's stack, None where there is none or it is empty."""
    if look.stacks is None:
        return None
    found = next((thread for thread in look.stacks.threads if thread.main), None)
    return found if found is not None and found.frames else None


def stack_of(look: Look, tid: int) -> ThreadStack | None:
    """That thread's stack, None where there is none or it is empty."""
    threads = look.stacks.threads if look.stacks is not None else ()
    return next((thread for thread in threads if thread.tid == tid and thread.frames), None)


def main_waits(look: Look) -> tuple[Wait, ...]:
    """Of the main thread; of the others where the main thread waits for nothing that is told.

    A main thread that waits for a lock in its own memory, the interpreter's too, waits for another thread of its own: what that one may
    wait for in a file counts as well.
    """
    if look.places is None:
        return ()
    place, waits = main_place(look), look.places.waits
    own = tuple(wait for wait in waits if place is not None and wait.tid == place.tid)
    if own and all(wait.kind is WaitKind.FUTEX and wait.to in (None, wait.waiter) for wait in own):
        return (*own, *(wait for wait in waits if wait.kind in _OF_A_THREAD and wait not in own))
    return own or waits


def posture(look: Look) -> Posture:
    """Equal postures of one process in two rounds: its main thread did not get on. Of a loop that tries again and again only the outer
    frames count: it is now in a try, now between two.
    """
    place, stack = main_place(look), main_stack(look)
    if stack is not None and stack.doing in TRIES:
        return ("tries", tuple(_plain(frame, i) for i, frame in enumerate(stack.frames))[-_OUTER:])
    where = (place.wchan, place.syscall) if place is not None and place.state != "R" else ("running",)
    return (where if stack is None else (), tuple(_plain(frame, i) for i, frame in enumerate(stack.frames)) if stack is not None else ())


def same_for(looks: tuple[Look, ...], rounds: int, seconds: float = 0.0) -> bool:
    """Whether at least the last `rounds` looks, and those of the last `seconds`, show one posture. Where neither stack nor place could be
    read, nothing is known to be the same.
    """
    first = len(looks) - rounds
    while first > 0 and looks[-1].at - looks[first].at < seconds:
        first -= 1
    if first < 0 or looks[-1].at - looks[first].at < seconds or not all(_tells(look) for look in looks[first:]):
        return False
    return len({(_whose(look), posture(look)) for look in looks[first:]}) == 1


def works_beside(looks: tuple[Look, ...]) -> bool:
    """Whether the same thread beside the main one ran in the last two looks: what the main thread waits for may be its work."""
    running = [
        {thread.tid for thread in look.places.threads if thread.state == "R" and not thread.main}
        for look in looks[-2:]
        if look.places is not None
    ]
    return len(running) == 2 and bool(running[0] & running[1])


def _tells(look: Look) -> bool:
    place = main_place(look)
    seen = place is not None and (place.state not in ("S", "?") or place.wchan is not None or place.syscall is not None)
    return seen or main_stack(look) is not None


def _whose(look: Look) -> ProcessKey | None:
    """A pid may be taken anew between two looks."""
    told = look.places or look.stacks
    return told.process if told is not None else None


def _whole(look: Look) -> bool:
    """A process that was gone has no place any more."""
    return look.stacks is not None and (look.places is not None or not look.stacks.threads)


def _added(kept: tuple[Look, ...], look: Look) -> tuple[Look, ...]:
    return (*(old for old in kept[-KEPT:] if old.round != look.round), look)[-KEPT:]


def _plain(frame: Frame, depth: int) -> tuple[str, str, int]:
    return (frame.function, frame.file, 0 if depth == 0 else frame.line)
