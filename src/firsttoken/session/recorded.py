"""What a run's record tells, as what somebody would have attached: processes, stacks, waits, GPUs and answers as they last were.

Key insight: causes are looked for in one shape of facts, so a record becomes that shape instead of having rules of its own. What counts is
the moment before somebody asked for the end: what our own signals did to the server says nothing about it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from firsttoken.judge.gpu import GpuWatch
from firsttoken.judge.serving import GENERATING, Serving
from firsttoken.judge.state import State
from firsttoken.knowledge.signs import signs
from firsttoken.model.attached import Asked, Attached, Dead, GpuLine, ProbeLine, Probes, ProcessLine, StackDump
from firsttoken.model.events import Counters, Event, MemberGone, MemberSeen, OomKill, Places, Stacks, StopAsked
from firsttoken.model.process import Member, ProcessKey, Sample
from firsttoken.model.stillness import ThreadStack, Wait, WaitKind

WINDOW_S = 8.0
"""over which a process's use of the processor is told"""
BRIEF_S = 5.0
"""for which a compiler counts that has ended: the next one may be on its way"""
LOOK_S = 60.0
"""a stack or a place that is older than this says nothing about the end"""
_TICKS = 100.0
_STOPPED = (WaitKind.STOPPED, WaitKind.TRACED)


@dataclass(slots=True)
class Scene:
    """Collects while the events pass by: what the judge's state does not keep, since it is not needed for a verdict."""

    members: dict[ProcessKey, Member] = field(default_factory=dict)
    counters: list[tuple[float, Mapping[int, Sample]]] = field(default_factory=list)
    stacks: dict[ProcessKey, tuple[float, Stacks]] = field(default_factory=dict)
    places: dict[ProcessKey, tuple[float, Places]] = field(default_factory=dict)
    oom: bool = False
    _over: bool = False
    now: float = 0.0

    def passed(self, events: Iterable[Event]) -> Iterator[Event]:
        """The same events, seen."""
        for event in events:
            self._see(event)
            yield event

    def _see(self, event: Event) -> None:
        body = event.body
        if isinstance(body, OomKill):
            self.oom = True
        if isinstance(body, StopAsked):
            self._over = True
        if self._over:
            return
        self.now = max(self.now, event.t)
        match body:
            case MemberSeen():
                self.members[body.member.process] = body.member
            case MemberGone():
                self.stacks.pop(body.process, None)
                self.places.pop(body.process, None)
            case Counters():
                self.counters.append((event.t, {sample.pid: sample for sample in body.samples}))
                while len(self.counters) > 2 and self.counters[1][0] < event.t - WINDOW_S:
                    del self.counters[0]
            case Stacks() if body.threads:
                self.stacks[body.process] = (event.t, body)
            case Places():
                self.places[body.process] = (event.t, body)
            case _:
                pass


def attached(scene: Scene, state: State, log: bytes) -> Attached:
    """Without the witnesses' files, which the caller reads."""
    return Attached(
        argv=state.plan.command,
        command=" ".join(state.plan.command),
        log=log,
        processes=_processes(scene),
        stacks=tuple(
            StackDump(pid=key.pid, title=scene.members[key].title, threads=_main_first(body))
            for key, (t, body) in scene.stacks.items()
            if t >= scene.now - LOOK_S and key in scene.members
        ),
        gpus=gpu_lines(state.gpus),
        probes=_probes(state.serving, state.now),
        waits=_waits(scene),
        dead=_dead(state),
        oom=scene.oom,
        recorded=True,
    )


def _processes(scene: Scene) -> tuple[ProcessLine, ...] | None:
    """Those of the last sample, with what they did in the seconds before, and compilers of the last of them, which live for moments only.

    None where nothing was sampled.
    """
    if not scene.counters:
        return None
    first_t, first = scene.counters[0]
    last_t, last = scene.counters[-1]
    seconds = last_t - first_t
    members = {key.pid: member for key, member in scene.members.items()}
    lines = []
    recent = [samples for t, samples in scene.counters if t >= last_t - BRIEF_S]
    brief = {pid: sample for samples in recent for pid, sample in samples.items() if pid not in last}
    for pid, sample in {**brief, **last}.items():
        before, member = first.get(pid), members.get(pid)
        if member is None or (pid in brief and signs().of_title(member.title) != "compiler"):
            continue
        ticks = sample.ticks - before.ticks if before is not None and before.start == sample.start else None
        place = next((t.wchan for key, (_, p) in scene.places.items() if key.pid == pid for t in p.threads if t.main), None)
        lines.append(
            ProcessLine(
                pid=pid,
                parent=member.parent or None,
                state=sample.state,
                cpu=100.0 * ticks / _TICKS / seconds if ticks is not None and seconds >= 1.0 else None,
                wchan=place,
                title=member.title,
            )
        )
    return tuple(lines)


def _waits(scene: Scene) -> tuple[Wait, ...]:
    """Of each process what its main thread waits for, and what any of its threads hangs at that is no service of its own."""
    found: list[Wait] = []
    for t, body in scene.places.values():
        if t < scene.now - LOOK_S:
            continue
        main = next((thread.tid for thread in body.threads if thread.main), None)
        found += [wait for wait in body.waits if wait.tid == main or wait.kind in (WaitKind.FIFO, WaitKind.FILE_LOCK, *_STOPPED)]
    return tuple(found)


def _dead(state: State) -> tuple[Dead, ...]:
    """What the keeper reaped, what a parent told in its log, and the launched command itself (a shell tells a signal by 128 and more)."""
    seen = [Dead(rank=death.rank, pid=death.pid, signal=death.signal) for death in state.rank_deaths]
    for line in state.errors:
        code, pid, rank = line.values.get("exit_code"), line.values.get("pid"), line.values.get("rank")
        if isinstance(code, int | float) and code < 0:
            told = int(rank) if isinstance(rank, int | float) else None
            seen.append(Dead(rank=told, pid=int(pid) if isinstance(pid, int | float) else 0, signal=int(-code)))
    root = state.root_exit
    if root is not None and state.stop_by is None:
        number = root.signal or (root.code - 128 if root.code is not None and 128 < root.code < 160 else None)
        if number is not None:
            seen.append(Dead(pid=root.process.pid, signal=number))
    return tuple(seen)


def _main_first(body: Stacks) -> tuple[ThreadStack, ...]:
    return tuple(sorted(body.threads, key=lambda thread: not thread.main))


def _probes(serving: Serving, now: float) -> Probes | None:
    """Our own requests, in the shape of curl's."""
    lines = [ProbeLine(asked=Asked.HEALTH, url="/health", status=200, text="GET /health -> 200")] if serving.healthy else []
    for answer in serving.answers:
        if answer.probe not in GENERATING:
            continue
        silent = answer.status is None
        error = (answer.error or "").lower()
        said = f"POST {answer.url} -> {answer.status if answer.status is not None else answer.error or 'no answer'}"
        lines.append(
            ProbeLine(
                asked=Asked.GENERATE,
                url=answer.url,
                method="POST",
                status=answer.status,
                refused=silent and "connect" in error,
                timed_out=silent and "connect" not in error,
                seconds=answer.seconds,
                tokens=answer.tokens,
                sane=answer.sane,
                text=said,
            )
        )
    if serving.open_since is not None:
        waited = max(now - serving.open_since, 0.0)
        text = f"POST a completion -> no answer for {waited:.0f} s so far"
        lines.append(ProbeLine(asked=Asked.GENERATE, url="", method="POST", timed_out=True, seconds=waited, text=text))
    return Probes(lines=tuple(lines), text="\n".join(line.text for line in lines)) if lines else None


def gpu_lines(watch: GpuWatch) -> tuple[GpuLine, ...] | None:
    """The run's own GPUs as last seen; None where there was none. Errors are those of the whole run."""
    shown = tuple(
        GpuLine(
            index=one.index,
            name=one.name or None,
            compute_capability=one.compute_capability,
            memory_used=one.memory_used / (1 << 20) if one.memory_used is not None else None,
            memory_total=one.memory_total / (1 << 20) if one.memory_total is not None else None,
            utilisation=one.busy * 100 if one.busy is not None else None,
            power=one.power,
            power_limit=one.power_limit,
            throttled=one.throttled,
            link_generation=one.link_generation,
            link_generation_most=one.link_generation_most,
            link_width=one.link_width,
            link_width_most=one.link_width_most,
            temperature=one.temperature,
            xids=tuple(xid for index, xid in watch.xids if index == one.index),
        )
        for _, one in sorted(watch.samples.items())
        if one.index in watch.own
    )
    return shown or None
