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
COUNTERS_EVERY, COUNTERS_SELDOM = 10.0, 60.0
"""seconds between two questions for the engine's counters, and after one that was not answered"""


LOOK_AFTER, LOOK_EVERY, LOOK_SELDOM = 2.0, 2.0, 10.0
"""seconds of stillness before places and stacks are looked at, and between two looks (at first, and after a minute)"""


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
    every = LOOK_EVERY if state.motion.still < 60 else LOOK_SELDOM
    if state.closeup.at is not None and state.now - state.closeup.at < every:
        return ()
    return (LookClosely(number=state.closeup.round + 1),)


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
    if state.ready_at is None or not policy.probe or state.serving.tokens == 0 or state.plan.routes.metrics is None or not after.available:
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
