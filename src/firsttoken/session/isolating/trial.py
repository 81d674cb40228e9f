"""One trial: a launch through the same keeper, observer and judge as any run, ended as soon as it has told what was asked.

It is stopped when the phase in which the baseline failed lies behind it and work goes on, when a hang is proven, when it stands just where
the baseline stood until our patience was over, or when its time is over; then nothing of it is left: no process, and the port is free.
Should we die, its keeper ends it (`on_observer_death="stop"`).
"""

import asyncio
import contextlib
import errno
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from firsttoken.history.runs import RunFolder
from firsttoken.isolate.signature import signature
from firsttoken.judge.advance import advance, initial
from firsttoken.judge.outcome import result as judged
from firsttoken.judge.state import State
from firsttoken.launch.cleanup import find_left
from firsttoken.model.events import Event
from firsttoken.model.isolation import Signature
from firsttoken.model.plan import Plan
from firsttoken.model.result import Result
from firsttoken.model.words import Phase, Verdict
from firsttoken.session.follow import Follower
from firsttoken.session.launch import Asked, launch
from firsttoken.session.link import KeeperGone, Link
from firsttoken.session.tend import stop

_SETTLE = 5.0
"""Seconds that a start must be beyond the failing phase, still moving: a hang may move to the next phase with the settings."""
_MOVING = 2.0
_ALIKE_FOR = 12.0
"""Seconds of stillness where the baseline stood, for as long as anybody had patience with a start that nothing explained."""
_POLITE, _BLOCKED, _FIRM = 4.0, 1.0, 60.0
"""Seconds until a trial's server gets the next signal, until one that stands does, and until one that cannot be killed is given up."""
_LAST_WORDS = 15.0
"""Seconds for what a server that ended said last; more than its observer needs on any but a starved machine."""
_LEAVES = 10.0
"""Seconds in which keeper and observer leave when the server has ended."""
_PORT_FREE = 60.0
_DECIDED = (Verdict.HUNG, Verdict.FAILED, Verdict.CRASHED, Verdict.UNSERVING, Verdict.READY)


class StillThere(Exception):
    """Something of a trial would not end, so that the next one would not be alone. The text says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """`until`: what ended it: decided, alike, passed, time or interrupted."""

    result: Result
    until: str
    seconds: float
    folder: RunFolder


async def run_trial(
    asked: Asked,
    *,
    beyond: Phase | None,
    alike: Signature | None,
    seconds: float,
    started: Callable[[RunFolder], None],
    interrupted: Callable[[], bool],
    watch: Callable[[Follower], contextlib.AbstractContextManager[object]],
) -> Ran:
    """`beyond`: the phase to be passed; None: only a decision ends it. `alike`: how the baseline failed, None before it did. `started` gets
    the run's folder at once; `watch` may show the follower; `interrupted` is looked at with each event, of which there is one a second at
    least.

    LaunchRefused and OSError as in `launch`, OSError of `started` too; StillThere where something does not end.
    """
    began = time.monotonic()
    folder, keeper = launch(asked)
    try:
        try:
            started(folder)
        except OSError:
            await stop(folder, force=True, max_wait=_FIRM)
            raise
        passed, stands = _Passed(beyond), _Stands(alike)
        follower = Follower(folder=folder, hello="face", patience=lambda _: asked.policy)

        def look(_: Event) -> None:
            if interrupted() or passed.by(follower.state) or stands.alike(follower):
                follower.stream.until = 0.0  # time is up

        follower.on_event = look
        with watch(follower):
            seen = await follower.until_decided(max_wait=seconds)
            decided = seen.code is not None or seen.ended is not None
            ours = "passed" if passed.done else "alike" if stands.done else "time"
            until = "decided" if decided else "interrupted" if interrupted() else ours
            follower.on_event = _ignored
            await _end(follower)
        result = _with_last_words(seen.result, follower.result())
    finally:
        keeper.release()
    await _port_is_free(asked.plan)
    return Ran(result=result, until=until, seconds=time.monotonic() - began, folder=folder)


class _Passed:
    """Whether the start has left a phase behind and goes on."""

    def __init__(self, beyond: Phase | None) -> None:
        self._beyond, self.done = beyond, False
        self._since: float | None = None

    def by(self, state: State) -> bool:
        order, at = list(state.plan.phases), state.decision.phase
        behind = self._beyond in order and at in order and order.index(at) > order.index(self._beyond)
        if not behind or state.decision.verdict not in (Verdict.STARTING, Verdict.SLOW):
            self._since = None
        elif self._since is None:
            self._since = state.now
        elif state.now - self._since >= _SETTLE and state.motion.still < _MOVING:
            self.done = True
        return self.done


class _Stands:
    """Whether a start that neither moves nor is proven to hang stands where the baseline stood, and for the same reason."""

    def __init__(self, baseline: Signature | None) -> None:
        self._baseline, self.done = baseline, False
        self._looked = -1.0

    def alike(self, follower: Follower) -> bool:
        state = follower.state
        stands = state.decision.verdict in (Verdict.STALLED, Verdict.WAITING) and state.motion.still >= _ALIKE_FOR
        if stands and self._baseline is not None and self._baseline.where and state.now - self._looked >= 1.0:
            self._looked = state.now
            self.done = signature(follower.result()) == self._baseline
        return self.done


def ended_phase(verdict: Verdict, phase: Phase | None) -> Phase | None:
    """The phase behind which a start has passed, if there is one short of being ready."""
    late = (Phase.WARMUP, Phase.LISTENING, Phase.FIRST_TOKEN)
    return phase if phase not in late and verdict is not Verdict.UNSERVING else None


def decided_before_the_stop(folder: RunFolder) -> Result | None:
    """What came out of a trial whose caller was killed, by its events; None where nothing had been decided."""
    state = initial()
    for event in folder.events():
        state = advance(state, event)
    if state.before_stop is not None:
        state = replace(state, decision=state.before_stop)
    return judged(state, str(folder.path)) if state.decision.verdict in _DECIDED else None


def _with_last_words(decided: Result, last: Result) -> Result:
    """Of a server that ended by itself, what its log said last may have been read after the decision."""
    ended = (Verdict.FAILED, Verdict.CRASHED)
    return last if decided.verdict in ended and last.verdict is decided.verdict else decided


async def _end(follower: Follower) -> None:
    """Everything of the run, keeper and observer included. Read to the end, so that the keeper need not wait for us."""
    folder = follower.folder
    try:
        if follower.state.root_exit is not None:
            await follower.until_end(max_wait=_LAST_WORDS)
        stands = follower.state.decision.verdict in (Verdict.HUNG, Verdict.STALLED, Verdict.WAITING)
        for patience in (_BLOCKED if stands else _POLITE, _FIRM):
            if not await _ask_to_stop(follower) or (await follower.until_end(max_wait=patience)).ended is not None:
                break
    finally:
        await follower.leave()
    deadline = time.monotonic() + _LEAVES
    while find_left(folder.path) and time.monotonic() < deadline:  # noqa: ASYNC110  # the end of foreign processes has no event to wait for
        await asyncio.sleep(0.02)
    left = find_left(folder.path)
    if left:
        left = find_left(folder.path) if (await stop(folder, force=True, max_wait=_FIRM)).left else ()
    if left:
        pids = ", ".join(str(one.process.pid) for one in left)
        raise StillThere(f"processes of {folder.name} did not end within {_FIRM:.0f} s of their SIGKILL: {pids}; a device may be wedged")


async def _ask_to_stop(follower: Follower) -> bool:
    """Forced: asked again it goes on to the next rung. False where no keeper takes it."""
    try:
        link = await Link.connect(follower.socket(), "control", events_from=None, log_from=None)
        await link.send({"stop": {"by": "isolate", "force": True}})
        await link.close()
    except KeeperGone:
        return False
    return True


def _ignored(_: Event) -> None:
    return None


async def _port_is_free(plan: Plan) -> None:
    deadline = time.monotonic() + _PORT_FREE
    while (why := port_taken(plan)) is not None:
        if time.monotonic() > deadline:
            raise StillThere(f"after the trial {why} for {_PORT_FREE:.0f} s")
        await asyncio.sleep(0.1)


def port_taken(plan: Plan) -> str | None:
    """In words; None where the server's port can be had."""
    endpoint = plan.endpoint
    if not endpoint.port or plan.contained or endpoint.unix_socket is not None:
        return None
    host = endpoint.host or ""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host.strip("[]"), endpoint.port))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            return None  # whatever else is wrong with it, the server will say
        return f"port {endpoint.port} cannot be had ({error.strerror or error})"
    return None
