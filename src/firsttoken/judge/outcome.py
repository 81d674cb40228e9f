"""The result of a state: what the judge knows, in the words of the result document."""

from datetime import UTC, datetime
from urllib.parse import urlsplit

from firsttoken.judge import gpu, phases
from firsttoken.judge.decide import weight_rate
from firsttoken.judge.graph import Edge
from firsttoken.judge.hang import Proof
from firsttoken.judge.load import load_row
from firsttoken.judge.ranks import world_rank
from firsttoken.judge.state import State, whole
from firsttoken.model.checks import Check, Outcome
from firsttoken.model.plan import Endpoint, Timer
from firsttoken.model.result import (
    EndpointRow,
    EngineRef,
    ExitRow,
    MemberRow,
    PhaseRow,
    RanksRow,
    RequestRow,
    Result,
    TimerRow,
    WeightsRow,
    process_row,
)
from firsttoken.model.words import OPEN_VERDICTS, Phase, Verdict

_MOST_UNREAD = 6
_VERSIONS = ("torch", "nccl", "cuda", "driver", "python", "transformers", "flashinfer", "triton")


def result(state: State, folder: str | None = None) -> Result:
    plan, decision = state.plan, state.decision
    hang = decision.hang
    rows = tuple(
        PhaseRow(name=time.phase, began_s=time.began, seconds=time.seconds, ranks_done=time.ranks_done, quiet_s=state.quiet.get(time.phase))
        for time in phases.times(state.book, plan.sizes.ranks_here)
    )
    return Result(
        run=state.run or None,
        attempt=state.attempt,
        folder=folder,
        started_at=_iso(state.launched_wall) if state.root is not None and state.root.pid else None,
        engine=EngineRef(name=plan.engine, version=_engine_version(state)),
        versions={
            **state.installed,
            **{name: str(state.facts[f"{name}_version"]) for name in _VERSIONS if f"{name}_version" in state.facts},
        },
        command=plan.command,
        role=plan.role,
        world_size=plan.sizes.world if plan.engine else None,
        verdict=decision.verdict,
        reason=decision.reason,
        proof=decision.proof if decision.verdict in (Verdict.READY, Verdict.STARTING) else (*decision.proof, *gpu.notes(state.gpus)),
        claims_ready=claims_ready(state),
        phase=decision.phase,
        detail=decision.detail,
        elapsed_s=state.now if state.root_exit_at is None else state.root_exit_at,
        still_s=state.motion.still if decision.verdict in OPEN_VERDICTS else None,
        eta_s=_eta(state),
        phases=rows,
        ranks=RanksRow(behind=decision.behind, groups=hang.groups if hang is not None else ()),
        members=tuple(_member(state, pid) for pid in sorted(state.members)),
        root_blocker=_root_blocker(hang),
        waits=tuple(_wait(edge) for edge in hang.edges) if hang is not None else (),
        cycle=tuple(_wait(edge) for edge in hang.cycle) if hang is not None else (),
        weights=_weights(state, rows),
        memory=None
        if state.memory is None
        else {
            "unique": state.memory.unique,
            "shared": state.memory.shared,
            "page_cache": state.memory.page_cache,
            "limit": state.memory.limit,
        },
        timers=tuple(_timer(state, timer, rows) for timer in plan.timers),
        endpoint=EndpointRow(url=url(plan.endpoint), model=_model(state)),
        requests=tuple(
            RequestRow(kind=a.probe, status=a.status, first_token_s=a.first_token_s, text=a.text, sane=a.sane, error=a.error)
            for a in state.serving.answers
        ),
        gpus=gpu.rows(state.gpus, state.members),
        exit=ExitRow(code=state.root_exit.code, signal=state.root_exit.signal) if state.root_exit else ExitRow(),
        next=_next(state, state.run or (folder or "").rstrip("/").rsplit("/", 1)[-1] or "RUN"),
        checks=tuple(_check(one) for one in state.checks if one.result in (Outcome.FAIL, Outcome.WARN)),
        not_checked=(*plan.not_read, *state.missed, *_unread(state)),
    )


def _unread(state: State) -> tuple[str, ...]:
    """What the last close look at the engine's processes could not read, and why; once for all that share the reason."""
    told: dict[tuple[str, str], list[int]] = {}
    for pid, looks in state.closeup.looks.items():
        member = state.members.get(pid)
        if member is None or (member.tag is None and (state.root is None or pid != state.root.pid)):
            continue
        for what, read in (("stacks", looks[-1].stacks), ("places", looks[-1].places)):
            if read is not None and read.error is not None:
                told.setdefault((what, read.error), []).append(pid)
    rows = [f"{what} of pid {', '.join(map(str, sorted(pids)))}: {error}" for (what, error), pids in told.items()]
    return tuple(rows[:_MOST_UNREAD])


def _check(check: Check) -> dict[str, str | None]:
    fields = {"id": check.id, "result": str(check.result), "fact": check.fact}
    return {**fields, "remedy": check.remedy, "price": check.price}


def _engine_version(state: State) -> str | None:
    """As its log says, else its command, else what is installed."""
    told = state.facts.get("version")
    return str(told) if told is not None else state.plan.engine_version or state.installed.get(state.plan.engine or "")


def _root_blocker(hang: Proof | None) -> dict[str, object] | None:
    if hang is None:
        return None
    if hang.root_outside is not None:
        return dict(hang.root_outside)
    return {"process": process_row(hang.root.process), "title": hang.root.title, "in_run": True} if hang.root is not None else None


def _wait(edge: Edge) -> dict[str, object]:
    """Ranks by number, other processes by pid."""
    to: dict[str, object] | None = None
    if edge.to is not None:
        to = {"rank": edge.to.rank} if edge.to.rank is not None else {"pid": edge.to.process.pid}
    elif edge.outside is not None and edge.outside.to is not None:
        to = {"pid": edge.outside.to.pid, "title": edge.outside.to_title}
    waiter = {"rank": edge.waiter.rank} if edge.waiter.rank is not None else {"pid": edge.waiter.process.pid}
    return {"from": waiter, "kind": str(edge.kind), "what": edge.what, "to": to}


def claims_ready(state: State) -> bool:
    """The engine's ready line, its open port, or its health page."""
    if state.root_exit is not None and state.emptied:
        return False
    opened = state.listening_since is not None and not state.plan.listens_before_load
    return state.claims_since is not None or opened or state.serving.healthy


def url(endpoint: Endpoint) -> str | None:
    """Where a client on this machine reaches the server."""
    if endpoint.unix_socket is not None:
        return f"unix:{endpoint.unix_socket}"
    if not endpoint.port:  # 0: the server chooses one, and has not said which
        return None
    host = endpoint.host or "127.0.0.1"
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "::1", "localhost": "127.0.0.1"}.get(host, host)
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"{'https' if endpoint.tls else 'http'}://{host}:{endpoint.port}{endpoint.root_path.rstrip('/')}"


def told_port(state: State) -> int | None:
    """From the log: a port, or the port of a URL."""
    told = whole(state.facts.get("port"), None)
    if told is not None:
        return told
    try:
        return urlsplit(str(state.facts.get("url", ""))).port
    except ValueError:
        return None


def _iso(wall: float | None) -> str | None:
    """None too for a clock that is beyond every calendar."""
    try:
        return None if wall is None else datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return None


def _member(state: State, pid: int) -> MemberRow:
    member = state.members[pid]
    tag = member.tag
    titled = world_rank(tag, state.plan.sizes)
    rank = titled if titled is not None else state.told_ranks.get(pid)
    if tag is None:
        return MemberRow(process=process_row(member.process), title=member.title, rank=rank)
    return MemberRow(process=process_row(member.process), title=member.title, rank=rank, dp=tag.dp, tp=tag.tp, pp=tag.pp, ep=tag.ep)


def _weights(state: State, rows: tuple[PhaseRow, ...]) -> WeightsRow:
    """The engine's own bar for shards where it has one, what is seen from outside for bytes."""
    outside, bar = state.weights, state.bar.values if state.bar is not None else {}
    row = next((row for row in rows if row.name is Phase.WEIGHTS), None)
    seconds = state.weights_told if state.weights_told is not None else (row.seconds if row is not None else None)
    shards = whole(bar.get("shards"), outside.shards if outside else None)
    total = outside.bytes if outside and outside.bytes else None
    ended = row is not None and row.seconds is not None
    rate = total / seconds if ended and total and seconds else (weight_rate(state) or None)
    loaded = load_row(state)
    return WeightsRow(
        shards_done=whole(bar.get("shards_done"), outside.shards_done if outside else None) if not ended else shards,
        shards=shards,
        bytes=total,
        bytes_done=total if ended else (outside.bytes_done if outside else None),
        seconds=seconds if ended else None,
        bytes_per_s=rate,
        source=loaded.source,
        path=state.load.storage.path or None if state.load.storage is not None else None,
        prefetched=loaded.prefetched,
        says=loaded.says if loaded.source is not None else (),
    )


def _timer(state: State, timer: Timer, rows: tuple[PhaseRow, ...]) -> TimerRow:
    """A timer runs from the first of its phases that began; before that it has not been wound up."""
    if state.decision.verdict not in OPEN_VERDICTS:
        return TimerRow(name=timer.name, seconds=timer.seconds, fires_in_s=None)
    if not timer.phases:
        return TimerRow(name=timer.name, seconds=timer.seconds, fires_in_s=max(timer.seconds - state.now, 0.0))
    began = min((row.began_s for row in rows if row.name in timer.phases), default=None)
    running = state.decision.phase in timer.phases
    left = max(timer.seconds - (state.now - began), 0.0) if began is not None and running else None
    return TimerRow(name=timer.name, seconds=timer.seconds, fires_in_s=left)


def _model(state: State) -> str | None:
    asked = next((answer.model for answer in state.serving.answers if answer.model), None)
    return asked or state.plan.endpoint.served_model or state.plan.model


def _eta(state: State) -> float | None:
    """Seconds until the weights are read, at the rate of the last half minute; None where nothing tells."""
    if state.decision.phase is not Phase.WEIGHTS or state.weights is None or state.decision.verdict not in OPEN_VERDICTS:
        return None
    rate = weight_rate(state)
    return max(state.weights.bytes - state.weights.bytes_done, 0) / rate if rate > 0 else None


def _next(state: State, run: str) -> tuple[str, ...]:
    """Commands that lead on from here. A server that somebody else started is not ours to stop."""
    over = state.emptied or state.launch_failed is not None
    useless: tuple[str, ...] = ("firsttoken stop ",) if state.adopted else ()
    if over:
        useless = ("firsttoken stop ", "firsttoken wait ", "firsttoken stacks ")
    return tuple(step for step in _steps(state, run) if not (useless and step.startswith(useless)))


def _steps(state: State, run: str) -> tuple[str, ...]:
    match state.decision.verdict:
        case Verdict.STARTING | Verdict.SLOW | Verdict.WAITING:
            return (f"firsttoken wait {run} --max-wait 50", f"firsttoken logs {run} --tail 50")
        case Verdict.STALLED | Verdict.HUNG | Verdict.UNSERVING:
            return (f"firsttoken stacks {run}", f"firsttoken logs {run} --tail 50", f"firsttoken stop {run}")
        case Verdict.FAILED | Verdict.CRASHED:
            return (f"firsttoken logs {run} --tail 200",)
        case Verdict.READY:
            return () if state.emptied else (f"firsttoken stop {run}",)
        case Verdict.UNKNOWN:
            return (f"firsttoken logs {run} --tail 50", "firsttoken doctor")
