"""A server of which no process can be seen, on another machine or another user's: only its HTTP face tells.

Nothing is known of what it does, so nothing is concluded from its silence but one thing: a request of ours that brings no token for longer
than the policy's `answer_budget` makes it `unserving`.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from firsttoken.judge.state import State
from firsttoken.model.events import Body, Counters, EngineCounters, Listening, Planned
from firsttoken.model.process import ListenSocket
from firsttoken.model.requests import AskCounters, AskForToken, AskHealth, LookClosely, Request
from firsttoken.observe.engine_counters import ask_counters
from firsttoken.observe.http import FirstTokenProber
from firsttoken.observe.http_target import Target

_CONNECTS_WITHIN = 3.0


class RemoteSenses:
    """`target` is asked as it is, its host by the name that the user gave. `counters`: the metric names of each engine it might be."""

    def __init__(self, target: Target, counters: Sequence[Mapping[str, str]] = ()) -> None:
        self._target = target
        self._names = tuple(counters)
        self._prober: FirstTokenProber | None = None
        self._listens = False

    def log(self, data: bytes, offset: int, wall: float) -> Sequence[Body]:
        return ()

    def log_activity(self) -> Body | None:
        return None

    async def sample(self, state: State, interval: float) -> Sequence[Body]:
        if not self._listens:
            self._listens = await self._answers()
            row = ListenSocket(0, self._target.host, self._target.port, None)
            return (Listening(sockets=(row,)),) if self._listens else ()
        waits = state.serving.open_since
        if waits is not None and state.now - waits >= state.policy.answer_budget:
            return (Counters(interval=interval, samples=()),)
        return ()

    async def ask(self, request: Request, state: State, emit: Callable[[Body], None]) -> None:
        if isinstance(request, LookClosely):
            return
        if isinstance(request, AskCounters):
            emit(await self._counters())
            return
        prober = self._prober = self._prober or FirstTokenProber(self._target, emit)
        match request:
            case AskForToken():
                await prober.ask(request.number)
            case AskHealth():
                await prober.health()

    def replan(self, state: State) -> Planned | None:
        return None

    async def _counters(self) -> EngineCounters:
        """The names that fit are kept."""
        for names in self._names:
            told = await ask_counters(self._target, names)
            if told.error is None:
                self._names = (names,)
            if told.error is None or not told.available:
                return told
        return EngineCounters(error="its metrics page tells nothing that is known", available=False)

    async def _answers(self) -> bool:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CONNECTS_WITHIN):
                _, writer = await asyncio.open_connection(self._target.host, self._target.port)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            return True
        return False


def keyed(target: Target, key_env: str | None) -> Target:
    """With the key of an environment variable that the user named: naming it for an address is leave to send it there."""
    key = os.environ.get(key_env or "")
    if key_env is None or not key:
        return target
    return replace(target, key=key, key_source=f"environment {key_env}", allow_remote_key=True)
