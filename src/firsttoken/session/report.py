"""Gathering a report: a run's events once more, its result and causes, the lines of its log that matter, and what else was tried here."""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from firsttoken import __version__
from firsttoken.history.bundle import hidden
from firsttoken.history.masked_log import Part, masked_log
from firsttoken.history.runs import RunFolder, runs
from firsttoken.judge import phases
from firsttoken.judge.outcome import result as judged_result
from firsttoken.judge.ranks import world_rank
from firsttoken.judge.state import State
from firsttoken.model.events import Body, Event, Gpus, LogLine, MemberSeen, Places, SignalSent, Stacks, StopAsked
from firsttoken.model.process import Member
from firsttoken.model.redact import secrets_in_env
from firsttoken.model.result import Result
from firsttoken.model.secrets import Secrets
from firsttoken.model.words import OPEN_VERDICTS, Verdict
from firsttoken.report.content import Lane, Report, Stretch, Turn
from firsttoken.report.curves import curves
from firsttoken.report.difference import options
from firsttoken.report.picture import Picture
from firsttoken.session.explain import explain_run
from firsttoken.session.follow import Follower
from firsttoken.session.log_rows import clock_of, rows_of
from firsttoken.session.replay import Replayed, replay
from firsttoken.session.stacks import picture_of

_HEALTHY = (Verdict.READY, Verdict.STARTING)
_ALIKE = 0.25
"""seconds by which the phases of ranks may differ that are drawn as one"""
_LONGEST = 1e9
"""seconds: a clock in a record may show anything"""
_RECENT = 24 * 3600.0
_LOOKED_AT = 50
_MOST_TRIED = 8


def report_of(run: RunFolder, shown: str, *, here: bool) -> Report:
    """Everything about a run, masked. `here`: it is a run of this machine, and may still go on. OSError where it cannot be read."""
    events = list(run.events())
    replayed = replay(events)
    state = replayed.state
    base = Follower(folder=run).stored() if here else judged_result(state, shown)
    found = base if base.verdict in _HEALTHY else replace(base, findings=explain_run(run).findings)
    log, secrets = masked_log(run, replayed.secrets_in_log, Secrets(secrets_in_env(os.environ)))
    until = _until(state, base)
    pictured_at, picture = _picture(events, state, base.run or run.name)
    report = Report(
        result=replace(found, folder=shown),
        version=__version__,
        made_at=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        until=until,
        lanes=_lanes(state),
        turns=_turns(replayed, until),
        curves=curves(events, until),
        picture=picture,
        pictured_at=pictured_at,
        tried=tuple(_tried(run, found, events, here=here)),
        **_recorded(run),
        not_recorded=() if any(isinstance(event.body, Gpus) for event in events) else ("GPUs: none was seen",),
    )
    return _masked(_with_log(report, log, run, events), secrets)


def _until(state: State, result: Result) -> float:
    """After its first token a server runs on for days: of those a tenth more than the start took is shown."""
    last = min(max(state.now, result.elapsed_s or 0.0, 0.1), _LONGEST)
    return min(last, state.ready_at * 1.1 + 2.0) if state.ready_at is not None and result.verdict is Verdict.READY else last


def _lanes(state: State) -> tuple[Lane, ...]:
    """Ranks whose phases began and ended nearly alike, together."""
    tracks = phases.tracks(state.book, state.plan.sizes.ranks_here)
    groups: list[tuple[list[int], tuple[Stretch, ...]]] = []
    for rank, track in tracks.items():
        own = tuple(Stretch(phase=phase, begin=span.begin, end=span.end) for phase, span in track.items())
        alike = next((group for group in groups if _same(group[1], own)), None)
        if alike is not None:
            alike[0].append(rank)
        else:
            groups.append(([rank], own))
    return tuple(Lane(ranks=tuple(ranks), stretches=stretches) for ranks, stretches in groups)


def _same(one: Sequence[Stretch], other: Sequence[Stretch]) -> bool:
    return len(one) == len(other) and all(
        a.phase == b.phase
        and abs(a.begin - b.begin) < _ALIKE
        and (a.end is None) == (b.end is None)
        and abs((a.end or 0) - (b.end or 0)) < _ALIKE
        for a, b in zip(one, other, strict=True)
    )


def _turns(replayed: Replayed, until: float) -> tuple[Turn, ...]:
    """Changes of the verdict; those of the phase alone are in the lanes."""
    turns: list[Turn] = []
    for change in replayed.changes:
        if change.t <= until and (not turns or turns[-1].verdict != change.verdict):
            turns.append(Turn(t=max(change.t, 0.0), verdict=change.verdict, phase=change.phase, reason=change.reason))
    return tuple(turns)


def _picture(events: Sequence[Event], state: State, run: str) -> tuple[float | None, Picture | None]:
    """Of the last round of close looks that has stacks; None where there was none."""
    members: dict[int, Member] = {}
    rounds: dict[int, tuple[float, list[Body]]] = {}
    for event in events:
        match event.body:
            case MemberSeen():
                members[event.body.member.process.pid] = event.body.member
            case Stacks() | Places():
                rounds.setdefault(event.body.round, (event.t, []))[1].append(event.body)
            case _:
                pass
    told = {number: one for number, one in rounds.items() if any(isinstance(body, Stacks) and body.threads for body in one[1])}
    if not told:
        return None, None
    at, bodies = told[max(told)]
    sizes = state.plan.sizes
    titled = {pid: world_rank(member.tag, sizes) for pid, member in members.items()}
    ranks = {pid: rank if rank is not None else state.told_ranks.get(pid) for pid, rank in titled.items()}
    root = state.root.pid if state.root is not None else None
    return at, picture_of(list(members.values()), ranks, root, bodies, of=f"run {run}", run=run)


def _recorded(run: RunFolder) -> dict[str, Any]:
    """`machine` and `environment` of the launch, where they were recorded."""
    told = {name: value for name, value in run.spec().items() if name in ("machine", "environment") and isinstance(value, dict)}
    return {name: {str(key): str(item) for key, item in value.items()} for name, value in told.items()}


def _with_log(report: Report, log: list[Part], run: RunFolder, events: Sequence[Event]) -> Report:
    told = {event.body.offset: event.body.error is not None for event in events if isinstance(event.body, LogLine)}
    texts = [text for row in report.result.findings for text in (*row["evidence"], *row["against"])]
    rows, evidence = rows_of(log, told, texts, clock_of(run.path / "log" / "index"))
    return replace(report, log=rows, log_bytes=sum(len(part.data) for part in log), evidence=evidence)


def _masked(report: Report, secrets: Secrets) -> Report:
    """Events are masked when they are written; what an older version wrote, and what came from elsewhere, is masked here."""
    masked: Report = msgspec.convert(hidden(msgspec.to_builtins(report), secrets), Report)
    return masked


def _tried(run: RunFolder, result: Result, events: Sequence[Event], *, here: bool) -> Iterator[str]:
    previous = run.spec().get("previous")
    if isinstance(previous, dict) and isinstance(previous.get("text"), str):
        yield previous["text"]
    for row in result.requests:
        came = f"first token after {row.first_token_s:.2f} s" if row.first_token_s is not None else row.error or "no token"
        yield f"a request of ours ({row.kind}): {'no answer' if row.status is None else f'status {row.status}'}, {came}"
    looks = {event.body.round for event in events if isinstance(event.body, Stacks)}
    if looks:
        yield f"stacks of all processes were read {len(looks)} time{'s' if len(looks) > 1 else ''}"
    for event in events:
        if isinstance(event.body, StopAsked):
            yield f"stop asked after {event.t:.1f} s by {event.body.by}"
    sent = [event.body.signal for event in events if isinstance(event.body, SignalSent)]
    if sent:
        yield f"signals sent to it: {', '.join(map(_signal, dict.fromkeys(sent)))}"
    if here:
        yield from _other_runs(run, result)


def _other_runs(run: RunFolder, result: Result) -> Iterator[str]:
    """Earlier starts of the same model by the same engine on this machine within a day, and in what their commands differ."""
    own = options(result.command)
    others: list[str] = []
    for folder in runs()[-_LOOKED_AT:]:
        known = folder.result()
        command, engine = known.get("command"), known.get("engine")
        alike = result.engine.name is not None and isinstance(engine, dict) and engine.get("name") == result.engine.name
        if not alike or not isinstance(command, list) or not _shortly_before(folder.name, run.name) or not _same_model(known, result):
            continue
        if known.get("verdict") not in OPEN_VERDICTS:
            change = _difference(own, options([str(word) for word in command]))
            others.append(f"another start ({folder.name}: {known.get('verdict')} in {known.get('phase')}): {change}")
    yield from others[-_MOST_TRIED:]


def _difference(own: Mapping[str, str], other: Mapping[str, str]) -> str:
    """Of options alone: how the program was named does not matter."""
    changed = [f"{name} {value}".strip() for name, value in other.items() if own.get(name) != value and name.startswith("-")]
    gone = [f"without {name}" for name in own if name not in other and name.startswith("-")]
    return ", ".join((*changed, *gone)) or "with the same options"


def _same_model(known: Mapping[str, Any], result: Result) -> bool:
    endpoint = known.get("endpoint")
    return not isinstance(endpoint, dict) or endpoint.get("model") == result.endpoint.model


def _shortly_before(one: str, other: str) -> bool:
    """By the times in the runs' names."""
    try:
        begun = [datetime.strptime(name[:15], "%Y%m%d-%H%M%S") for name in (one, other)]
    except ValueError:
        return False
    return one != other and 0 <= (begun[1] - begun[0]).total_seconds() < _RECENT


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
