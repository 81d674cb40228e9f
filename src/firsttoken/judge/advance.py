"""`advance(state, event)`: the fold. A verdict is taken after each event and never between; the same events give the same verdicts."""

from dataclasses import replace
from math import isfinite
from typing import assert_never

from firsttoken.judge import closeup, gpu, load, motion, phases, serving, standstill, witness
from firsttoken.judge.decide import decide
from firsttoken.judge.ranks import line_rank, world_rank
from firsttoken.judge.state import Decision, RankDeath, State
from firsttoken.model.events import (
    Checked,
    Collectives,
    Counters,
    Emptied,
    EngineCounters,
    Event,
    Exited,
    Gap,
    Gpus,
    HttpAnswer,
    HttpAsked,
    Installed,
    Judged,
    Launched,
    LaunchFailed,
    Listening,
    LoadSample,
    LogActivity,
    LogLine,
    MemberGone,
    MemberSeen,
    Memory,
    Missed,
    ObserverLost,
    ObserverStarted,
    OomKill,
    Places,
    Planned,
    Prefetched,
    RecordingStopped,
    SecretsInLog,
    SignalSent,
    Stacks,
    StopAsked,
    Tick,
    UnknownEvent,
    WeightProgress,
    WeightStorage,
)
from firsttoken.model.plan import Plan
from firsttoken.model.words import Edge, Phase, Verdict

_ERRORS_KEPT = 50
_RATE_WINDOW = 30.0
_BUSY = 0.5
_STIR, _RESTS, _PROOF_AGAIN = 3.0, 1.0, 12.0
"""seconds: that a stir of what waits may last, of stillness after which it is over, and from its begin until it is proven anew"""


def initial() -> State:
    return State()


def advance(state: State, event: Event) -> State:
    state = _fold(replace(state, now=max(state.now, event.t), node=state.node or event.node), event)
    decision, stirred_at = _steady(state, decide(state))
    ready_at = state.now if decision.verdict is Verdict.READY and state.ready_at is None else state.ready_at
    return replace(state, decision=decision, ready_at=ready_at, stirred_at=stirred_at)


def _steady(state: State, decision: Decision) -> tuple[Decision, float | None]:
    """What waits for somebody outside stirs at each new attempt (a line that it tries again): it has not gone on until that lasts, or a
    phase ends; and what rests again is given the time of a new proof. With when the stir began."""
    before = state.decision
    if before.verdict is not Verdict.WAITING or decision.verdict not in (Verdict.STARTING, Verdict.SLOW) or decision.phase != before.phase:
        return decision, None
    since = state.stirred_at if state.stirred_at is not None else state.now
    moves = state.motion.still < _RESTS
    return (before if state.now - since < (_STIR if moves else _PROOF_AGAIN) else decision), since


def _fold(state: State, event: Event) -> State:
    t, body = event.t, event.body
    match body:
        case Planned():
            return _planned(replace(state, policy=body.policy), body.plan, t)
        case Launched():
            book = phases.enter(state.book, Phase.PROCESS_START, t)
            state = replace(state, root=body.process, adopted=body.adopted, run=body.run, attempt=body.attempt, book=book)
            return replace(state, launched_wall=event.wall - t)
        case LaunchFailed():
            return replace(state, launch_failed=body)
        case MemberSeen():
            members = {**state.members, body.member.process.pid: body.member}
            born = body.member.process.pid not in state.members
            return replace(state, members=members, motion=motion.hint(state.motion, "births") if born else state.motion)
        case MemberGone():
            members = {pid: m for pid, m in state.members.items() if m.process != body.process}
            return replace(state, members=members, motion=motion.hint(state.motion, "deaths"))
        case Exited():
            state = _rank_death(replace(state, exits=(*state.exits[-200:], body), motion=motion.hint(state.motion, "deaths")), body, t)
            return replace(state, root_exit=body, root_exit_at=t) if body.root else state
        case Emptied():
            return replace(state, emptied=True)
        case OomKill():
            return replace(state, oom=(*state.oom, f"{body.source}: {body.text or body.pid}"))
        case LogLine():
            return _line(state, body, t)
        case LogActivity():
            if body.fresh == 0:
                return state
            state = replace(state, motion=motion.hint(state.motion, "log"), standstill=standstill.hint(state.standstill, "log"))
            return replace(state, last_line=body.last or state.last_line, last_line_at=t)
        case Counters():
            return _sampled(state, body, t)
        case Listening():
            return _listening(state, body, t)
        case WeightProgress():
            return _weights(state, body, t)
        case WeightStorage() | LoadSample() | Prefetched():
            return load.noted(state, body, t)
        case Memory():
            return replace(state, memory=body)
        case HttpAsked():
            state = replace(state, serving=serving.asked(state.serving, body, t))
            if body.probe in serving.GENERATING:  # how it stood before proves nothing of how it takes the request
                return replace(state, book=phases.enter(state.book, Phase.FIRST_TOKEN, t), closeup=closeup.forget(state.closeup))
            return state
        case HttpAnswer():
            state = replace(state, serving=serving.answered(state.serving, body, t))
            if serving.is_token(body) and body.probe in serving.GENERATING:
                return replace(state, book=phases.leave(state.book, Phase.FIRST_TOKEN, t), motion=motion.hint(state.motion, "token"))
            return state
        case EngineCounters():
            state = replace(state, standstill=standstill.told(state.standstill, body, t))
            serves = state.adopted and state.standstill.serves_others
            return replace(state, book=phases.leave(state.book, Phase.FIRST_TOKEN, t)) if serves else state
        case Stacks() | Places():
            return replace(state, closeup=closeup.noted(state.closeup, body, t))
        case Gpus():
            state = replace(state, gpus=gpu.noted(state.gpus, body, t, state.members))
            for signal in state.gpus.moved:
                hinted = standstill.hint(state.standstill, signal)
                state = replace(state, motion=motion.hint(state.motion, signal), standstill=hinted)
            return state
        case Collectives():
            return replace(state, heard=witness.noted(state.heard, body.comparison, t))
        case Checked():
            return replace(state, checks=body.checks)
        case Installed():
            return replace(state, installed={**state.installed, **body.versions})
        case StopAsked():
            return state if state.stop_by is not None else replace(state, stop_by=body.by, before_stop=state.decision)
        case SignalSent():
            return replace(state, signals_sent=(*state.signals_sent[-20:], body.signal))
        case Missed():
            text = f"{body.request}: {body.reason}"
            return state if text in state.missed else replace(state, missed=(*state.missed, text))
        case Gap() | RecordingStopped():
            text = body.reason if isinstance(body, RecordingStopped) else f"{body.what}: {body.amount} lost, {body.reason}"
            return replace(state, missed=(*state.missed[-20:], text))
        case Tick() | SecretsInLog() | ObserverStarted() | ObserverLost() | Judged() | UnknownEvent():
            return state
        case _:
            assert_never(body)


def _sampled(state: State, body: Counters, t: float) -> State:
    """What was seen closely is forgotten when something moves; after ready, when tokens do."""
    state = replace(state, motion=motion.sampled(state.motion, body.samples, t, body.interval))
    if state.ready_at is None:
        return _quieter(state) if state.motion.still > 0 else replace(state, closeup=closeup.forget(state.closeup))
    fronts = frozenset(socket.pid for socket in state.sockets)
    state = replace(state, standstill=standstill.sampled(state.standstill, body, fronts, t))
    return state if state.standstill.since is not None else replace(state, closeup=closeup.forget(state.closeup))


def _quieter(state: State) -> State:
    """What a ready start will have taught: how quiet its phases are when all is well. A core that was busy is no quiet."""
    phase, still = state.decision.phase, state.motion.still
    outside = bool(state.motion.stopped) or state.decision.verdict is Verdict.WAITING
    if outside or state.motion.busy >= _BUSY or still <= state.quiet.get(phase, 0.0):
        return state
    return replace(state, quiet={**state.quiet, phase: still})


def _rank_death(state: State, body: Exited, t: float) -> State:
    """Of a process that its title or the log shows to be one of the engine's; early ones do not tell their rank yet."""
    member = state.members.get(body.process.pid)
    if (member is not None and member.process != body.process) or body.root:
        return state
    tag = member.tag if member is not None else None
    titled = world_rank(tag, state.plan.sizes)
    rank = titled if titled is not None else state.told_ranks.get(body.process.pid)
    if (tag is None and rank is None) or body.signal is None or body.signal in state.signals_sent or state.stop_by is not None:
        return state
    return replace(state, rank_deaths=(*state.rank_deaths, RankDeath(rank=rank, pid=body.process.pid, signal=body.signal, t=t)))


def _planned(state: State, plan: Plan, t: float) -> State:
    """A plan that knows the port only now may find that it has been listening all along."""
    book = replace(state.book, order=plan.phases, ended_by_line=frozenset(plan.ended_by_line))
    return _serving_here(replace(state, plan=plan, book=book), t)


def _line(state: State, line: LogLine, t: float) -> State:
    if line.milestone is not None:
        rank = line_rank(line, state.members, state.plan.sizes)
        came = t if line.read_at is None else min(t, line.read_at)
        state = replace(state, book=phases.note(state.book, line, rank, came), motion=motion.hint(state.motion, "log"))
        state = _told_rank(state, line, rank, t)
    if line.error is not None:
        state = replace(state, errors=(*state.errors, line)[:_ERRORS_KEPT])
    if line.claims_ready and state.claims_since is None:
        state = _serving_here(replace(state, claims_since=t), t)
    if _is_larger_bar(line, state.bar):
        state = replace(state, bar=line)
    told = line.values.get("seconds")
    if line.phase is Phase.WEIGHTS and line.edge is not Edge.BEGIN and isinstance(told, int | float) and "shards" not in line.values:
        state = replace(state, weights_told=max(float(told), state.weights_told or 0.0))
    if line.values:
        state = replace(state, facts={**state.facts, **{k: v for k, v in line.values.items() if k != "rank"}})
    return state


def _told_rank(state: State, line: LogLine, rank: int | None, t: float) -> State:
    """A line that names both its rank and its process: titles tell the rank only once the groups are ready."""
    told = line.values.get("pid")
    pid = (
        line.tag.pid
        if line.tag is not None and line.tag.pid is not None
        else int(told)
        if isinstance(told, int | float) and isfinite(told)
        else None
    )
    if rank is None or pid is None or state.told_ranks.get(pid) == rank:
        return state
    return _late_death(replace(state, told_ranks={**state.told_ranks, pid: rank}), pid, rank, t)


def _late_death(state: State, pid: int, rank: int, t: float) -> State:
    """A process whose end was seen before the line that tells its rank was read."""
    known = state.stop_by is not None or any(death.pid == pid for death in state.rank_deaths)
    end = next((e for e in state.exits if e.process.pid == pid and e.signal is not None and not e.root), None)
    if known or end is None or end.signal is None or end.signal in state.signals_sent:
        return state
    return replace(state, rank_deaths=(*state.rank_deaths, RankDeath(rank=rank, pid=pid, signal=end.signal, t=t)))


def _is_larger_bar(line: LogLine, known: LogLine | None) -> bool:
    """A draft model's bar is shorter than the model's own."""
    shards = line.values.get("shards")
    if not isinstance(shards, int | float):
        return False
    before = known.values.get("shards") if known is not None else None
    return not isinstance(before, int | float) or shards >= before


def _listening(state: State, body: Listening, t: float) -> State:
    return _serving_here(replace(state, sockets=body.sockets, motion=motion.hint(state.motion, "sockets")), t)


def _serving_here(state: State, t: float) -> State:
    if not serves_here(state):
        return replace(state, listening_since=None)
    if state.listening_since is None:
        state = replace(state, listening_since=t)
        if not state.plan.listens_before_load:
            state = replace(state, book=phases.enter(state.book, Phase.LISTENING, t))
    return state


def serves_here(state: State) -> bool:
    """Does a socket of the run listen where the plan expects the server? A container's are out of sight: there its ready line says so."""
    endpoint = state.plan.endpoint
    if state.plan.contained and state.claims_since is not None and endpoint.port is not None:
        return True
    if endpoint.unix_socket is not None:
        return any(socket.path == endpoint.unix_socket for socket in state.sockets)
    return endpoint.port is not None and any(socket.port == endpoint.port for socket in state.sockets)


def _weights(state: State, body: WeightProgress, t: float) -> State:
    moved = state.weights is not None and body.bytes_done > state.weights.bytes_done
    kept = tuple(point for point in state.weights_at if t - point[0] <= _RATE_WINDOW)
    state = replace(state, weights=body, weights_at=(*kept, (t, body.bytes_done)))
    return replace(state, motion=motion.hint(state.motion, "weights")) if moved else state
