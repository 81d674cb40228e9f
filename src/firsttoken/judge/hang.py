"""From looks at a still start to a proof: hung where nothing can end it, waiting where something outside still may.

The proof is a closed wait-for graph: everything stands in the same posture in several rounds, and every path ends in a sink. What the sink
is decides: a stopped process, a cycle, a FIFO without a writer, an idle child or a rank that waits for nobody is hung; a lock of another
live process, a peer that has not come, an address that does not answer is waiting. A busy sink proves nothing by itself. How much stillness
each proof needs stands in `rule`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from firsttoken.judge.closeup import TRIES, Closeup, main_waits, same_for, works_beside
from firsttoken.judge.graph import IDLE, UP, WORKS, Edge, Node, as_far, cycle, edges, gathered, label, node, order, telling
from firsttoken.judge.ranks import left_over, world_rank
from firsttoken.judge.rule import ASLEEP, AT_REST, CLOSED, CYCLE, DRIVER, HEALTHY_QUIET, NOBODY, OUTSIDE_AFTER, SPINS, STOPPED_FOR, Bar
from firsttoken.judge.sentences import as_well, list_ranks, waits_for
from firsttoken.model.plan import Sizes
from firsttoken.model.process import Member, ProcessKey
from firsttoken.model.result import RankGroup
from firsttoken.model.stillness import WaitKind
from firsttoken.model.words import Verdict

_SPINS = frozenset({"cuda_sync", "spin"})
LONG_SLEEP_S = 60.0
_NEED_STACKS = frozenset({WaitKind.SOCKET, WaitKind.FUTEX, WaitKind.POLL, WaitKind.SLEEP, WaitKind.OTHER})
"""kinds of waits of which the kernel alone tells too little for a proof"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """`verdict` HUNG, WAITING, or STALLED where the sink is only busy. `behind`: world ranks, sorted."""

    verdict: Verdict
    reason: str
    facts: tuple[str, ...] = ()
    behind: tuple[int, ...] = ()
    root: Node | None = None
    root_outside: Mapping[str, object] | None = None
    edges: tuple[Edge, ...] = ()
    cycle: tuple[Edge, ...] = ()
    groups: tuple[RankGroup, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a proof is taken from. `still`: sampled seconds without a strong signal; `quiet`: for how many such seconds healthy starts are
    known to be quiet in this phase; `stopped`: seconds in state T by pid. `told_ranks`: world ranks by pid, as the log told them."""

    members: Mapping[int, Member]
    sizes: Sizes
    closeup: Closeup
    still: float
    stopped: Mapping[int, float] = field(default_factory=dict)
    root_pid: int | None = None
    told_ranks: Mapping[int, int] = field(default_factory=dict)
    quiet: float = HEALTHY_QUIET

    def rank(self, member: Member) -> int | None:
        """From the title, else from what the log said of that pid, else by elimination."""
        titled = world_rank(member.tag, self.sizes)
        told = titled if titled is not None else self.told_ranks.get(member.process.pid)
        return told if told is not None else left_over(self.members, self.sizes, self.told_ranks).get(member.process.pid)


def prove(scene: Scene) -> Proof | None:
    """None while nothing is proven."""
    nodes = _nodes(scene)
    halted = _halted(scene, nodes)
    if halted is not None:
        return halted
    settled = {pid: n for pid, n in nodes.items() if same_for(scene.closeup.looks[pid], 2)}
    if not settled or scene.still < CYCLE.still:
        return None
    if any(n.state == "T" for n in nodes.values()):
        return None  # stopped for a short time so far: told above once it is long
    found = edges(nodes)
    circle = cycle(tuple(edge for edge in found if edge.waiter.process.pid in settled))
    groups = _groups(nodes)
    if circle:
        if not _meets(scene, CYCLE, *(edge.waiter.process.pid for edge in circle)):
            return None
        behind = _ranks(edge.waiter for edge in circle)
        path = " → ".join(f"{edge.waiter.label} ({edge.kind} {edge.what})" for edge in circle)
        return Proof(verdict=Verdict.HUNG, reason=f"deadlock: {path} → {circle[0].waiter.label}", behind=behind,
                     root=circle[0].waiter, edges=found, cycle=circle, groups=groups)  # fmt: skip
    if scene.still < OUTSIDE_AFTER:
        return None
    ranked = {n.rank: n for n in nodes.values() if n.rank is not None}
    together = gathered(ranked)
    if any(n.process.pid not in settled for n in together.values()):
        return None
    late = {rank: n for rank, n in ranked.items() if rank not in together}
    if together and not late:
        return _missing(scene, together, found, groups)
    if any(n.process.pid not in settled and not n.busy for n in late.values()):
        return None
    return _sink(scene, nodes, settled, together, late, found, groups)


def at_rest(scene: Scene) -> bool:
    """Whether nothing works: every process that was looked at stands in one posture for long enough, and none of these is one of work."""
    nodes = _nodes(scene)
    works = any(n.busy or n.state == "D" or n.doing in WORKS or n.doing in _SPINS for n in nodes.values())
    return bool(nodes) and not works and _meets(scene, AT_REST, *nodes)


def _meets(scene: Scene, bar: Bar, *pids: int) -> bool:
    """Whether the start has been still for long enough, and these processes were in one posture for as many looks as the bar asks for."""
    return scene.still >= bar.needs(scene.quiet) and all(same_for(scene.closeup.looks[pid], bar.looks, bar.span) for pid in pids)


def _nodes(scene: Scene) -> dict[int, Node]:
    """Processes of which there is a look of the last round, by rank: the order in which the looks came tells nothing."""
    found: list[Node] = []
    for pid, looks in scene.closeup.looks.items():
        member = scene.members.get(pid)
        if member is not None and looks and looks[-1].places is not None and looks[-1].places.process == member.process:
            n = node(member, scene.rank(member), looks[-1], scene.root_pid)
            found.append(replace(n, busy=n.busy or works_beside(looks)))
    return {n.process.pid: n for n in sorted(found, key=order)}


def _halted(scene: Scene, nodes: Mapping[int, Node]) -> Proof | None:
    """A stopped process needs no second look: its state has been sampled all along."""
    halted = [
        pid
        for pid, seconds in scene.stopped.items()
        if seconds >= STOPPED_FOR and pid in scene.members and (pid not in nodes or nodes[pid].state != "t")
    ]  # who traces a process may let it go on
    if not halted:
        return None
    ranks = {pid: scene.rank(scene.members[pid]) for pid in halted}
    pid = min(halted, key=lambda pid: (ranks[pid] is None, ranks[pid] or 0, pid))
    member, seconds = scene.members[pid], scene.stopped[pid]
    who = label(member, ranks[pid], scene.root_pid)
    behind = tuple(sorted({rank for rank in ranks.values() if rank is not None}))
    reason = f"{who} is stopped (state T) for {seconds:.0f} s; only SIGCONT can continue it: kill -CONT {pid}"
    return Proof(verdict=Verdict.HUNG, reason=reason, behind=behind, root=nodes.get(pid) or _bare(member, ranks[pid], scene.root_pid),
                 edges=edges(nodes), groups=_groups(nodes))  # fmt: skip


def _bare(member: Member, rank: int | None, root_pid: int | None) -> Node:
    told = label(member, rank, root_pid)
    return Node(process=member.process, rank=rank, title=member.title, label=told, state="T", busy=False, doing=None,
                where="do_signal_stop", wait=None)  # fmt: skip


def _missing(scene: Scene, together: Mapping[int, Node], found: tuple[Edge, ...], groups: tuple[RankGroup, ...]) -> Proof | None:
    """All ranks that are there wait for each other: then for one that is not there."""
    absent = tuple(rank for rank in range(scene.sizes.world) if rank not in together)
    if not absent:
        return None
    where = next(iter(together.values())).where
    here = f"{len(together)} of {scene.sizes.world} ranks"
    reason = f"{here} wait in {where} for {list_ranks(absent)}, which {'has' if len(absent) == 1 else 'have'} not joined"
    return Proof(verdict=Verdict.WAITING, reason=reason, behind=absent, edges=found, groups=groups)


def _sink(
    scene: Scene,
    nodes: Mapping[int, Node],
    settled: Mapping[int, Node],
    together: Mapping[int, Node],
    late: Mapping[int, Node],
    found: tuple[Edge, ...],
    groups: tuple[RankGroup, ...],
) -> Proof | None:
    """Follows the ranks that the others wait for (or all, where none waits for another) to where their path ends."""
    titled = [n for pid, n in settled.items() if scene.members[pid].tag is not None]
    starts = list(late.values()) or titled or list(settled.values())
    by_waiter: dict[int, Edge] = {}
    for edge in found:
        if edge.kind != WaitKind.COLLECTIVE:
            by_waiter.setdefault(edge.waiter.process.pid, edge)
    ends: list[tuple[Node, Node, Edge | None]] = [(start, *_follow(start, by_waiter, nodes)) for start in starts]
    ends.sort(key=lambda end: telling(end[2]))
    busy = [end for end in ends if end[1].busy]
    far = as_far(late, together)
    behind = _ranks(n for rank, n in late.items() if rank not in far) if together else _odd(ends)
    waiting = list_ranks(tuple(sorted(together))) + (" waits" if len(together) == 1 else " wait")
    prefix = f"{waiting} for {list_ranks(behind)} in {_where(together)}; " if together and behind else ""
    proof = Proof(verdict=Verdict.HUNG, reason=prefix, behind=behind, edges=found, groups=groups)
    if busy:
        last = busy[0][1]
        if together and _spins(scene, last):
            said = f"{last.label} spins in {last.where} for {scene.still:.0f} s, always the same, and nobody else moves"
            return replace(proof, root=last, reason=prefix + said)
        return replace(proof, verdict=Verdict.STALLED, root=last, reason=prefix + _busy(last, scene.still))
    for _, waiter, open_edge in ends:
        if open_edge is not None and _may_come(open_edge):
            holder = _outside(open_edge)
            reason = prefix + waits_for(waiter, open_edge) + as_well(waiter, open_edge, ends)
            return replace(proof, verdict=Verdict.WAITING, reason=reason, root_outside=holder, root=None if holder else waiter)
    if any(last.process.pid not in settled or last.state == "D" or _unseen(edge, nodes) for _, last, edge in ends):
        return None
    for _, last, _ in ends:
        if last.doing in TRIES:
            tried = _tried(scene, last)
            holder = _outside(tried) if tried is not None else None
            said = waits_for(last, tried) if tried is not None else f"{last.label} tries again and again in {last.where}"
            return replace(proof, verdict=Verdict.WAITING, reason=prefix + said, root_outside=holder, root=None if holder else last)
    if (
        not together
        and any(start.doing == UP for start in starts)
        and all(start.doing in IDLE for start in starts if start.rank is not None)
    ):
        up = next(start for start in starts if start.doing == UP)
        return replace(proof, verdict=Verdict.STALLED, root=up, reason=f"{up.label} waits for requests, as an idle server does")
    start, last, on = ends[0]
    at_work = next((n for n in nodes.values() if n.busy and n.rank not in together), None)
    if at_work is not None and not (on is not None and on.outside is not None and on.outside.nobody):
        return replace(proof, verdict=Verdict.STALLED, root=at_work, reason=prefix + _busy(at_work, scene.still))
    if last.doing in _SPINS and not _meets(scene, SPINS, last.process.pid):
        return None
    by_child = last is not start and by_waiter[start.process.pid].kind == WaitKind.CHILD
    open_end = _open_end(last, on, scene.still, alone=last is start or by_child, awaited=bool(together))
    if open_end is not None:
        verdict, said = open_end
        return replace(proof, verdict=verdict, root=last, reason=prefix + said)
    asleep = on is None or on.kind == WaitKind.SLEEP or (on.kind == WaitKind.POLL and last.rank is not None)
    asleep = asleep or (last.inward and (last.naps or "sleep_retry" in last.errands))
    if last.rank is None and last is not start and all(pid in settled or n.state == "Z" for pid, n in nodes.items()):
        asleep = False  # a parent that waits for its ranks, and nothing in the run moves: the circle is closed
    if not _meets(scene, ASLEEP if asleep else _bar(on), last.process.pid):
        return None
    said = waits_for(last, on) + as_well(last, on, ends) if on is not None else f"{last.label} stands in {last.where} and waits for nobody"
    via = "" if last is start else f"{start.label} waits for {last.label} in {start.where}; "
    return replace(proof, reason=prefix + via + said, root=last if by_child or start.rank is None else start)


def _tried(scene: Scene, last: Node) -> Edge | None:
    """Between two tries it only sleeps: what an earlier look found it to wait for outside."""
    for look in reversed(scene.closeup.looks[last.process.pid]):
        for wait in main_waits(look):
            edge = Edge(waiter=last, kind=wait.kind, what=wait.what, outside=wait)
            if wait.kind in (WaitKind.CONNECT, WaitKind.SOCKET) and _may_come(edge):
                return edge
    return None


def _bar(on: Edge | None) -> Bar:
    """For a sink that does not wake up by itself."""
    if on is not None and on.outside is not None and on.outside.nobody:
        return NOBODY
    return DRIVER if on is not None and on.kind == WaitKind.OTHER and on.what.startswith("/dev/") else CLOSED


def _open_end(last: Node, on: Edge | None, still: float, *, alone: bool, awaited: bool) -> tuple[Verdict, str] | None:
    """Why a path may go on by itself, so that nothing is proven. `alone`: it ends where it began (or at a child), so no circle of the run
    is closed by it; `awaited`: other ranks wait for it in a collective.
    """
    wait = last.wait
    if wait is not None and wait.kind == WaitKind.SLEEP:  # every sleep ends; one of minutes while the others wait is as good as none
        lasts = wait.timeout_s
        if lasts is not None and still < lasts + CLOSED.still and not (awaited and lasts >= LONG_SLEEP_S):
            return Verdict.WAITING, f"{last.label} sleeps, {lasts:.0f} s at a time (in {last.where})"
        if not awaited:
            return Verdict.STALLED, f"{last.label} sleeps (in {last.where}), and what it waits for is not known"
    if not last.has_stack and (on is None or on.kind in _NEED_STACKS):
        return Verdict.STALLED, f"{last.label} stands still; without its stack nothing is proven"
    if last.inward and (hand := _helping_hand(last)) is not None:
        return hand
    if not alone or awaited:
        return None
    if wait is not None and wait.kind == WaitKind.SOCKET and wait.what.startswith("a connection to "):
        return Verdict.STALLED, f"{last.label} waits for {wait.what}, as an idle server does"
    own_socket = wait is not None and wait.kind == WaitKind.SOCKET and wait.to == last.process
    if wait is not None and last.rank is None and (own_socket or wait.kind == WaitKind.POLL):
        return Verdict.STALLED, f"{last.label} waits for events (in {last.where}), as an idle server does"
    if last.inward and (last.naps or any(hand.timeout_s is not None for hand in last.hands)):
        return Verdict.STALLED, f"{last.label} waits for a thread of its own, and one of them wakes up by itself"
    return None


def _helping_hand(last: Node) -> tuple[Verdict, str] | None:
    """Of a process whose main thread waits for another of its threads: one that may bring it on."""
    for hand in last.hands:
        if not hand.nobody and (not hand.observable or (hand.to is not None and not hand.in_run and hand.to != last.process)):
            return Verdict.WAITING, f"{last.label} waits for a thread of its own, which waits for {hand.what}"
    at_work = sorted(last.errands & WORKS)
    return (Verdict.STALLED, f"{last.label} waits for a thread of its own, which may be at work ({at_work[0]})") if at_work else None


def _spins(scene: Scene, last: Node) -> bool:
    """A wait that is known to burn a core, unchanged over many looks while the others wait for it."""
    return last.doing in _SPINS and _meets(scene, SPINS, last.process.pid)


def _busy(last: Node, still: float) -> str:
    """A spin or a long native call: not to be told apart by levels."""
    return f"{last.label} is busy in {last.where}, no visible progress for {still:.0f} s"


def _follow(start: Node, by_waiter: Mapping[int, Edge], nodes: Mapping[int, Node]) -> tuple[Node, Edge | None]:
    """The last node of the path and the edge on which it ends (None: it waits for nothing that is known)."""
    at, seen = start, {start.process.pid}
    while True:
        edge = by_waiter.get(at.process.pid)
        if edge is None or edge.to is None or edge.to.process.pid in seen or edge.to.process.pid not in nodes:
            return at, edge
        at = edge.to
        seen.add(at.process.pid)


def _may_come(edge: Edge) -> bool:
    wait = edge.outside
    if wait is None or wait.nobody:
        return False
    if wait.kind is WaitKind.DISK and edge.waiter.state == "D":
        return True
    if not wait.observable:
        return True
    return wait.to is not None and not wait.in_run


def _unseen(edge: Edge | None, nodes: Mapping[int, Node]) -> bool:
    """It ends at a process of the run that was not looked at."""
    wait = edge.outside if edge is not None else None
    if wait is None or wait.to is None or not wait.in_run or wait.to == wait.waiter:
        return False
    seen = nodes.get(wait.to.pid)
    return seen is None or seen.process != wait.to


def _odd(ends: list[tuple[Node, Node, Edge | None]]) -> tuple[int, ...]:
    """Where no rank waits in a collective: those that end in another place than most, if they are fewer."""
    ranked = [(start.rank, (last.where, edge.kind if edge else "")) for start, last, edge in ends if start.rank is not None]
    places = [place for _, place in ranked]
    if len(set(places)) < 2:
        return ()
    usual = max(set(places), key=places.count)
    odd = tuple(sorted(rank for rank, place in ranked if place != usual))
    return odd if len(odd) * 2 < len(ranked) else ()


def _outside(edge: Edge) -> dict[str, object] | None:
    wait = edge.outside
    if wait is None or wait.to is None:
        return None
    return {"process": _key(wait.to), "title": wait.to_title, "in_run": wait.in_run}


def _key(process: ProcessKey) -> dict[str, object]:
    return {"node": process.node, "pid": process.pid, "start": process.start}


def _groups(nodes: Mapping[int, Node]) -> tuple[RankGroup, ...]:
    """Ranks that stand in the same place, the largest group first."""
    places: dict[str, list[int]] = {}
    for n in nodes.values():
        if n.rank is not None:
            places.setdefault(n.where, []).append(n.rank)
    return tuple(
        RankGroup(ranks=tuple(sorted(ranks)), where=where)
        for where, ranks in sorted(places.items(), key=lambda item: (-len(item[1]), min(item[1])))
    )


def _ranks(nodes: Iterable[Node]) -> tuple[int, ...]:
    return tuple(sorted({n.rank for n in nodes if n.rank is not None}))


def _where(together: Mapping[int, Node]) -> str:
    return next(iter(together.values())).where
