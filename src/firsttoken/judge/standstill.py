"""After ready: do requests wait while the engine makes no token?

An idle engine and a hung one look alike from outside, so only the engine's own counters raise the suspicion: requests run or wait, and no
token is made. Our asking for them moves the process that answers (it reads files, writes its access log), so what moves is judged by the
processes behind it. One close look then tells where they stand; a stack that shows work takes the suspicion back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from firsttoken.judge import motion
from firsttoken.judge.closeup import Closeup, Look, main_stack
from firsttoken.judge.graph import WORKS, Node, edges, node
from firsttoken.judge.hang import Proof, Scene
from firsttoken.judge.motion import Motion
from firsttoken.judge.rule import STOPPED_FOR
from firsttoken.model.events import Counters, EngineCounters
from firsttoken.model.frames import group
from firsttoken.model.result import RankGroup
from firsttoken.model.words import Verdict

STANDS_FOR = 30.0
"""seconds without a token, and without a strong signal, before an engine with requests is looked at"""
LOOK_AGAIN = 30.0
"""seconds after a look that showed work"""
WITHOUT_LOOK = 20.0
"""seconds more, where no look can be had"""
_MOST_FACTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Standstill:
    """`since`: from when on requests have been there and no token was made; None: not so. `motion`: of the processes behind the one that
    answers HTTP. `asked_at`: when the engine last told its counters, or failed to. `serves_others`: tokens came for requests that are not
    ours, between two times that it told.
    """

    told: EngineCounters | None = None
    told_at: float = 0.0
    since: float | None = None
    asked_at: float | None = None
    failed: bool = False
    available: bool = True
    serves_others: bool = False
    motion: Motion = field(default_factory=Motion)

    @property
    def seconds(self) -> float:
        """As far as the engine itself has told it."""
        return self.told_at - self.since if self.since is not None else 0.0

    @property
    def busy(self) -> bool:
        """Requests were there when the engine last told."""
        return self.told is not None and _requests(self.told)

    @property
    def suspicious(self) -> bool:
        return self.seconds >= STANDS_FOR and self.motion.still >= STANDS_FOR


def told(standstill: Standstill, body: EngineCounters, t: float) -> Standstill:
    if body.error is not None:
        return replace(standstill, asked_at=t, failed=True, available=body.available)
    since = None
    if standstill.told is not None and _requests(body) and _requests(standstill.told) and _made(body) == _made(standstill.told):
        since = standstill.since if standstill.since is not None else standstill.told_at
    others = standstill.serves_others or (standstill.busy and _more(body, standstill.told))
    return replace(standstill, told=body, told_at=t, asked_at=t, failed=False, since=since, serves_others=others)


def sampled(standstill: Standstill, body: Counters, fronts: frozenset[int], t: float) -> Standstill:
    """`fronts`: pids of the processes that hold the listening socket; where there are no others, they count themselves."""
    behind = [sample for sample in body.samples if sample.pid not in fronts]
    return replace(standstill, motion=motion.sampled(standstill.motion, behind or body.samples, t, body.interval))


def hint(standstill: Standstill, signal: str) -> Standstill:
    return replace(standstill, motion=motion.hint(standstill.motion, signal))


def halted(scene: Scene) -> tuple[str, Proof] | None:
    """A process of the engine, or the launched one, that has been stopped or traced for long enough."""
    for pid, seconds in sorted(scene.stopped.items()):
        member = scene.members.get(pid)
        if member is None or seconds < STOPPED_FOR or (member.tag is None and pid != scene.root_pid):
            continue
        n = node(member, scene.rank(member), Look(round=0, at=0.0), scene.root_pid)
        behind = (n.rank,) if n.rank is not None else ()
        reason = f"{n.label} has been stopped or traced for {seconds:.0f} s; if nobody debugs it, kill -CONT {pid} continues it"
        return reason, Proof(verdict=Verdict.HUNG, reason=reason, behind=behind, root=replace(n, state="T", where="stopped"))
    return None


def proven(standstill: Standstill, scene: Scene, now: float) -> tuple[str, Proof] | None:
    """None while there is no suspicion, no look yet, or where the look shows work."""
    counters = standstill.told
    if not standstill.suspicious or counters is None:
        return None
    looked = looked_at(scene.closeup, standstill)
    if not looked and standstill.seconds < STANDS_FOR + WITHOUT_LOOK:
        return None
    nodes = _nodes(scene) if looked else {}
    if any(_works(looks[-1]) for pid, looks in scene.closeup.looks.items() if looked and pid in nodes):
        return None
    requests = f"{counters.running or 0:.0f} running and {counters.waiting or 0:.0f} waiting requests"
    reason = f"{requests}, no token for {standstill.seconds:.0f} s, and nothing moves"
    shown = sorted(nodes.values(), key=lambda n: (n.rank is None, n.rank, n.process.pid))[:_MOST_FACTS]
    facts = tuple(f"{n.label}: {n.state} in {n.where}" for n in shown) or ("no stack and no place could be read",)
    return reason, Proof(verdict=Verdict.STALLED, reason=reason, facts=facts, edges=edges(nodes), groups=_groups(scene, nodes))


def looked_at(closeup: Closeup, standstill: Standstill) -> bool:
    """Whether there is a look from this standstill, and it is whole: places come first, stacks last."""
    if closeup.at is None or standstill.since is None or closeup.at <= standstill.since:
        return False
    last = [looks[-1] for looks in closeup.looks.values() if looks and looks[-1].round == closeup.round]
    return bool(last) and all(look.stacks is not None for look in last)


def _requests(body: EngineCounters) -> bool:
    return (body.running or 0.0) + (body.waiting or 0.0) > 0


def _more(body: EngineCounters, before: EngineCounters | None) -> bool:
    pairs = ((body.generation_tokens, before.generation_tokens), (body.steps, before.steps)) if before is not None else ()
    return any(new is not None and old is not None and new > old for new, old in pairs)


def _made(body: EngineCounters) -> tuple[float | None, ...]:
    return (body.generation_tokens, body.prompt_tokens, body.steps)


def _works(look: Look) -> bool:
    stack = main_stack(look)
    threads = look.stacks.threads if look.stacks is not None else ()
    return (stack is not None and stack.doing in WORKS) or any(thread.doing == "compile" for thread in threads)


def _groups(scene: Scene, nodes: Mapping[int, Node]) -> tuple[RankGroup, ...]:
    """Ranks with one stack, the largest group first."""
    stacks = {n.rank: stack for pid, n in nodes.items() if n.rank is not None and (stack := main_stack(scene.closeup.looks[pid][-1]))}
    where = {n.rank: n.where for n in nodes.values()}
    found = group({rank: stack.frames for rank, stack in stacks.items()})
    return tuple(RankGroup(ranks=ranks, where=where[ranks[0]]) for ranks, _ in found)


def _nodes(scene: Scene) -> dict[int, Node]:
    """The engine's own processes of the last look; all, where titles tell none."""
    seen = {pid: member for pid, looks in scene.closeup.looks.items() if looks and (member := scene.members.get(pid)) is not None}
    own = {pid: member for pid, member in seen.items() if member.tag is not None or pid == scene.root_pid} or seen
    return {pid: node(member, scene.rank(member), scene.closeup.looks[pid][-1], scene.root_pid) for pid, member in own.items()}
