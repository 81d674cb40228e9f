"""Facts that only the record of a run tells: what its threads waited for in the kernel, who was in a collective and who was not, and which
of its processes a signal ended. Pure.

Key insight: a wait that names its other end decides a cause by itself, where a stack alone would only hint at one.
"""

from collections.abc import Callable, Iterable

from firsttoken.model.attached import Attached
from firsttoken.model.stillness import ThreadStack, Wait, WaitKind

Value = bool | float | str | None

NAMES = (
    "lock_held_outside", "lock_holder", "lock_holder_builds", "lock_cycle", "lock_of_nobody", "fifo_path", "address", "ranks_apart",
    "death_signal", "oom_kill",
)  # fmt: skip
_OUTSIDE = frozenset({9, 15})
"""signals that no fault of a process's own raises"""
_OWN_CONNECTION = frozenset({"collective", "rendezvous"})
_ELSEWHERE = frozenset({"queue", "idle", "rendezvous", "collective", "event_loop"})
"""what a rank does that went on without the others; one at work, or at a lock, a file or an address, is late and not lost"""


def recorded_facts(attached: Attached, stacks: Iterable[ThreadStack], of_title: Callable[[str], str | None]) -> dict[str, Value]:
    """`stacks`: of the ranks' main threads. All None where this is no record."""
    facts: dict[str, Value] = dict.fromkeys(NAMES)
    if not attached.recorded:
        return facts
    facts["death_signal"] = next((float(dead.signal) for dead in attached.dead if dead.signal in _OUTSIDE), None)
    facts["oom_kill"] = attached.oom
    if attached.waits is None:
        return facts
    locks = [wait for wait in attached.waits if wait.kind is WaitKind.FILE_LOCK]
    outside = next((wait for wait in locks if wait.to is not None and not wait.in_run), None)
    facts["lock_held_outside"] = outside is not None
    facts["lock_holder"] = _held(outside) if outside is not None else None
    facts["lock_holder_builds"] = outside is not None and of_title(_program(outside)) == "compiler"
    facts["lock_cycle"] = _cycle(locks)
    facts["lock_of_nobody"] = any(wait.nobody for wait in locks)
    facts["fifo_path"] = next((wait.what for wait in attached.waits if wait.kind is WaitKind.FIFO and wait.nobody), None)
    facts["address"] = next((wait.what for wait in attached.waits if wait.kind is WaitKind.CONNECT), None)
    closed = any(wait.nobody or wait.to == wait.waiter for wait in attached.waits)
    facts["ranks_apart"] = _apart(tuple(stacks)) if not closed else False
    return facts


def _held(wait: Wait) -> str:
    return f"{wait.what} is held by {wait.to_title or 'another process'}, pid {wait.to.pid if wait.to is not None else '?'}"


def _program(wait: Wait) -> str:
    """Its title without what it does at the moment."""
    return (wait.to_title or "").split(", started ")[0]


def _cycle(locks: list[Wait]) -> bool:
    """Whether processes of the run hold each other's locks."""
    to = {wait.waiter: wait.to for wait in locks if wait.to is not None and wait.to != wait.waiter}
    for start in to:
        at, steps = to[start], 0
        while at != start and at in to and steps < len(to):
            at, steps = to[at], steps + 1
        if at == start:
            return True
    return False


def _apart(stacks: tuple[ThreadStack, ...]) -> bool | None:
    """Whether some ranks wait in a collective, and others wait somewhere else in what is the run's own. None where stacks do not tell."""
    told = [(stack.doing, stack.where) for stack in stacks if stack.doing is not None]
    if len(told) < 2 or len(told) < len(stacks):
        return None
    together = [where for doing, where in told if doing in _OWN_CONNECTION]
    return bool(together) and len(set(told)) > 1 and all(doing in _ELSEWHERE for doing, _ in told)
