"""Which evidence is wanted now. Pure: the shell carries the requests out and answers with events."""

from firsttoken.judge.serving import LOADING, TOKENS_WANTED
from firsttoken.judge.standstill import LOOK_AGAIN
from firsttoken.judge.state import State
from firsttoken.model.plan import Policy
from firsttoken.model.requests import AskCounters, AskForToken, AskHealth, LookClosely, Request
from firsttoken.model.words import Role, Verdict

LISTENS_FOR = 3.0
"""a port that listens without a ready line is asked after this long (the log may have broken off)"""
AGAIN_AFTER = 2.0
_MORE_TRIES = 2
BUSY_EVERY = 3.0
"""seconds between two questions for the counters of a busy server that is not known to be ready"""
COUNTERS_EVERY, COUNTERS_SELDOM = 10.0, 60.0
"""seconds between two questions for the engine's counters, and after one that was not answered"""


LOOK_AFTER = 0.5
"""seconds of stillness before places and stacks are looked at: the first sample without a strong signal"""
_PACES = ((12.0, 1.0), (60.0, 2.0), (600.0, 10.0))
"""seconds of stillness up to which a look is taken every so many seconds"""
LOOK_SELDOM = 60.0
"""seconds between two looks after that"""
_A_PROCESS = 0.1
"""seconds between two looks for each process: it costs about a fifth of that in CPU time where it has run since, next to nothing else"""
_TAKES = 0.5
"""seconds: looks are asked for with a sample, and their time is when they came in"""


def wants(state: State, policy: Policy) -> tuple[Request, ...]:
    return (*_tokens(state, policy), *_counters(state, policy), *_looks(state))


def _looks(state: State) -> tuple[Request, ...]:
    """Only while nothing moves: looking costs, and a serving engine is looked at only where its own counters raise the suspicion."""
    if state.root_exit is not None or state.stop_by is not None or state.root is None:
        return ()
    if state.ready_at is not None:
        return _look_after_ready(state)
    settled = state.decision.verdict in (Verdict.FAILED, Verdict.CRASHED, Verdict.UNKNOWN)
    if settled or state.motion.still < LOOK_AFTER:
        return ()
    if state.closeup.at is not None and state.now - state.closeup.at < look_every(state.motion.still, len(state.members)) - _TAKES:
        return ()
    return (LookClosely(number=state.closeup.round + 1),)


def look_every(still: float, processes: int) -> float:
    """Seconds between two looks at so many processes after so many seconds of stillness."""
    pace = next((every for until, every in _PACES if still < until), LOOK_SELDOM)
    return max(pace, processes * _A_PROCESS)


def _look_after_ready(state: State) -> tuple[Request, ...]:
    """One look a standstill, and another some time after one that showed work."""
    if not state.standstill.suspicious or state.decision.verdict is Verdict.UNSERVING:
        return ()
    last, since = state.closeup.at, state.standstill.since
    if last is not None and since is not None and last > since and state.now - last < LOOK_AGAIN:
        return ()
    return (LookClosely(number=state.closeup.round + 1),)


def _counters(state: State, policy: Policy) -> tuple[Request, ...]:
    """While it serves, from the engine whose token was seen; seldom where it did not answer in time."""
    after = state.standstill
    served = state.serving.tokens > 0 or after.serves_others
    if state.ready_at is None or not policy.probe or not served or state.plan.routes.metrics is None or not after.available:
        return ()
    if state.root_exit is not None or state.stop_by is not None or state.emptied:
        return ()
    asked = after.asked_at if after.asked_at is not None else state.ready_at
    return (AskCounters(),) if state.now - asked >= (COUNTERS_SELDOM if after.failed else COUNTERS_EVERY) else ()


def _tokens(state: State, policy: Policy) -> tuple[Request, ...]:
    """At most one request of ours is under way; a serving engine is never asked more than it takes to prove a token."""
    if not policy.probe or state.listening_since is None or state.serving.open_since is not None or state.ready_at is not None:
        return ()
    if state.decision.verdict in (Verdict.READY, Verdict.FAILED, Verdict.CRASHED, Verdict.UNKNOWN) or state.stop_by is not None:
        return ()
    claims = state.claims_since is not None
    if not claims and state.now - state.listening_since < LISTENS_FOR:
        return ()
    if state.adopted and not state.serving.answers and (first := _others_first(state)) is not None:
        return first
    answered = state.serving.answered_at
    last = state.serving.answers[-1] if state.serving.answers else None
    if last is not None and answered is not None and (last.status is None or last.status >= LOADING) and state.now - answered < AGAIN_AFTER:
        return ()
    if len(state.serving.errors) >= _MORE_TRIES:
        return ()
    match state.plan.role:
        case Role.SERVES:
            return (AskForToken(number=min(state.serving.tokens, TOKENS_WANTED - 1) + 1),)
        case Role.PREFILL | Role.DECODE | Role.ROUTER:
            return (AskHealth(number=state.serving.tries.get("health", 0) + 1),)
        case Role.FOLLOWER:
            return ()


def _others_first(state: State) -> tuple[Request, ...] | None:
    """A server that somebody else started may serve others: its counters are read before it is asked, and it is not asked while it is busy.

    None: go on and ask.
    """
    after = state.standstill
    if state.plan.routes.metrics is None or not after.available or after.failed or (after.told is not None and not after.busy):
        return None
    return (AskCounters(),) if after.asked_at is None or state.now - after.asked_at >= BUSY_EVERY else ()
