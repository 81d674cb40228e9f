"""`explain`: from a run, a log or a case folder to the result document.

The files are read, folded by the judge, and explained; nothing is run.
"""

from dataclasses import replace
from pathlib import Path

from firsttoken.explain.facts import Facts, gather
from firsttoken.explain.findings import Finding, beside_checks, findings
from firsttoken.explain.verdict import Judgement, judge
from firsttoken.history.masked_log import raw_log
from firsttoken.history.runs import RunFolder
from firsttoken.judge.outcome import result as judged_result
from firsttoken.judge.outcome import told_port, url
from firsttoken.judge.state import State
from firsttoken.knowledge.causes import causes
from firsttoken.knowledge.signs import signs
from firsttoken.model.attached import Attached
from firsttoken.model.reading import Reading
from firsttoken.model.result import RanksRow, Result, WeightsRow
from firsttoken.model.words import OPEN_VERDICTS, Phase, Verdict
from firsttoken.session import recorded
from firsttoken.session.reading import Folded, fold
from firsttoken.session.recorded import Scene
from firsttoken.session.replay import replay
from firsttoken.survey.case_folder import LOG_LIMIT, read_case, read_log_file, read_recorders

SURE = 0.5
_STOPPED = "stopped-from-outside"
_LAST_LINES = 60
_COLLECT = (
    "py-spy dump --pid PID --nonblocking > stacks/PID.txt, for every rank",
    "ps -eo pid,ppid,stat,pcpu,pmem,etimes,wchan:32,args > processes.txt",
    "nvidia-smi --query-gpu=index,name,compute_cap,memory.used,memory.total,utilization.gpu,power.draw --format=csv > gpus.csv",
    "the same start with NCCL_DEBUG=INFO, its whole output as server.log",
)


def explain_path(path: Path) -> Result:
    """A case folder or a log file. OSError where the path cannot be read at all."""
    attached = read_case(path) if path.is_dir() else read_log_file(path)
    return explain(attached, str(path))


def explain_run(run: RunFolder) -> Result:
    """A recorded run: its own events tell more than its log could; the log is searched for causes all the same."""
    from firsttoken.session.witnesses import RECORDS  # with it come sockets and an event loop, which files do not need

    scene = Scene()
    replayed = replay(scene.passed(run.events()))
    state = replayed.state
    base = judged_result(state, str(run.path))
    data = b"".join(part.data for part in raw_log(run, replayed.secrets_in_log))[:LOG_LIMIT]
    told = recorded.attached(scene, state, data)
    if (run.path / RECORDS).is_dir():
        told = replace(told, flight_recorder=read_recorders(run.path / RECORDS, []))
    reading = fold(Attached(argv=told.argv, log=data)).reading
    reading = replace(
        reading,
        plan=state.plan,
        phase=base.phase or reading.phase,
        claims_ready=base.claims_ready,
        rank_of={row.process["pid"]: row.rank for row in base.members if row.rank is not None},
        now=base.elapsed_s,
        idle=base.still_s,
    )
    found = beside_checks(findings(gather(told, reading, signs()), causes(), base.verdict), base.checks)
    ours = state.stop_by is not None and not told.dead  # the record knows who stopped it
    return replace(base, findings=tuple(one.row() for one in found if not (ours and one.cause.id == _STOPPED)))


def explain(attached: Attached, folder: str | None = None) -> Result:
    """Never raises for the content."""
    folded = fold(attached)
    facts = gather(attached, folded.reading, signs())
    judgement = judge(facts)
    found = findings(facts, causes(), judgement.verdict)
    judgement = _by_cause(judgement, found, facts)
    return _result(folded, facts, judgement, found, folder)


def _by_cause(judgement: Judgement, found: tuple[Finding, ...], facts: Facts) -> Judgement:
    """A cause that is sure enough may say what a verdict from stillness alone cannot: whom is waited for, that it only looks still."""
    top = found[0] if found else None
    if top is None or top.confidence < SURE or top.cause.verdict is None:
        return judgement
    if top.cause.verdict is Verdict.FAILED and not _at_the_end(top, facts):
        return judgement
    if judgement.verdict in top.cause.overrules or (not top.cause.overrules and judgement.verdict in OPEN_VERDICTS):
        behind = top.behind if top.behind is not None else judgement.behind
        return replace(judgement, verdict=top.cause.verdict, reason=top.summary, proof=top.evidence, behind=behind)
    return judgement


def _at_the_end(finding: Finding, facts: Facts) -> bool:
    """Whether what speaks for it stands in the last lines of the log, or beside the log: the start went on after all that is further up."""
    lines = facts.reading.log.splitlines()
    tail = "\n".join(lines[-_LAST_LINES:])
    earlier = "\n".join(lines[:-_LAST_LINES])
    return any(text[:80] in tail or text[:80] not in earlier for text in finding.evidence)


def _result(folded: Folded, facts: Facts, judgement: Judgement, found: tuple[Finding, ...], folder: str | None) -> Result:
    reading = folded.reading
    base = judged_result(folded.state, folder)
    unknown = not found or found[0].confidence < SURE
    healthy = judgement.verdict in (Verdict.READY, Verdict.STARTING) and not found
    reason = judgement.reason
    if unknown and not healthy and judgement.verdict is not Verdict.READY:
        reason += "; the cause is not decided by what is here"
    sure = found[0] if found and found[0].confidence >= SURE else None
    behind = sure.behind if sure is not None and sure.behind is not None else judgement.behind
    return replace(
        base,
        run=None,
        verdict=judgement.verdict,
        reason=reason,
        proof=judgement.proof,
        claims_ready=bool(reading.claims_ready or facts["health_ok"]),
        phase=_phase(reading, facts, judgement.verdict) if sure is None or sure.cause.phase is None else sure.cause.phase,
        detail=_detail(reading),
        elapsed_s=reading.now if reading.now is not None else reading.last_t,
        still_s=reading.idle if judgement.verdict in OPEN_VERDICTS else None,
        phases=reading.rows,
        endpoint=replace(base.endpoint, url=_url(folded.state, facts)),
        ranks=RanksRow(behind=behind),
        weights=_weights(reading),
        gpus=tuple(_gpu(facts)),
        next=_COLLECT if unknown and not healthy else (),
        findings=tuple(one.row() for one in found),
        not_checked=(*base.not_checked, *facts.attached.unread),
    )


def _url(state: State, facts: Facts) -> str | None:
    """A default of the engine's is not known to be this server's: only its command or its log tells."""
    told = told_port(state)
    if told is not None:
        return url(replace(state.plan.endpoint, port=told))
    return url(state.plan.endpoint) if facts.attached.argv else None


def _phase(reading: Reading, facts: Facts, verdict: Verdict) -> Phase:
    probes = facts.attached.probes
    asked = probes is not None and any(line.asked == "generate" and not line.refused for line in probes.lines)
    if asked and (reading.claims_ready or verdict in (Verdict.UNSERVING, Verdict.READY)):
        return Phase.FIRST_TOKEN
    return reading.phase


def _detail(reading: Reading) -> str | None:
    """What was going on last, in the words of the profile."""
    told = [one.line for one in reading.told if one.line.phase is None or one.line.phase is reading.phase]
    last = next((line.values["detail"] for line in reversed(told) if "detail" in line.values), None)
    return str(last) if last is not None else None


def _weights(reading: Reading) -> WeightsRow:
    bar = reading.weights
    row = next((row for row in reading.rows if row.name is Phase.WEIGHTS), None)
    told = [one.line.values.get("seconds") for one in reading.told if one.line.phase is Phase.WEIGHTS]
    own = next((float(value) for value in told if isinstance(value, int | float)), None)
    whole = bar.shards is not None and bar.done == bar.shards
    seconds = own if own is not None else bar.seconds if whole and bar.seconds is not None else row.seconds if row is not None else None
    ended = whole or (row is not None and row.seconds is not None)
    return WeightsRow(shards_done=bar.done, shards=bar.shards, seconds=seconds if ended else None)


def _gpu(facts: Facts) -> list[dict[str, object]]:
    return [
        {
            "index": gpu.index,
            "name": gpu.name,
            "compute_capability": gpu.compute_capability,
            "memory_used_mib": gpu.memory_used,
            "memory_total_mib": gpu.memory_total,
            "utilisation": gpu.utilisation,
            "power_w": gpu.power,
        }
        for gpu in facts.attached.gpus or ()
    ]
