"""The verdict of a state, with a reason that a person believes. Proof first (tokens, deaths, errors), then stillness, then budgets."""

import signal as _signal
from math import isfinite
from typing import NamedTuple

from firsttoken.judge import phases, standstill
from firsttoken.judge.hang import Proof, Scene, at_rest, prove
from firsttoken.judge.rule import AT_REST, HEALTHY_QUIET
from firsttoken.judge.serving import TOKENS_WANTED
from firsttoken.judge.state import Decision, State, whole
from firsttoken.judge.witness import witnessed
from firsttoken.model.events import Exited, LogLine
from firsttoken.model.words import OPEN_VERDICTS, Phase, Role, Verdict

ERROR_GRACE = 5.0
"""a server that answers 5xx may be dying of it: its death tells more than the status"""
ALONE_GRACE = 15.0
"""one wrong answer: it is asked again, and only the next one tells"""
DEATH_GRACE = 3.0
"""an engine that notices the death of a rank ends with words of its own"""
MUTE_AFTER, MUTE_WHEN_PROVEN = 12.0, 6.0
"""an idle machine and a request without a token for this long; the second, where a hang is proven behind it"""
UNCLAIMED_FOR = 3.0
DEFAULT_BUDGET = 600.0
PLAIN_STORAGE = 250e6
"""bytes a second that cold weights may be read at before it is called slow"""
_LOADED = (Phase.WEIGHTS, Phase.DISTRIBUTED_INIT)


class _Said(NamedTuple):
    verdict: Verdict
    reason: str
    proof: tuple[str, ...] = ()
    detail: str | None = None
    hang: Proof | None = None
    behind: tuple[int, ...] = ()


def decide(state: State) -> Decision:
    expected = state.plan.sizes.ranks_here
    phase = phases.current(state.book, expected)
    said = _ended(state) or _stopping(state) or _bereft(state) or _served(state, phase) or _broken(state) or _moving(state, phase)
    return Decision(
        verdict=said.verdict,
        phase=phase,
        reason=said.reason,
        detail=said.detail,
        proof=said.proof,
        behind=said.behind or (said.hang.behind if said.hang is not None else ()),
        hang=said.hang,
    )


def _ended(state: State) -> _Said | None:
    """The launched command, or everything that it started, is no longer there."""
    if state.launch_failed is not None:
        return _Said(Verdict.FAILED, state.launch_failed.error)
    exit_ = state.root_exit
    if exit_ is None and state.emptied:
        return _gone(state)
    if exit_ is None or (exit_.code == 0 and not state.emptied):
        return None
    when = f"after {_seconds(state.root_exit_at if state.root_exit_at is not None else state.now)}"
    if state.stop_by is not None:
        return _stopped(state, state.stop_by, when)
    proof = tuple(_text(line) for line in _errors(state)[:5])
    crash = _crash(state, exit_)
    if crash is not None:
        return _Said(Verdict.CRASHED, f"{crash} {when}{_served_before(state)}{_because(state)}", proof, behind=_dead(state))
    if state.ready_at is not None and exit_.code == 0:
        return _Said(Verdict.READY, f"served its first token at {_seconds(state.ready_at)}; ended with status 0 {when}")
    before = _served_before(state) or ", before its first token"
    return _Said(Verdict.FAILED, f"ended with status {exit_.code} {when}{before}{_because(state)}", proof, behind=_dead(state))


def _stopped(state: State, by: str, when: str) -> _Said:
    if state.ready_at is not None:
        return _Said(Verdict.READY, f"served its first token at {_seconds(state.ready_at)}; ended {when} ({by})")
    told = state.before_stop
    if told is not None and told.verdict not in OPEN_VERDICTS:
        return _Said(told.verdict, f"{told.reason}; then stopped ({by}) {when}", told.proof, hang=told.hang, behind=told.behind)
    return _Said(Verdict.UNKNOWN, f"stopped ({by}) {when}, before its first token")


def _gone(state: State) -> _Said:
    """No process is left and nobody saw how the first one ended: only its parent is told that."""
    when = _seconds(state.now)
    if state.stop_by is not None:
        return _stopped(state, state.stop_by, f"after {when}")
    proof = tuple(_text(line) for line in _errors(state)[:5])
    crash = _crash(state, None)
    if crash is not None:
        return _Said(Verdict.CRASHED, f"{crash} after {when}{_served_before(state)}{_because(state)}", proof)
    if any(line.fatal for line in state.errors):
        return _Said(Verdict.FAILED, f"ended after {when}{_served_before(state)}{_because(state)}", proof)
    if state.ready_at is not None:
        return _Said(Verdict.READY, f"served its first token at {_seconds(state.ready_at)}; it ended after {when}, and how was not seen")
    return _Said(Verdict.UNKNOWN, f"it ended after {when}, before its first token, and how was not seen{_because(state)}", proof)


def _stopping(state: State) -> _Said | None:
    """What was decided before somebody asked for the end; what the end itself brings about is no news."""
    told = state.before_stop
    if state.stop_by is None or told is None:
        return None
    return _Said(told.verdict, f"{told.reason}; being stopped ({state.stop_by})", told.proof, told.detail, told.hang, told.behind)


def _bereft(state: State) -> _Said | None:
    """A rank died, and the server waits on without it."""
    for death in state.rank_deaths[:1]:
        if state.now - death.t >= DEATH_GRACE:
            who = f"rank {death.rank}" if death.rank is not None else "a process of the server"
            reason = f"{who} (pid {death.pid}) was ended by {signal_name(death.signal)} and the server waits on without it"
            return _Said(Verdict.CRASHED, reason, behind=_dead(state))
    return None


def _served(state: State, phase: Phase) -> _Said | None:
    serving = state.serving
    if state.ready_at is not None:
        found = standstill.halted(scene(state)) or standstill.proven(state.standstill, scene(state), state.now)
        if found is not None:
            reason, proof = found
            served = f"its first token came at {_seconds(state.ready_at)}"
            return _Said(Verdict.UNSERVING, f"no longer serves: {reason}", (served, *proof.facts), hang=proof)
    if state.ready_at is not None or serving.tokens >= TOKENS_WANTED or (state.adopted and state.standstill.serves_others):
        at = state.ready_at if state.ready_at is not None else state.now
        return _Said(Verdict.READY, _ready_reason(state, at), tuple(f"{a.probe} {a.url}: {a.text!r}" for a in serving.answers if a.text))
    role = state.plan.role
    if role is Role.FOLLOWER and _joined(state):
        return _Said(Verdict.READY, "joined its group and loaded; a follower is not asked for a token")
    if role in (Role.PREFILL, Role.DECODE, Role.ROUTER) and serving.healthy:
        return _Said(Verdict.READY, f"answers its health page; a {role} server alone cannot be asked for a token")
    if not state.policy.probe and state.claims_since is not None:
        return _Said(Verdict.UNKNOWN, "says that it is ready; no token was asked for (--no-probe)")
    if not state.policy.probe and _has_listened(state):
        return _Said(Verdict.UNKNOWN, "listens on its port; whether it is ready cannot be told, since no token was asked for")
    if serving.refused is not None:
        answer = serving.refused
        hint = " (no API key is known: give --api-key-env)" if answer.status in (401, 403) and answer.key_source is None else ""
        return _Said(Verdict.UNKNOWN, f"{answer.url} refused our request with {answer.status}{hint}: {_short(answer.body)}")
    return None


def _broken(state: State) -> _Said | None:
    serving = state.serving
    if serving.errors and state.now - serving.errors[0][0] >= (ERROR_GRACE if len(serving.errors) > 1 else ALONE_GRACE):
        answer = serving.errors[-1][1]
        told = f"status {answer.status}" if answer.status is not None else "no answer"
        told = answer.error or told if answer.status in (None, 200) else told
        return _Said(Verdict.UNSERVING, f"listens, but {answer.url} brought no token: {told}", (_short(answer.body or answer.error),))
    cause = _first_cause(state)
    if cause is not None and any(line.fatal for line in state.errors):
        proof = tuple(_text(error) for error in _errors(state)[:5])
        return _Said(Verdict.FAILED, f"the engine reported an error it cannot go on from: {_text(cause)}", proof, behind=_dead(state))
    if serving.open_since is None or not _accepts(state):
        return None
    waited = state.now - serving.open_since
    behind_it = prove(scene(state))
    if behind_it is not None and behind_it.verdict is Verdict.HUNG:
        patience = MUTE_WHEN_PROVEN
    elif state.motion.busy >= 0.5:
        patience = max(_budget(state, Phase.FIRST_TOKEN, state.policy.answer_budget), MUTE_AFTER)
    elif any(sample.state == "R" for sample in state.motion.samples.values()):
        patience = state.policy.answer_budget  # runnable is not at rest: on a crowded machine it may get little of a core
    else:
        patience = AT_REST.still if at_rest(scene(state)) else MUTE_AFTER
    if waited >= patience and state.motion.still >= min(state.policy.still_after, patience):
        reason = f"accepts a request and brings no token: {_seconds(waited)} so far, and nothing moves"
        why = f"; {behind_it.reason}" if behind_it is not None else ""
        return _Said(Verdict.UNSERVING, reason + why, (f"no strong signal for {_seconds(state.motion.still)}",), hang=behind_it)
    return None


def _moving(state: State, phase: Phase) -> _Said:
    still = state.motion.still
    doing = _doing(state, phase)
    proof_of_hang = witnessed(prove(scene(state)), scene(state), state.gpus, state.heard, state.motion.moved_at)
    if proof_of_hang is not None and proof_of_hang.verdict is Verdict.HUNG and (_accepts(state) or _is_up(state)):
        proof_of_hang = None  # it serves or it does not: told as such, with the hang as evidence, once its time to answer is over
    if proof_of_hang is not None and (proof_of_hang.verdict is not Verdict.STALLED or still >= state.policy.still_after):
        facts = (f"no strong signal for {_seconds(still)} (cores busy: {state.motion.busy:.1f})", *proof_of_hang.facts)
        return _Said(proof_of_hang.verdict, f"{phase}: {proof_of_hang.reason}", facts, hang=proof_of_hang)
    if still >= state.policy.still_after:
        proof = f"no new log text, bytes, faults, children or weights for {_seconds(still)} (cores busy: {state.motion.busy:.1f})"
        last = f"; last new line: {state.last_line}" if state.last_line else ""
        return _Said(Verdict.STALLED, f"{phase}: nothing moved for {_seconds(still)}{last}", (proof,))
    began = next((time.began for time in phases.times(state.book, state.plan.sizes.ranks_here) if time.phase == phase), 0.0)
    if state.adopted and phase is Phase.FIRST_TOKEN and state.serving.open_since is not None:
        began = state.serving.open_since  # others have asked before us
    spent = state.now - began
    if state.motion.starved:
        doing = "runnable but gets no CPU: the machine is overloaded"
    budget = _budget(state, phase, DEFAULT_BUDGET)
    # how long an adopted server has listened says nothing about its start
    served_before = state.adopted and phase in (Phase.LISTENING, Phase.FIRST_TOKEN) and state.serving.open_since is None
    if spent > budget and not served_before:
        return _Said(Verdict.SLOW, f"{phase} takes {_seconds(spent)} (usually up to {_seconds(budget)}): {doing}", detail=doing)
    return _Said(Verdict.STARTING, f"{phase} for {_seconds(spent)}: {doing}", detail=doing)


def scene(state: State) -> Scene:
    return Scene(
        members=state.members,
        sizes=state.plan.sizes,
        closeup=state.closeup,
        still=state.motion.still,
        stopped=state.motion.stopped,
        root_pid=state.root.pid if state.root is not None else None,
        told_ranks=state.told_ranks,
        quiet=_quiet(state),
    )


def _quiet(state: State) -> float:
    """Seconds for which healthy starts are known to be without a strong signal where this one is."""
    phase = phases.current(state.book, state.plan.sizes.ranks_here)
    return max([HEALTHY_QUIET, *(budget.quiet_s for budget in state.plan.budgets if budget.phase == phase)])


def _doing(state: State, phase: Phase) -> str:
    """What the start is at, and what it is slow at: the strongest signal of the last interval."""
    if phase is Phase.WEIGHTS and state.weights is not None and state.weights.shards:
        w, bar = state.weights, state.bar.values if state.bar is not None else {}
        rate = f", {_bytes(weight_rate(state))}/s" if len(state.weights_at) > 1 else ""
        done, shards = whole(bar.get("shards_done"), w.shards_done), whole(bar.get("shards"), w.shards)
        return f"{done or 0} of {shards or w.shards} shards, {_bytes(w.bytes_done)} of {_bytes(w.bytes)}{rate}"
    if phase is Phase.FIRST_TOKEN and state.serving.open_since is not None:
        return f"our request has been waiting for {_seconds(state.now - state.serving.open_since)}"
    if state.motion.children > 0.1:
        return f"child processes at work ({state.motion.children:.1f} cores reaped)"
    if state.motion.reading > 1e6:
        return f"reading and writing {_bytes(state.motion.reading)}/s"
    if state.motion.busy >= 0.5:
        return f"computing ({state.motion.busy:.1f} cores)"
    if state.motion.still > 2:
        return f"nothing has moved for {_seconds(state.motion.still)}"
    return "moving: " + ", ".join(state.motion.signals) if state.motion.signals else "just begun"


def weight_rate(state: State) -> float:
    """Bytes a second over the last half minute."""
    points = state.weights_at
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return 0.0
    return max(0.0, (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0]))


def _accepts(state: State) -> bool:
    """Whether a request of ours is under way at a server that says that it is ready, or listens."""
    return state.serving.open_since is not None and (state.claims_since is not None or state.listening_since is not None)


def _is_up(state: State) -> bool:
    """Whether it says that it is ready, or listens as only a ready one does: at rest it waits for requests."""
    return state.claims_since is not None or (state.listening_since is not None and not state.plan.listens_before_load)


def _has_listened(state: State) -> bool:
    """Of a server that somebody else started, whose log may not be there to claim anything."""
    since = state.listening_since
    return state.adopted and since is not None and state.now - since >= UNCLAIMED_FOR and not state.plan.listens_before_load


def _joined(state: State) -> bool:
    done = {time.phase for time in phases.times(state.book, state.plan.sizes.ranks_here) if time.seconds is not None}
    return state.claims_since is not None or all(phase in done for phase in _LOADED if phase in state.plan.phases)


def _crash(state: State, exit_: Exited | None) -> str | None:
    """How the first death was a signal, in words; None where it was an orderly end, or one that nobody saw."""
    if state.oom:
        return f"killed by the kernel's OOM killer ({state.oom[0]})"
    for line in state.errors:
        code = line.values.get("exit_code")
        if isinstance(code, int | float) and isfinite(code) and code < 0:
            ranks = _dead(state)
            return f"{f'rank {ranks[0]}' if ranks else 'a process of the server'} was ended by {signal_name(int(-code))}"
    ended = [e for e in state.exits if e.signal is not None and e.signal not in state.signals_sent]
    # a helper may be ended by SIGTERM long before; what was ended with SIGKILL after that was more likely ended by the server itself
    own = ended[:1] + [e for e in ended[1:] if e.root or e.signal != _signal.SIGKILL]
    first = next((e for e in own if e.root or e.signal in _FATAL_SIGNALS), None)
    if first is not None:
        return f"{'ended' if first.root else 'a process of the server was ended'} by {signal_name(first.signal or 0)}"
    if exit_ is not None and exit_.code is not None and exit_.code > 128 and exit_.code - 128 in _FATAL_SIGNALS:
        return f"ended with status {exit_.code} ({signal_name(exit_.code - 128)})"
    return None


def _dead(state: State) -> tuple[int, ...]:
    """The rank that died first, where it is known: the server says whose end it saw, and ends the others then as hard."""
    ranks = [line.values.get("rank") for line in state.errors if line.values.get("exit_code")]
    told = [int(rank) for rank in ranks if isinstance(rank, int | float) and isfinite(rank)]
    return tuple((told or [death.rank for death in state.rank_deaths if death.rank is not None])[:1])


_FATAL_SIGNALS = frozenset({_signal.SIGKILL, _signal.SIGSEGV, _signal.SIGABRT, _signal.SIGBUS, _signal.SIGILL, _signal.SIGFPE})


def signal_name(number: int) -> str:
    try:
        return _signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _errors(state: State) -> tuple[LogLine, ...]:
    """Fatal ones first, each in the order of the log; lines that only announce a traceback last."""
    return tuple(sorted(state.errors, key=lambda e: (e.text.endswith("(most recent call last):"), not e.fatal)))


def _because(state: State) -> str:
    line = _first_cause(state)
    if line is not None:
        return f": {_text(line)}"
    return f"; its last line: {state.last_line}" if state.last_line else ""


def _first_cause(state: State) -> LogLine | None:
    """A line that only reports the death of another process is fallout: the exception before it, of whoever died, says why."""
    errors = _errors(state)
    first = errors[0] if errors else None
    if first is None or not first.values.get("exit_code"):
        return first
    before = [e for e in state.errors if e.offset < first.offset and not e.fatal and "error" in e.values]
    return before[-1] if before else first


def _served_before(state: State) -> str:
    return f", {_seconds(state.now - state.ready_at)} after its first token" if state.ready_at is not None else ""


def _ready_reason(state: State, at: float) -> str:
    answer = state.serving.answers[0] if state.serving.answers else None
    if answer is None and state.standstill.serves_others:
        return "it makes tokens for the requests of others, so none of ours was sent"
    if answer is None:
        return f"first token at {_seconds(at)}"
    odd = "; the text is not sane: a single repeated token or non-finite log probabilities" if _insane(state) else ""
    asked = f" {answer.first_token_s:.2f} s after it was asked for" if answer.first_token_s is not None else ""
    since = f"{_seconds(at)} after {'the server began' if state.adopted else 'launch'}"
    return f"a real token came{asked}, {since}, and a second request was answered too{odd}"


def _insane(state: State) -> bool:
    """The last answer tells of all prompts so far."""
    return bool(state.serving.answers) and state.serving.answers[-1].sane is False


def _budget(state: State, phase: Phase, default: float) -> float:
    """The plan's, or for weights what their size takes from plain storage, if that is more."""
    planned = next((budget.seconds for budget in state.plan.budgets if budget.phase == phase), default)
    if phase is Phase.WEIGHTS and state.weights is not None:
        return max(planned, state.weights.bytes / PLAIN_STORAGE)
    return planned


def _text(line: LogLine) -> str:
    return _short(line.text)


def _short(text: str | None) -> str:
    text = (text or "").strip()
    return text if len(text) <= 300 else text[:297] + "…"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 100 else f"{value:.0f} s"


def _bytes(value: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} B"
