"""A face's view of a run: the same events through the same judge, until there is something to say or to return."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from firsttoken.history.runs import RunFolder
from firsttoken.hosts.procfs import Procfs
from firsttoken.judge.advance import advance, initial
from firsttoken.judge.outcome import result
from firsttoken.judge.state import State
from firsttoken.model.events import Event
from firsttoken.model.exits import decision
from firsttoken.model.plan import Policy
from firsttoken.model.result import Result
from firsttoken.model.words import Verdict
from firsttoken.session.link import LogBytes
from firsttoken.session.stream import Ended, Live, RunStream


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
    """`patience` replaces the recorded policy's thresholds where the caller has its own. Callbacks are called in order, never in parallel.

    `on_change` gets a result at each new verdict, phase or reason class; `on_log` raw server output; `on_event` every event.
    """

    folder: RunFolder
    log_from: int | None = None
    patience: Callable[[Policy], Policy] = lambda policy: policy
    on_change: Callable[[Result], None] = _nothing
    on_log: Callable[[bytes], None] = _nothing
    on_event: Callable[[Event], None] = _nothing
    state: State = field(default_factory=initial)
    stream: RunStream = field(init=False)

    def __post_init__(self) -> None:
        self.stream = RunStream(self.folder, "face", log_from=self.log_from)

    async def until_decided(self, *, max_wait: float | None = None) -> Seen:
        """Returns at the first decision, at the run's end, or after `max_wait` seconds."""
        return await self._follow(stop_at_decision=True, max_wait=max_wait)

    async def until_end(self) -> Seen:
        return await self._follow(stop_at_decision=False, max_wait=None)

    def result(self) -> Result:
        return result(self.state, str(self.folder.path))

    async def _follow(self, *, stop_at_decision: bool, max_wait: float | None) -> Seen:
        shown: tuple[str, str] | None = None
        live = False  # while the folder is read, a verdict of the past is no decision
        try:
            async with asyncio.timeout(max_wait):
                async for item in self.stream.items(still_written=self._still_written):
                    match item:
                        case Event():
                            self.state = advance(self.state, item)
                            self.on_event(item)
                            at = (self.state.decision.verdict, self.state.decision.phase)
                            if at != shown:
                                shown = at
                                self.on_change(self.result())
                            live = self.stream.connected.is_set()
                        case Live():
                            live = True
                        case LogBytes():
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


def result_of(folder: RunFolder, state: State) -> Result:
    """The result of a folded folder; what the folder alone tells (nothing was recorded, the keeper is gone) is added."""
    found = result(state, str(folder.path))
    return replace(found, run=found.run or folder.name)
