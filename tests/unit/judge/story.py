"""Tells a run as events, second by second, without a clock: the judge's tests read like the stories they are about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from firsttoken.judge.advance import advance, initial
from firsttoken.judge.state import State
from firsttoken.judge.wants import wants
from firsttoken.model.events import (
    Body,
    Counters,
    Event,
    Exited,
    HttpAnswer,
    HttpAsked,
    Launched,
    Listening,
    LogActivity,
    LogLine,
    MemberSeen,
    Places,
    Planned,
    Stacks,
)
from firsttoken.model.plan import Endpoint, Plan, Policy, Sizes
from firsttoken.model.process import ListenSocket, Member, ProcessKey, RankTag, Sample
from firsttoken.model.requests import LookClosely
from firsttoken.model.stillness import Frame, ThreadPlace, ThreadStack, Wait, WaitKind
from firsttoken.model.words import Edge, Phase, ProbeKind

ROOT = ProcessKey("node", 100, 1)
FIRST_RANK = 200
"""pid of rank 0 in these stories; rank n has the n-th after it"""


def key(pid: int, node: str = "node") -> ProcessKey:
    """A process other than the root: it started at its pid."""
    return ROOT if (pid, node) == (ROOT.pid, ROOT.node) else ProcessKey(node, pid, pid)


def rank_pid(rank: int) -> int:
    return FIRST_RANK + rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Pose:
    """How one process stands in one look. `line` is that of the second innermost frame: another one is another posture.

    `threads` are further threads: their places and stacks. `blind`: neither its place nor its stack could be read.
    """

    doing: str | None = None
    where: str = "somewhere"
    line: int = 1
    state: str = "S"
    wchan: str | None = "futex_wait"
    waits: tuple[Wait, ...] = ()
    threads: tuple[tuple[ThreadPlace, ThreadStack], ...] = ()
    stacks: bool = True
    blind: bool = False

    def places(self, process: ProcessKey, number: int) -> Places:
        if self.blind:
            return Places(process=process, round=number, error="not permitted")
        main = ThreadPlace(tid=process.pid, main=True, state=self.state, wchan=None if self.state == "R" else self.wchan)
        waits = tuple(replace(wait, waiter=process, tid=process.pid if wait.tid == 0 else wait.tid) for wait in self.waits)
        return Places(process=process, round=number, threads=(main, *(place for place, _ in self.threads)), waits=waits)

    def stack(self, process: ProcessKey, number: int) -> Stacks:
        if self.blind or not self.stacks:
            return Stacks(process=process, round=number, error="not permitted")
        frames = (Frame("inner", "a.py", number), Frame(self.where, "b.py", self.line), Frame("main", "c.py", 3))
        main = ThreadStack(tid=process.pid, main=True, frames=frames, doing=self.doing, where=self.where, active=self.state == "R")
        return Stacks(process=process, round=number, threads=(main, *(stack for _, stack in self.threads)), tool="py-spy")


def thread(tid: int, *, state: str = "S", doing: str | None = None, where: str = "run") -> tuple[ThreadPlace, ThreadStack]:
    """A thread beside the main one."""
    stack = ThreadStack(tid=tid, frames=(Frame(where, "t.py", 1),), doing=doing, where=where, active=state == "R")
    return ThreadPlace(tid=tid, state=state, wchan=None if state == "R" else "futex_wait"), stack


def wait_for(
    kind: WaitKind,
    what: str = "it",
    to: ProcessKey | None = None,
    *,
    in_run: bool | None = None,
    observable: bool = True,
    nobody: bool = False,
    tid: int = 0,
    timeout_s: float | None = None,
) -> Wait:
    """Of the main thread of whoever takes this pose. `in_run` None: `to` is the root or has a rank's pid."""
    inside = to is not None and (to == ROOT or FIRST_RANK <= to.pid < 2 * FIRST_RANK) if in_run is None else in_run
    title = f"process {to.pid}" if to is not None else None
    return Wait(waiter=ROOT, tid=tid, kind=kind, what=what, to=to, to_title=title, in_run=inside, observable=observable, nobody=nobody,
                timeout_s=timeout_s)  # fmt: skip


def collective(where: str = "all_reduce", **changes: object) -> Pose:
    return replace(Pose(doing="collective", where=where, waits=(wait_for(WaitKind.FUTEX, "a lock in shared memory"),)), **changes)  # type: ignore[arg-type]  # tests name the fields


def polls() -> Pose:
    """A main process that waits for events."""
    return Pose(doing="queue", where="select", wchan="ep_poll", waits=(wait_for(WaitKind.POLL, "events"),))


def lock_of(to: ProcessKey, path: str = "/cache/lock") -> Pose:
    return Pose(doing="lock", where="flock", wchan="locks_lock_inode_wait", waits=(wait_for(WaitKind.FILE_LOCK, path, to),))


def sleeps() -> Pose:
    return Pose(where="sleep", wchan="hrtimer_nanosleep", waits=(wait_for(WaitKind.SLEEP, "time to pass"),))


def plan(**changes: object) -> Plan:
    usual = Plan(
        command=("engine", "serve"),
        engine="engine",
        endpoint=Endpoint(port=8000),
        ended_by_line=(Phase.DISTRIBUTED_INIT, Phase.WEIGHTS, Phase.GRAPH_CAPTURE),
    )
    return replace(usual, **changes)  # type: ignore[arg-type]  # tests name the fields


_STILL = Sample(100, 1, "S", 0, 0, 0, 0, 0, 0, 0, 1000, 4)


@dataclass
class Story:
    """`t` is the story's clock. Counters of the root move only where `work` says so."""

    state: State = field(default_factory=initial)
    t: float = 0.0
    seq: int = 0
    sample: Sample = _STILL
    others: dict[int, Sample] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    round: int = 0

    def tell(self, *bodies: Body) -> "Story":
        for body in bodies:
            self.seq += 1
            event = Event(seq=self.seq, t=self.t, wall=1e9 + self.t, node="node", body=body)
            self.events.append(event)
            self.state = advance(self.state, event)
        return self

    def launch(self, of: Plan | None = None, policy: Policy | None = None) -> "Story":
        return self.tell(Planned(plan=of or plan(), policy=policy or Policy()), Launched(process=ROOT, argv=("engine", "serve")))

    def line(self, phase: Phase, edge: Edge = Edge.BEGIN, *, rank: int | None = None, **values: str | float) -> "Story":
        tag = RankTag(rank=rank) if rank is not None else None
        scope = "one" if rank is None else "rank"
        return self.tell(
            LogLine(
                offset=0,
                length=1,
                text=f"{phase} {edge}",
                tag=tag,
                milestone=f"{phase}_{edge}",
                phase=phase,
                edge=edge,
                scope=scope,
                values=values,
            )
        )

    def ready_line(self) -> "Story":
        return self.tell(
            LogLine(offset=0, length=1, text="ready", milestone="ready", phase=Phase.LISTENING, edge=Edge.BEGIN, claims_ready=True)
        )

    def error(self, text: str, *, fatal: bool = True, **values: str | float) -> "Story":
        return self.tell(LogLine(offset=0, length=1, text=text, error="e", fatal=fatal, values=values))

    def seconds(self, n: int, *, work: int = 0, ticks: int = 0, log: int = 0) -> "Story":
        """`n` rounds of counters a second apart; `work` bytes, `ticks` of CPU and `log` fresh lines in each."""
        for _ in range(n):
            self.t += 1
            s = self.sample
            self.sample = s._replace(rw_bytes=s.rw_bytes + work, ticks=s.ticks + ticks, main_ticks=s.main_ticks + ticks)
            if log:
                self.tell(LogActivity(bytes=10, lines=log, fresh=log, offset=0, last="something new"))
            self.tell(Counters(interval=1.0, samples=(self.sample, *self.others.values())))
        return self

    def member(self, pid: int, title: str = "helper", *, rank: int | None = None, node: str = "node") -> "Story":
        """A process of the run, with counters that stand still until the test moves them."""
        process = key(pid, node)
        self.others.setdefault(pid, self.sample._replace(pid=pid, start=process.start))
        if pid == ROOT.pid:
            del self.others[pid]
        tag = RankTag(rank=rank) if rank is not None else None
        return self.tell(MemberSeen(member=Member(process=process, parent=ROOT.pid, title=title, tag=tag)))

    def crew(self, n: int, *, world: int | None = None, order: Sequence[int] | None = None) -> "Story":
        """A launched server with `n` ranks beside its main process, a few seconds into distributed init."""
        self.launch(plan(sizes=Sizes(tp=world or n, world=world or n, ranks_here=n))).member(ROOT.pid, "engine serve")
        for rank in order or range(n):
            self.member(rank_pid(rank), f"engine::rank{rank}", rank=rank)
        return self.line(Phase.DISTRIBUTED_INIT).seconds(3, work=100_000)

    def look(self, poses: Mapping[int, Pose], order: Sequence[int] | None = None, *, mixed: bool = False) -> "Story":
        """One round: the places of all, then their stacks, or (`mixed`) both of one process after the other. Keys are pids."""
        self.round = max(self.round, self.state.closeup.round) + 1
        places = [poses[pid].places(self.process(pid), self.round) for pid in order or poses]
        stacks = [poses[pid].stack(self.process(pid), self.round) for pid in order or poses]
        told: list[Body] = [one for pair in zip(stacks, places, strict=True) for one in pair] if mixed else [*places, *stacks]
        return self.tell(*told)

    def watch(self, n: int, poses: Mapping[int, Pose], order: Sequence[int] | None = None, *, mixed: bool = False) -> "Story":
        """`n` seconds in which nothing moves; the looks are taken as the judge wants them."""
        for _ in range(n):
            self.seconds(1)
            if any(isinstance(request, LookClosely) for request in wants(self.state, self.state.policy)):
                self.look(poses, order, mixed=mixed)
        return self

    def process(self, pid: int) -> ProcessKey:
        member = self.state.members.get(pid)
        return member.process if member is not None else key(pid)

    def listen(self, port: int = 8000) -> "Story":
        return self.tell(Listening(sockets=(ListenSocket(100, "127.0.0.1", port, None),)))

    def ask(self) -> "Story":
        return self.tell(HttpAsked(probe=ProbeKind.COMPLETION, url="http://127.0.0.1:8000/v1/completions"))

    def answer(
        self,
        status: int | None = 200,
        *,
        tokens: int | None = 8,
        sane: bool | None = True,
        error: str | None = None,
        body: str | None = None,
    ) -> "Story":
        return self.tell(
            HttpAnswer(
                probe=ProbeKind.COMPLETION,
                url="http://127.0.0.1:8000/v1/completions",
                status=status,
                tokens=tokens,
                sane=sane,
                text=" the" if tokens else None,
                first_token_s=0.5 if tokens else None,
                error=error,
                body=body,
            )
        )

    def exit(self, code: int | None = None, signal: int | None = None) -> "Story":
        return self.tell(Exited(process=ROOT, code=code, signal=signal, root=True))


def ranks(n: int) -> Plan:
    return plan(sizes=Sizes(tp=n, world=n, ranks_here=n))
