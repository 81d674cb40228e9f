"""A face's view of a run: the same events through the same judge, until there is something to say or to return."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

from firsttoken.history.runs import RunFolder
from firsttoken.hosts.procfs import Procfs
from firsttoken.judge.advance import advance, initial
from firsttoken.judge.outcome import result
from firsttoken.judge.state import State
from firsttoken.launch.frames import LogFrame
from firsttoken.model.events import Event
from firsttoken.model.exits import decision
from firsttoken.model.plan import Policy
from firsttoken.model.result import Result
from firsttoken.model.words import Verdict
from firsttoken.session.link import KeeperGone
from firsttoken.session.stream import Ended, Item, Live, RunStream


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Why following stopped: `code` at a decision, `ended` at the stream's end, both None where time was up."""

    result: Result
    code: int | None = None
    ended: Ended | None = None


_GOING_ON = (Verdict.STARTING, Verdict.SLOW)


def _nothing(*_: object) -> None:
    return None


@dataclass(slots=True, kw_only=True)
class Follower:
    """`hello`: `face` for the one whose death the run may follow, else `control`. `patience` replaces the recorded policy's thresholds
    where the caller has its own. Callbacks are called in order, never in parallel: `on_change` gets a result at each new verdict or
    phase, `on_log` raw server output, `on_event` every event.
    """

    folder: RunFolder
    hello: str = "control"
    log_from: int | None = None
    patience: Callable[[Policy], Policy] = lambda policy: policy
    on_change: Callable[[Result], None] = _nothing
    on_log: Callable[[bytes], None] = _nothing
    on_event: Callable[[Event], None] = _nothing
    state: State = field(default_factory=initial)
    stream: RunStream = field(init=False)
    _items: AsyncIterator[Item] = field(init=False)
    _shown: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        self.stream = RunStream(self.folder, self.hello, log_from=self.log_from)
        self._items = self.stream.items(still_written=self._still_written)

    async def until_decided(self, *, max_wait: float | None = None) -> Seen:
        """Returns at the first decision, at the run's end, or after `max_wait` seconds."""
        return await self._follow(stop_at_decision=True, max_wait=max_wait)

    async def until_end(self) -> Seen:
        return await self._follow(stop_at_decision=False, max_wait=None)

    async def resume_until_end(self) -> Seen:
        """Goes on after `until_decided`, on the same stream."""
        return await self._follow(stop_at_decision=False, max_wait=None)

    async def say_bye(self) -> None:
        """Leaving is no death."""
        if self.stream.link is not None:
            with contextlib.suppress(KeeperGone):
                await self.stream.link.send({"bye": True})

    def stored(self) -> Result:
        """The result of what the folder holds, without following."""
        for event in self.folder.events():
            self.state = advance(self.state, event)
        return self.result()

    def socket(self) -> str:
        return self.stream.socket()

    def result(self) -> Result:
        """A run whose launch was not recorded is known by its folder's name."""
        found = result(self.state, str(self.folder.path))
        return found if found.run else replace(found, run=self.folder.name)

    async def _follow(self, *, stop_at_decision: bool, max_wait: float | None) -> Seen:
        live = False  # while the folder is read, a verdict of the past is no decision
        try:
            async with asyncio.timeout(max_wait):
                async for item in self._items:
                    match item:
                        case Event():
                            self.state = advance(self.state, item)
                            self.on_event(item)
                            at = (self.state.decision.verdict, self.state.decision.phase)
                            if at != self._shown:
                                self._shown = at
                                self.on_change(self.result())
                            live = self.stream.connected.is_set()
                        case Live():
                            live = True
                        case LogFrame():
                            self.on_log(item.data)
                        case Ended():
                            now = self.result()
                            return Seen(result=now, code=decision(now, self.patience(self.state.policy)), ended=item)
                    if live and stop_at_decision and self.state.decision.verdict not in _GOING_ON:
                        code = decision(self.result(), self.patience(self.state.policy))
                        if code is not None:
                            return Seen(result=self.result(), code=code)
        except TimeoutError:
            pass
        return Seen(result=self.result())

    def _still_written(self) -> bool:
        """After the keeper's death its observer goes on recording for as long as the server lives."""
        holder = self.folder.keeper().get("observer")
        if not isinstance(holder, dict) or self.folder.keeper().get("ended") is not None:
            return False
        return Procfs().alive(int(holder["pid"]), int(holder["start"]))
