"""Who waits for whom: one node a process, edges from what its main thread waits for, and the sinks that nothing inside can move.

Ranks in a collective wait for the ranks that are not in it; that edge comes from the stacks, all others from the kernel.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from firsttoken.judge.closeup import Look, main_place, main_stack, main_waits, stack_of
from firsttoken.model.process import Member, ProcessKey
from firsttoken.model.stillness import Wait, WaitKind

TOGETHER = ("collective", "rendezvous")
"""kinds of frame signatures in which a rank waits for the other ranks; who is in the first is further than who is in the second"""
LONG_SLEEP = 60.0
"""seconds"""
WORKS = frozenset({"compile", "import", "file_read", "compute", "capture"})
"""kinds in which a process may work for long without a trace"""
UP = "idle"
"""the kind in which a server that is up waits for requests"""
IDLE = frozenset({"queue", UP})
"""kinds in which a rank has done what it was told and waits for its next command"""

_TELLING = (
    WaitKind.STOPPED,
    WaitKind.TRACED,
    WaitKind.FILE_LOCK,
    WaitKind.FIFO,
    WaitKind.CHILD,
    WaitKind.DISK,
    WaitKind.CONNECT,
    WaitKind.SOCKET,
    WaitKind.PIPE,
    WaitKind.FUTEX,
    WaitKind.SLEEP,
    WaitKind.POLL,
    WaitKind.OTHER,
)


_NAPS = frozenset({"nanosleep", "clock_nanosleep"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One process as last seen. `label` names it in a sentence. `busy`: its main thread runs. `doing` and `where` come from the frame
    signature of its stack.
    """

    process: ProcessKey
    rank: int | None
    title: str
    label: str
    state: str
    busy: bool
    doing: str | None
    where: str
    wait: Wait | None
    others: tuple[Wait, ...] = ()
    hands: tuple[Wait, ...] = ()
    """what its other threads wait for"""
    errands: frozenset[str] = frozenset()
    """what its other threads do, by their stacks"""
    naps: bool = False
    """another thread of it sleeps, and will wake up by itself"""
    has_stack: bool = False

    @property
    def inward(self) -> bool:
        """Its main thread waits for another thread of the same process."""
        return self.wait is not None and self.wait.kind == WaitKind.FUTEX and self.wait.to in (None, self.process)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """`kind` as in `WaitKind`; `to` None: nobody who can be named."""

    waiter: Node
    kind: str
    what: str
    to: Node | None = None
    outside: Wait | None = None


def label(member: Member, rank: int | None, root_pid: int | None) -> str:
    pid = member.process.pid
    if rank is not None:
        return f"rank {rank} (pid {pid})"
    if pid == root_pid:
        return f"the main process (pid {pid})"
    words = member.title.split(" ")
    return f"{words[0].rsplit('/', 1)[-1]} (pid {pid})"


def node(member: Member, rank: int | None, look: Look, root_pid: int | None) -> Node:
    place, stack = main_place(look), main_stack(look)
    waits = sorted(main_waits(look), key=lambda wait: _TELLING.index(wait.kind) if wait.kind in _TELLING else len(_TELLING))
    state = place.state if place is not None else "?"
    told = stack
    if waits and waits[0].kind in (WaitKind.FIFO, WaitKind.FILE_LOCK, WaitKind.DISK):
        told = stack_of(look, waits[0].tid) or stack  # it may be another thread that hangs there
    where = (told.where or told.frames[0].function) if told is not None else (place.wchan or place.syscall or "?") if place else "?"
    doing = stack.doing if stack is not None else None
    if stack is not None and doing in TOGETHER and _sleeps_long(waits):
        doing, where = None, stack.frames[0].function
    return Node(
        process=member.process,
        rank=rank,
        title=member.title,
        label=label(member, rank, root_pid),
        state=state,
        busy=state == "R",
        doing=doing,
        where=where,
        wait=waits[0] if waits else None,
        others=tuple(waits[1:]),
        hands=tuple(one for one in look.places.waits if one.tid != place.tid) if look.places is not None and place is not None else (),
        errands=frozenset(one.doing for one in look.stacks.threads if one.doing and not one.main)
        if look.stacks is not None
        else frozenset(),
        naps=look.places is not None and any(one.syscall in _NAPS and not one.main for one in look.places.threads),
        has_stack=stack is not None,
    )


def _sleeps_long(waits: Sequence[Wait]) -> bool:
    """What polls for other ranks sleeps for milliseconds; code called from a collective that sleeps for minutes waits for nobody."""
    return bool(waits) and waits[0].kind is WaitKind.SLEEP and (waits[0].timeout_s or 0.0) > LONG_SLEEP


def gathered(ranks: Mapping[int, Node]) -> dict[int, Node]:
    """The ranks that wait in the same collective, the largest group of them; where there is none, those in a rendezvous.

    Where there is none either, those that are done with their command, if others are not: the next one comes when all are.
    """
    for kind in TOGETHER:
        groups: dict[str, dict[int, Node]] = {}
        for rank, n in sorted(ranks.items()):
            if n.doing == kind and n.state not in ("T", "t"):
                groups.setdefault(n.where, {})[rank] = n
        if groups:
            return max(groups.items(), key=lambda item: (len(item[1]), item[0]))[1]
    idle = {rank: n for rank, n in sorted(ranks.items()) if n.doing in IDLE and n.state not in ("T", "t")}
    return idle if len(idle) < len(ranks) else {}


def as_far(late: Mapping[int, Node], together: Mapping[int, Node]) -> frozenset[int]:
    """Ranks in another collective that has gathered as many: which of the two is further cannot be told."""
    kinds = {n.doing for n in together.values()}
    groups: dict[str, set[int]] = {}
    for rank, n in late.items():
        if n.doing in kinds and n.state not in ("T", "t"):
            groups.setdefault(n.where, set()).add(rank)
    return frozenset(rank for group in groups.values() if len(group) == len(together) for rank in group)


def edges(nodes: Mapping[int, Node]) -> tuple[Edge, ...]:
    """Of every node that waits. A rank in a collective has one to every rank that is not in the same one."""
    ranks = {n.rank: n for n in nodes.values() if n.rank is not None}
    together = gathered(ranks)
    found: list[Edge] = []
    for pid, n in nodes.items():
        if n.rank in together:
            late = [other for rank, other in sorted(ranks.items()) if rank not in together]
            found += [Edge(waiter=n, kind=WaitKind.COLLECTIVE, what=n.where, to=other) for other in late]
            if late:
                continue
        wait = n.wait
        if wait is None:
            continue
        target = nodes.get(wait.to.pid) if wait.to is not None and wait.to.pid != pid else None
        if target is not None and target.process != wait.to:
            target = None  # another node's process, or one that had this pid before
        found.append(Edge(waiter=n, kind=wait.kind, what=wait.what, to=target, outside=wait if target is None else None))
    return tuple(found)


def cycle(found: tuple[Edge, ...]) -> tuple[Edge, ...]:
    """The first cycle of edges that are no collectives, told from its lowest rank on; empty where there is none."""
    after: dict[int, Edge] = {}
    for edge in found:
        if edge.to is not None and edge.kind != WaitKind.COLLECTIVE and edge.kind in _HOLDING:
            after.setdefault(edge.waiter.process.pid, edge)
    for start in sorted(after, key=lambda pid: order(after[pid].waiter)):
        path: list[Edge] = []
        seen: set[int] = set()
        at = start
        while at in after and at not in seen:
            seen.add(at)
            path.append(after[at])
            to = after[at].to
            at = to.process.pid if to is not None else -1
        if at in seen:
            begin = next(i for i, edge in enumerate(path) if edge.waiter.process.pid == at)
            circle = path[begin:]
            first = min(range(len(circle)), key=lambda i: order(circle[i].waiter))
            return (*circle[first:], *circle[:first])
    return ()


def order(n: Node) -> tuple[bool, int, int]:
    """By rank, then by pid: in which order the looks came tells nothing."""
    return (n.rank is None, n.rank or 0, n.process.pid)


def telling(edge: Edge | None) -> int:
    """The lower, the more an edge tells: a stopped process or a lock more than a parent that waits for events."""
    return len(_TELLING) + 1 if edge is None else _TELLING.index(WaitKind(edge.kind)) if edge.kind in _TELLING else len(_TELLING)


_HOLDING = frozenset({WaitKind.FILE_LOCK, WaitKind.FUTEX, WaitKind.PIPE, WaitKind.SOCKET, WaitKind.CHILD})
