"""Attached files as the events of a run, folded by the same judge that follows live ones.

The log's own stamps are the clock. What a file can tell and a live run cannot (how long ago the last line was, ranks of pids that are
named only later) is worked out here; the verdict on it is not.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median

from firsttoken.judge import phases
from firsttoken.judge.advance import advance, initial
from firsttoken.judge.ranks import line_rank, world_rank
from firsttoken.judge.state import State
from firsttoken.knowledge.load import profiles
from firsttoken.knowledge.profile import Profile, compiled
from firsttoken.model.attached import Attached
from firsttoken.model.events import Body, Event, Launched, LogLine, MemberSeen, Planned
from firsttoken.model.plan import Plan, Policy
from firsttoken.model.process import Member, ProcessKey, RankTag
from firsttoken.model.reading import Bar, Reading, Told, bar_clock
from firsttoken.model.redact import mask_text
from firsttoken.model.result import PhaseRow
from firsttoken.model.words import Edge, Phase
from firsttoken.observe.log_clock import LogClock
from firsttoken.observe.log_lines import LineSplitter, strip_ansi
from firsttoken.observe.logs import LogReader
from firsttoken.plan import World, by_output, make_plan, replan

NODE = "attached"
_PIECES = 4096
"""the log is read in at most about this many pieces: how finely it is known when it last said something new"""
_JITTER = 2.0
_SAME_REPORT = 86400.0
"""a date among the probes that is further than this from the log's last line is of another clock or another run"""
_TEXT_LIMIT = 1536 << 10
"""bytes of a log that rules are searched in: a third at the front, where it started, the rest at the end, and lines of errors"""
_YEAR = re.compile(rb"\b(20[2-4]\d)[-/]\d\d[-/]\d\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    state: State
    reading: Reading


def fold(attached: Attached) -> Folded:
    """Never raises, whatever the files hold."""
    known = profiles()
    plan = make_plan(attached.argv, World(env=attached.env), known) if attached.argv else Plan()
    titles = [process.title for process in attached.processes or ()] + [dump.title for dump in attached.stacks]
    data = attached.log or b""
    engine = _variant(plan.engine, known, data) or plan.engine or by_output(known, titles=titles)
    year = _year(data)
    reader = LogReader(known, engine, year=year)
    lines, fresh_offset = _read(reader, data)
    engine = reader.engine or engine
    if engine is not None and engine != plan.engine:
        plan = replan(plan, known, engine=engine)
    if reader.version:
        plan = replace(plan, engine_version=reader.version)
    plan = _sized(plan, lines)
    profile = known.get(engine) if engine is not None else None
    clock = LogClock(data, profile, year)
    first = clock.first()
    stamps = [line.stamp if line.stamp is not None and line.offset >= clock.learned else clock.at(line.offset) for line in lines]
    last = clock.last() if data else None
    fresh = clock.at(max(fresh_offset - 1, 0)) if data else None
    # a clock without a date (a wrapper's) is brought to the day of the others
    usual = median([stamp for stamp in stamps if stamp is not None] or [0.0])
    stamps = _in_order([_same_day(stamp, usual) for stamp in stamps])
    first, last, fresh = _same_day(first, usual), _same_day(last, usual), _same_day(fresh, usual)
    start = min((stamp for stamp in (first, *stamps) if stamp is not None), default=0.0)
    if first is not None and start < first - 1.0 and first - start < 7 * 86400:
        start = min(first, start)
    members = _members(attached, lines, profile)
    state = _fold(
        plan, attached, members, [(max((s if s is not None else start) - start, 0.0), line) for s, line in zip(stamps, lines, strict=True)]
    )
    told = tuple(
        Told(max((stamp if stamp is not None else start) - start, 0.0), line_rank(line, state.members, plan.sizes), line)
        for stamp, line in zip(stamps, lines, strict=True)
    )
    last_t = max(last - start, 0.0) if last is not None else None
    fresh_t = min(max(fresh - start, 0.0), last_t) if fresh is not None and last_t is not None else None
    now, idle = _clock(attached, start if first is not None else None, last_t, fresh_t)
    places = _places(state, told)
    order = {phase: number for number, phase in enumerate(plan.phases)}
    reading = Reading(
        plan=plan,
        phase=min(places.values(), key=lambda phase: order.get(phase, 0)),
        places=places,
        rows=_rows(told, plan),
        told=told,
        facts=state.facts,
        log=_text(data, lines),
        claims_ready=state.claims_since is not None,
        started_wall=start if first is not None else None,
        last_t=last_t,
        fresh_t=fresh_t,
        now=now,
        idle=idle,
        rank_of={pid: rank for pid, member in members.items() if (rank := world_rank(member.tag, plan.sizes)) is not None},
        weights=_bar(told),
    )
    return Folded(state=state, reading=reading)


def _in_order(stamps: list[float | None]) -> list[float | None]:
    """Two clocks of one log, a wrapper's in whole seconds among them, differ by a little: a line is not older than the one before it."""
    latest: float | None = None
    found: list[float | None] = []
    for stamp in stamps:
        if stamp is not None and latest is not None and latest - _JITTER <= stamp < latest:
            stamp = latest
        latest = stamp if stamp is not None else latest
        found.append(stamp)
    return found


def _same_day(stamp: float | None, usual: float) -> float | None:
    if stamp is None or abs(stamp - usual) < 30 * 86400 or usual == 0.0:
        return stamp
    return stamp + round((usual - stamp) / 86400) * 86400


def _places(state: State, told: tuple[Told, ...]) -> dict[int, Phase]:
    """The phase of each rank. Where only one of many ranks ever speaks, it speaks for all: the engine logs for one, or one node's first."""
    places = phases.rank_phases(state.book, state.plan.sizes.ranks_here)
    speaking = {one.rank for one in told if one.rank is not None and one.line.phase is not None and one.line.scope == "rank"}
    if len(speaking) == 1 and len(places) > 2:
        (rank,) = speaking
        return {rank: places[rank]} if rank in places else places
    sizes = state.plan.sizes
    if sizes.dp > 1 and sizes.world > sizes.tp * sizes.pp and speaking and not _tags_replicas(told):
        # replicas that a router starts do not know of each other: each tags its lines as the first one's
        return {rank: place for rank, place in places.items() if rank < sizes.tp * sizes.pp} or places
    return places


def _tags_replicas(told: tuple[Told, ...]) -> bool:
    return any(one.line.tag is not None and one.line.tag.dp is not None for one in told)


def _read(reader: LogReader, data: bytes) -> tuple[list[LogLine], int]:
    """All events, and the offset after the last line that said something new."""
    lines: list[LogLine] = []
    fresh = 0
    size = max(len(data) // _PIECES, 1)
    at = 0
    while at < len(data):
        end = data.find(b"\n", at + size - 1) + 1 or len(data)
        lines.extend(reader.feed(data[at:end], at, 0.0))
        activity = reader.activity()
        if activity is not None and activity.fresh:
            fresh = end
        at = end
    lines.extend(reader.flush())
    activity = reader.activity()
    if activity is not None and activity.fresh:
        fresh = len(data)
    return lines, fresh


def _fold(plan: Plan, attached: Attached, members: Mapping[int, Member], lines: Iterable[tuple[float, LogLine]]) -> State:
    root = ProcessKey(NODE, 0, 0)
    bodies: list[tuple[float, Body]] = [
        (0.0, Planned(plan=plan, policy=Policy(probe=False))),
        (0.0, Launched(process=root, argv=plan.command, pty=False, run="")),
        *((0.0, MemberSeen(member=member)) for member in members.values()),
    ]
    bodies.extend(lines)
    state = initial()
    for seq, (t, body) in enumerate(bodies, start=1):
        state = advance(state, Event(seq=seq, t=t, wall=t, node=NODE, body=body))
    return state


def _variant(engine: str | None, known: Mapping[str, Profile], data: bytes) -> str | None:
    """Another server of the same family that the log names (`x-diffusion` beside `x`): the command alone may not tell them apart."""
    family = [profile for name, profile in known.items() if engine is not None and name.startswith(f"{engine}-")]
    text = data[: 1 << 18].decode("utf8", "replace") if family else ""
    return next((p.name for p in family if any(compiled(line).search(text) for line in p.recognise.lines)), None)


def _sized(plan: Plan, lines: list[LogLine]) -> Plan:
    """The world size that the log tells, where no command did."""
    if plan.command and plan.sizes.world > 1:
        return plan
    worlds = [int(value) for line in lines if isinstance(value := line.values.get("world"), int | float) and 1 < value < 100_000]
    return replan(plan, profiles(), world_size=max(worlds)) if worlds and max(worlds) > plan.sizes.world else plan


def _members(attached: Attached, lines: list[LogLine], profile: Profile | None) -> dict[int, Member]:
    """Processes that ps lists, and those that the log's tags name; the fullest tag of a pid wins, for tags grow while a server starts."""
    found: dict[int, Member] = {}
    for process in attached.processes or ():
        tag = _title_tag(process.title, profile)
        key = ProcessKey(NODE, process.pid, 0)
        found[process.pid] = Member(process=key, parent=process.parent or 0, title=mask_text(process.title)[:200], tag=tag)
    for dump in attached.stacks:
        if dump.pid not in found and dump.title:
            tag = _title_tag(dump.title, profile)
            found[dump.pid] = Member(process=ProcessKey(NODE, dump.pid, 0), parent=0, title=mask_text(dump.title)[:200], tag=tag)
    for line in lines:
        tag = line.tag
        if tag is None or tag.pid is None:
            continue
        before = found.get(tag.pid)
        if before is None:
            found[tag.pid] = Member(process=ProcessKey(NODE, tag.pid, 0), parent=0, title=tag.name or "", tag=tag)
        elif _fullness(tag) > _fullness(before.tag):
            found[tag.pid] = replace(before, tag=tag)
    return found


def _fullness(tag: RankTag | None) -> int:
    return 0 if tag is None else sum(value is not None for value in (tag.rank, tag.dp, tag.pp, tag.tp, tag.ep))


def _title_tag(title: str, profile: Profile | None) -> RankTag | None:
    for rule in profile.titles if profile is not None else ():
        match = compiled(rule.pattern).search(title)
        if match is not None:
            groups = {name: value for name, value in match.groupdict().items() if value is not None}
            numbers = {name: int(groups[name]) for name in ("rank", "dp", "pp", "tp", "ep") if groups.get(name, "").isdecimal()}
            return RankTag(
                name=groups.get("name") or rule.name,
                rank=numbers.get("rank"),
                dp=numbers.get("dp"),
                pp=numbers.get("pp"),
                tp=numbers.get("tp"),
                ep=numbers.get("ep"),
            )
    return None


def _clock(attached: Attached, start: float | None, last_t: float | None, fresh_t: float | None) -> tuple[float | None, float | None]:
    """The report's clock: a stamp among the probes, else how long the server had been running by ps, else the last line of the log."""
    probes = attached.probes
    quiet_since = fresh_t if fresh_t is not None else last_t
    if probes is not None and probes.since_last_line is not None:
        now = (last_t or 0.0) + probes.since_last_line
        return now, now - (quiet_since or 0.0)
    if probes is not None and probes.at is not None and start is not None and last_t is not None:
        now = probes.at - start
        if last_t <= now <= last_t + _SAME_REPORT:
            return now, now - (quiet_since or 0.0)
    elapsed = probes.since_start if probes is not None and probes.since_start is not None else _elapsed(attached, last_t)
    if elapsed is not None and elapsed >= (last_t or 0.0) - 60.0:
        return max(elapsed, last_t or 0.0), max(elapsed - (quiet_since or 0.0), 0.0)
    if last_t is not None and fresh_t is not None and last_t - fresh_t >= 1.0:
        return last_t, last_t - fresh_t
    return None, None


def _elapsed(attached: Attached, last_t: float | None) -> float | None:
    """Of the server's own first process; one that was there long before the log began is of another run."""
    ages = sorted({process.elapsed for process in attached.processes or () if process.elapsed is not None}, reverse=True)
    roots = [p for p in attached.processes or () if p.elapsed is not None and not any(q.pid == p.parent for q in attached.processes or ())]
    if len(roots) == 1 and roots[0].elapsed is not None:
        return roots[0].elapsed
    return ages[0] if ages else None


def _rows(told: tuple[Told, ...], plan: Plan) -> tuple[PhaseRow, ...]:
    """Each phase from its first begin line to its first end line after that; one whose end nothing tells ends where a later one begins,
    one whose begin nothing tells begins where an earlier one ends."""
    begins: dict[Phase, float] = {}
    ends: dict[Phase, float] = {}
    figures: dict[Phase, float] = {}
    whole: set[Phase] = set()
    for t, _, line in told:
        if line.phase is None:
            continue
        if line.edge is Edge.END:
            ends.setdefault(line.phase, t)
        else:
            begins.setdefault(line.phase, t)
            if line.values.get("percent") == 100:
                whole.add(line.phase)
            if isinstance(line.values.get("seconds"), int | float) and line.phase is Phase.WEIGHTS:
                figures.setdefault(line.phase, t)
    rows = []
    ends = {**figures, **ends}
    for number, phase in enumerate(plan.phases):
        begin, end = begins.get(phase), ends.get(phase)
        if begin is None and end is not None:
            before = [ends[other] for other in plan.phases[:number] if other in ends and ends[other] <= end]
            begin = max(before, default=None)
        if begin is None:
            continue
        if end is None or end < begin:
            later = [begins[other] for other in plan.phases[number + 1 :] if other in begins and begins[other] >= begin]
            end = min(later) if later and (phase not in plan.ended_by_line or phase in whole) else None
        done = {rank for _, rank, line in told if line.phase is phase and line.edge is Edge.END and rank is not None}
        rows.append(PhaseRow(name=phase, began_s=begin, seconds=end - begin if end is not None else None, ranks_done=len(done)))
    return tuple(rows)


def _bar(told: tuple[Told, ...]) -> Bar:
    """Of the first model's bar: a drafter's comes later and is smaller."""
    best: Bar = Bar()
    for _, _, line in told:
        shards, done = line.values.get("shards"), line.values.get("shards_done")
        if line.phase is not Phase.WEIGHTS or not isinstance(shards, int | float) or not isinstance(done, int | float):
            continue
        if best.shards is not None and shards != best.shards:
            break
        if best.done is None or done >= best.done:
            best = Bar(shards=int(shards), done=int(done), percent=_float(line.values.get("percent")), seconds=bar_clock(line.text))
    return best


def _float(value: str | float | None) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _year(data: bytes) -> int:
    """The year that some line tells; else any leap year, so that every date is one."""
    match = _YEAR.search(data[: 1 << 20])
    return int(match[1]) if match else 2024


def _text(data: bytes, told: list[LogLine]) -> str:
    if len(data) > _TEXT_LIMIT:
        head, tail = _TEXT_LIMIT // 3, len(data) - 2 * _TEXT_LIMIT // 3
        between = [line.text.encode() for line in told if line.error is not None and head <= line.offset < tail]
        data = b"\n".join((data[:head], *between[:200], data[tail:]))
    splitter = LineSplitter()
    lines = [*splitter.feed(data, 0), *splitter.flush()]
    return "\n".join(strip_ansi(line[2]).decode("utf8", "replace").rstrip() for line in lines)
