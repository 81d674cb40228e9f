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
from firsttoken.model.exits import UNKNOWN, decision
from firsttoken.model.plan import Policy
from firsttoken.model.result import Result
from firsttoken.model.words import OPEN_VERDICTS, Verdict
from firsttoken.session.link import KeeperGone
from firsttoken.session.stream import Ended, Item, Live, RunStream, Skipped, TimeUp
from firsttoken.session.tend import recorder_lives, run_state

LAST_WORDS = 3.0
"""Seconds. When a server ends, or says that it must, what it says last may still be on its way."""
_GOING_ON = (Verdict.STARTING, Verdict.SLOW)
_ENDING = (Verdict.FAILED, Verdict.CRASHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Why following stopped: `code` at a decision, `ended` at the stream's end, both None where time was up."""

    result: Result
    code: int | None = None
    ended: Ended | None = None


def _nothing(*_: object) -> None:
    return None


@dataclass(slots=True, kw_only=True)
class Follower:
    """`hello`: `face` for the one whose death the run may follow, else `control`. `patience` replaces the recorded policy's thresholds
    where the caller has its own. Callbacks are called in order, never in parallel: `on_change` gets a result at each new verdict or
    phase, `on_log` raw server output, `on_event` every event. `source`: what to follow, where that is not the folder and its keeper.
    """

    folder: RunFolder
    hello: str = "control"
    log_from: int | None = None
    patience: Callable[[Policy], Policy] = lambda policy: policy
    on_change: Callable[[Result], None] = _nothing
    on_log: Callable[[bytes], None] = _nothing
    on_event: Callable[[Event], None] = _nothing
    source: RunStream | None = None
    state: State = field(default_factory=initial)
    stream: RunStream = field(init=False)
    _items: AsyncIterator[Item] = field(init=False)
    _live: bool = False
    _shown: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        self.stream = self.source or RunStream(self.folder, self.hello, log_from=self.log_from)
        self._items = self.stream.items(still_written=self._still_written)

    async def until_decided(self, *, max_wait: float | None = None) -> Seen:
        """Returns at the first decision, at the run's end, or after `max_wait` seconds with the state so far."""
        return await self._follow(stop_at_decision=True, max_wait=max_wait)

    async def until_end(self, *, max_wait: float | None = None) -> Seen:
        """Also after `until_decided`: the same stream goes on."""
        return await self._follow(stop_at_decision=False, max_wait=max_wait)

    async def leave(self) -> None:
        """Leaving is no death, and says so."""
        if self.stream.link is not None:
            with contextlib.suppress(KeeperGone):
                await self.stream.link.send({"bye": True})
        await self.stream.close()

    def stored(self) -> Result:
        """The result of what the folder holds, without following."""
        for event in self.folder.events():
            self.state = advance(self.state, event)
        found = self.result()
        open_ = found.verdict in OPEN_VERDICTS
        return found if not open_ or run_state(self.folder) == "running" or self._still_written() else self._lost(found)

    def socket(self) -> str:
        return self.stream.socket()

    def result(self) -> Result:
        """A run whose launch was not recorded is known by its folder's name."""
        found = result(self.state, str(self.folder.path))
        return found if found.run else replace(found, run=self.folder.name)

    async def _follow(self, *, stop_at_decision: bool, max_wait: float | None) -> Seen:
        now = asyncio.get_running_loop().time
        self.stream.until = None if max_wait is None else now() + max_wait
        code: int | None = None
        async for item in self._items:
            match item:
                case Event():
                    self._take(item)
                case LogFrame():
                    self.on_log(item.data)
                case Live():
                    self._live = True
                case TimeUp():
                    return Seen(result=self.result(), code=self._code())
                case Skipped():  # a face reads all that is kept
                    pass
                case Ended():
                    return self._ended(item)
            if not self._live or not stop_at_decision or code is not None:
                continue  # while the folder is read, a verdict of the past is no decision
            code = self._code()
            if code is not None:
                if self.state.root_exit is None and self.state.decision.verdict not in _ENDING:
                    return Seen(result=self.result(), code=code)
                last = now() + LAST_WORDS
                self.stream.until = last if self.stream.until is None else min(last, self.stream.until)
        return self._ended(Ended(False))

    def _take(self, event: Event) -> None:
        self.state = advance(self.state, event)
        self.on_event(event)
        at = (self.state.decision.verdict, self.state.decision.phase)
        if at != self._shown:
            self._shown = at
            self.on_change(self.result())

    def _code(self) -> int | None:
        """Cheap while the start goes on: most events change nothing."""
        if self.state.decision.verdict in _GOING_ON:
            return None
        return decision(self.result(), self.patience(self.state.policy))

    def _ended(self, end: Ended) -> Seen:
        code = self._code()
        if code is not None or end.orderly:
            return Seen(result=self.result(), code=code, ended=end)
        return Seen(result=self._lost(self.result()), code=UNKNOWN, ended=end)

    def _still_written(self) -> bool:
        """After the keeper's death its observer goes on recording for as long as the server lives; of a server that somebody else
        started, whoever attached to it."""
        if recorder_lives(self.folder):
            return True
        holder = self.folder.keeper().get("observer")
        if not isinstance(holder, dict) or self.folder.keeper().get("ended") is not None:
            return False
        try:
            return Procfs().alive(int(holder["pid"]), int(holder["start"]))
        except (KeyError, TypeError, ValueError):
            return False

    def _lost(self, last: Result) -> Result:
        """Nobody saw how it went on."""
        then = (f"firsttoken cleanup {last.run}", f"firsttoken logs {last.run} --tail 50")
        attached = self.folder.attached()
        if not last.command and not attached:
            reason = "this run has recorded nothing: its launch was broken off"
        elif attached:
            reason = f"nobody follows this server any more: `firsttoken attach` has let go. Last seen was {last.verdict}, {last.reason}"
            then = (str(attached.get("again")), then[1])
        else:
            reason = f"nobody follows this run any more: its keeper and its observer are gone. Last seen was {last.verdict}, {last.reason}"
        return replace(last, verdict=Verdict.UNKNOWN, reason=reason, still_s=None, eta_s=None, next=then)
