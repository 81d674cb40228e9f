"""The verdict on dead files, and the ranks behind: what was so at the moment of the report. Pure.

Files hold one moment. What counts is, in this order: answers to requests, deaths, what can no longer move (a stopped process, a kernel
that spins at idle power, waits that nobody can end), what works, and only then how long nothing was said.
"""

from dataclasses import dataclass

from firsttoken.explain.behind import behind, late
from firsttoken.explain.deaths import at_the_end, is_crash, root_error
from firsttoken.explain.facts import Facts, RankSeen, last_generate
from firsttoken.model.events import LogLine
from firsttoken.model.reading import bar_clock
from firsttoken.model.words import Edge, Phase, Verdict

STALLED_AFTER = 120.0
LONG_STALLED_AFTER = 300.0
"""in weights, compile and downloads"""
HUNG_AFTER = 600.0
SPIN_AFTER = 60.0
_DEADLOCK = ("collective", "device", "lock", "mutex", "mpi", "comm_init")
_WORK = ("compile", "read", "import")
_SHORT = (Phase.DISTRIBUTED_INIT, Phase.WARMUP, Phase.LISTENING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    verdict: Verdict
    reason: str
    proof: tuple[str, ...] = ()
    behind: tuple[int, ...] = ()


def judge(facts: Facts) -> Judgement:
    """Never without a reason."""
    found = _answered(facts) or _dead(facts) or _claims(facts) or _stuck(facts) or _moving(facts)
    return Judgement(verdict=found.verdict, reason=found.reason, proof=found.proof, behind=behind(facts, found.verdict))


def _answered(facts: Facts) -> Judgement | None:
    last = last_generate(facts)
    if last is None or last.status is None or not 200 <= last.status < 300:
        return None
    return Judgement(verdict=Verdict.READY, reason="a request was answered", proof=(last.text,))


def _dead(facts: Facts) -> Judgement | None:
    """An error that ended the start or the server. One that was followed by a ready line did not."""
    told = facts.reading.told
    ready_at = max((number for number, one in enumerate(told) if one.line.claims_ready), default=-1)
    errors = [one for number, one in enumerate(told) if one.line.error is not None]
    fatal = [one for number, one in enumerate(told) if one.line.error is not None and one.line.fatal and number > ready_at]
    if not fatal:
        fatal = at_the_end(facts, errors, ready_at)
    if not fatal:
        return None
    first = root_error(facts) or fatal[0]
    crash = next((one for one in errors if is_crash(one.line)), None)
    ids = {one.line.error for one in errors}
    crashed = crash is not None and not (crash.line.error == "killed" and len(ids) > 1)
    verdict = Verdict.CRASHED if crashed else Verdict.FAILED
    shown = crash if crashed and crash is not None else first
    text = shown.line.text.strip()
    return Judgement(
        verdict=verdict, reason=f"ended with an error: {text[:300]}", proof=tuple(dict.fromkeys(one.line.text[:300] for one in fatal[:4]))
    )


def _claims(facts: Facts) -> Judgement | None:
    last = last_generate(facts)
    claims = facts.reading.claims_ready or bool(facts["health_ok"])
    if last is not None:
        if last.status == 503 or (last.status is not None and last.status >= 500 and facts["loading_503"]):
            return Judgement(verdict=Verdict.STARTING, reason="a request is answered with 503: still loading", proof=(last.text,))
        if last.status is not None and last.status >= 500:
            return Judgement(verdict=Verdict.UNSERVING, reason=f"a request was answered with {last.status}", proof=(last.text,))
        if last.timed_out and (claims or facts["refused"] is False):
            return Judgement(verdict=Verdict.UNSERVING, reason="accepts a request and brings no token", proof=(last.text,))
        if last.status is not None and 400 <= last.status < 500:
            return Judgement(verdict=Verdict.UNKNOWN, reason=f"the request was refused with {last.status}", proof=(last.text,))
    if not facts.reading.claims_ready:
        return None
    if facts["refused"] and not facts["health_ok"]:
        return None
    if _stands_still(facts):
        return Judgement(
            verdict=Verdict.UNSERVING,
            reason="requests are running, and its own counters say that no tokens come",
            proof=_texts(facts, "no-tokens"),
        )
    if facts["stopped"]:
        return Judgement(verdict=Verdict.UNSERVING, reason="said that it is ready, and a process of it is stopped")
    return Judgement(verdict=Verdict.READY, reason="said that it is ready, and nothing contradicts", proof=(_ready_line(facts),))


def _stands_still(facts: Facts) -> bool:
    """The engine's last words, twice or more: requests run and no token comes."""
    said = [one for one in facts.reading.told if one.line.error == "no-tokens"]
    log = facts.attached.log or b""
    return len(said) >= 2 and log[said[-1].line.offset :].count(b"\n") <= 8


def _ready_line(facts: Facts) -> str:
    return next((one.line.text for one in facts.reading.told if one.line.claims_ready), "")


def _stuck(facts: Facts) -> Judgement | None:
    """Proof that nothing can move any more."""
    reading = facts.reading
    if facts["stopped"]:
        who = next(p for p in facts.attached.processes or () if p.state[:1] in ("T", "t"))
        return Judgement(verdict=Verdict.HUNG, reason=f"process {who.pid} ({who.title[:60]}) is stopped (state {who.state})")
    if facts["compilers_busy"] or any(seen.compiling for seen in facts.ranks):
        return None
    if any(one.line.error == "xid" and _is_fatal_xid(one.line) for one in reading.told):
        return Judgement(verdict=Verdict.HUNG, reason="the driver reported a fatal Xid", proof=_texts(facts, "xid"))
    quiet = reading.idle is None or reading.idle >= SPIN_AFTER
    if facts["gpu_spin"] and quiet:
        return Judgement(
            verdict=Verdict.HUNG,
            reason="GPUs are fully used at the power of an idle loop, and nothing new was said",
            proof=_gpu_proof(facts),
        )
    shown = [seen for seen in facts.ranks if seen.stack is not None]
    blocked = [seen for seen in shown if seen.sign in _DEADLOCK or seen.sign == "connect"]
    working = [seen for seen in shown if seen.sign in _WORK] or [s for s in facts.ranks if s.compiling]
    if blocked and not working and quiet and not facts["stack_download"]:
        where = ", ".join(dict.fromkeys(str(seen.sign) for seen in blocked))
        return Judgement(
            verdict=Verdict.HUNG,
            reason=f"the ranks that were looked at wait ({where}), and nobody is at work who could end it",
            proof=_stack_proof(blocked),
        )
    recorded = facts.attached.flight_recorder
    if recorded is not None and recorded.disagreements and quiet and not working and not facts["stack_download"]:
        texts = tuple(one.text for one in recorded.disagreements[:4])
        late_ones = ", ".join(map(str, recorded.behind))
        waits = f"the others wait for rank{'s' if len(recorded.behind) > 1 else ''} {late_ones}: " if recorded.behind else ""
        return Judgement(verdict=Verdict.HUNG, reason=f"by torch's flight recorder, {waits}{texts[0]}", proof=texts)
    if facts["all_quiet"] and facts["gpus_idle"] is not False and (reading.idle or 0) >= HUNG_AFTER and not facts["stack_download"]:
        return Judgement(
            verdict=Verdict.HUNG,
            reason=f"all processes sleep at 0 % CPU, and nothing new was said for {_minutes(reading.idle)}",
            proof=_last(facts),
        )
    later = set(late(facts))
    lone = [seen for seen in facts.ranks if seen.process is not None and (seen.process.cpu or 0) >= 90.0]
    idle = [seen for seen in facts.ranks if seen.process is not None and (seen.process.cpu or 0) < 3.0]
    if (
        lone
        and idle
        and reading.phase not in (Phase.WEIGHTS, Phase.COMPILE)
        and not later & {seen.rank for seen in lone}
        and len(lone) + len(idle) == len(facts.ranks)
        and (reading.idle or 0) >= HUNG_AFTER
    ):
        return Judgement(
            verdict=Verdict.HUNG,
            reason=f"some ranks spin, the others sleep, and nothing new was said for {_minutes(reading.idle)}",
            proof=_last(facts),
        )
    return None


def _moving(facts: Facts) -> Judgement:
    reading = facts.reading
    phase = reading.phase
    if facts.attached.log is None and facts.attached.processes is None and not facts.attached.stacks:
        return Judgement(verdict=Verdict.UNKNOWN, reason="nothing was attached that shows the start")
    row = next((row for row in reading.rows if row.name is phase), None)
    began = row.began_s if row is not None else 0.0
    now = reading.now if reading.now is not None else reading.last_t or 0.0
    budget = next((budget.seconds for budget in reading.plan.budgets if budget.phase is phase), 300.0)
    spent = now - began
    if row is not None and row.seconds is None:
        spent = max(spent, _told_by_a_bar(facts))
    long = phase in (Phase.WEIGHTS, Phase.COMPILE) or bool(facts["stack_download"])
    at_work = _at_work(facts)
    idle = reading.idle or 0.0
    if at_work is None and idle >= (LONG_STALLED_AFTER if long else STALLED_AFTER):
        return Judgement(verdict=Verdict.STALLED, reason=f"{phase}: nothing new was said for {_minutes(idle)}", proof=_last(facts))
    doing = at_work or "the log goes on"
    if spent > budget or (at_work is not None and idle >= STALLED_AFTER):
        return Judgement(verdict=Verdict.SLOW, reason=f"{phase} takes {_minutes(spent)}: {doing}", proof=_last(facts))
    if reading.last_t is None and facts.attached.log is not None:
        return Judgement(verdict=Verdict.STARTING, reason=f"{phase}: no times in the log, so no duration can be told", proof=_last(facts))
    return Judgement(verdict=Verdict.STARTING, reason=f"{phase} for {_minutes(spent)}: {doing}", proof=_last(facts))


def _told_by_a_bar(facts: Facts) -> float:
    """Seconds in the present phase by the clock of its own bar: lines of a bar have no stamps."""
    inside = (one.line for one in facts.reading.told if one.line.phase is facts.reading.phase and one.line.edge is Edge.INSIDE)
    return max((seconds for line in inside if (seconds := bar_clock(line.text)) is not None), default=0.0)


def _at_work(facts: Facts) -> str | None:
    """What is seen at work in the files, in words; None where nothing is."""
    if facts["compilers_busy"]:
        return "compilers are at work"
    if any(seen.sign == "compile" for seen in facts.ranks):
        return "a kernel is being compiled"
    if facts["rank_busy"] and not facts["gpu_spin"] and not _computes_too_long(facts):
        return "processes are computing"
    if facts["disk_wait"] and not facts["driver_wait"]:
        return "a process waits for storage (state D)"
    return None


def _computes_too_long(facts: Facts) -> bool:
    """Processor time by itself is a weak sign: where no phase of loading or building can take this long, it is none of progress."""
    return facts.reading.phase in _SHORT and (facts.reading.idle or 0.0) >= HUNG_AFTER


def _is_fatal_xid(line: LogLine) -> bool:
    return line.values.get("xid") in (8, 48, 62, 63, 64, 74, 79, 94, 95, 109, 119, 120, 140, 143, 145)


def _texts(facts: Facts, error: str) -> tuple[str, ...]:
    return tuple(one.line.text[:300] for one in facts.reading.told if one.line.error == error)[:3]


def _gpu_proof(facts: Facts) -> tuple[str, ...]:
    return tuple(
        f"GPU {g.index}: {g.utilisation:.0f} %, {g.power:.0f} W"
        for g in facts.attached.gpus or ()
        if g.utilisation is not None and g.power is not None
    )[:8]


def _stack_proof(seen: list[RankSeen]) -> tuple[str, ...]:
    found = []
    for one in seen[:8]:
        frames = one.stack.threads[0].frames if one.stack is not None else ()
        top = next((f for f in frames if not f.native), frames[0] if frames else None)
        if top is not None:
            who = f"rank {one.rank}" if one.rank is not None else f"process {one.stack.pid if one.stack else '?'}"
            found.append(f"{who}: {top.function} ({top.file}:{top.line})")
    return tuple(found)


def _last(facts: Facts) -> tuple[str, ...]:
    told = [one for one in facts.reading.told if one.line.edge in (Edge.BEGIN, Edge.END, Edge.INSIDE)]
    return (f"last milestone: {told[-1].line.text[:200]}",) if told else ()


def _minutes(seconds: float | None) -> str:
    seconds = seconds or 0.0
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
