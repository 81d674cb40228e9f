"""The observer of one run: log bytes and counters in, events out, the judge beside them, and our own requests when the judge wants them.

It is expendable. All that it knows is folded from the run's events, so one that was killed is started again by the keeper and goes on where
the recorded events end. It posts and reads back: its own events count only once the recorder has given them their place.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from firsttoken.history.runs import RunFolder
from firsttoken.judge.advance import advance, initial
from firsttoken.judge.outcome import result
from firsttoken.judge.state import State
from firsttoken.judge.wants import wants
from firsttoken.model.events import Body, Event, Judged, LogActivity, LogLine, Planned
from firsttoken.model.requests import Request
from firsttoken.model.words import Verdict
from firsttoken.report.document import result_document
from firsttoken.session.link import KeeperGone, LogBytes
from firsttoken.session.stream import Ended, Live, RunStream

READY_INTERVAL = 10.0


class Senses(Protocol):
    """How an observer looks at the world. Nothing here may raise for what the world does; what cannot be had is a `Missed` event."""

    def log(self, data: bytes, offset: int, wall: float) -> Sequence[Body]:
        """Events of the log lines in these bytes."""

    def log_activity(self) -> Body | None:
        """Since the last call; None where nothing was written."""

    async def sample(self, state: State, interval: float) -> Sequence[Body]:
        """Processes, counters, sockets, weights…: one round."""

    async def ask(self, request: Request, state: State, emit: Callable[[Body], None]) -> None:
        """Carries a request out; its events go to `emit`."""

    def replan(self, state: State) -> Planned | None:
        """A better plan, where what was seen tells more than the command did."""


@dataclass(slots=True)
class Observer:
    folder: RunFolder
    senses: Senses
    state: State = field(default_factory=initial)
    changes: list[Judged] = field(default_factory=list)
    _recorded: int = 0
    _told: int = 0
    _seq: int = -1
    _outgoing: "asyncio.Queue[Body]" = field(default_factory=asyncio.Queue)
    _in_flight: dict[Request, "asyncio.Task[None]"] = field(default_factory=dict)

    async def run(self, first: Iterable[Body] = ()) -> Ended:
        """Until the keeper says that the run ended, or is gone. `first`: events to post before any other, on a fresh run only."""
        resume = self._fold_folder()
        if not self.state.plan.command:
            self._post(*first)
        stream = RunStream(self.folder, "observer", log_from=resume, seq=self._seq)
        ended = Ended(False)
        helpers = [asyncio.create_task(self._send(stream)), asyncio.create_task(self._sample())]
        try:
            async for item in stream.items():
                match item:
                    case Event():
                        self._fold(item)
                        self._after(item)
                    case LogBytes():
                        self._post(*self.senses.log(item.data, item.offset, self._wall(item.t)))
                    case Live():
                        pass
                    case Ended():
                        ended = item
        finally:
            for task in (*helpers, *self._in_flight.values()):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*helpers, *self._in_flight.values(), return_exceptions=True)
            self._write_result()
        return ended

    def _fold_folder(self) -> int:
        """What an earlier observer left; the log offset from which to go on."""
        resume = 0
        for event in self.folder.events():
            self._fold(event)
            match event.body:
                case LogActivity():
                    resume = max(resume, event.body.offset)
                case LogLine():
                    resume = max(resume, event.body.offset + event.body.length)
                case _:
                    pass
        self._post(*self.changes[self._recorded :])
        self._told = len(self.changes)
        return resume

    def _fold(self, event: Event) -> None:
        self._seq = event.seq
        before = self.changes[-1] if self.changes else None
        self.state = advance(self.state, event)
        if isinstance(event.body, Judged):
            self._recorded += 1
        decision = self.state.decision
        if before is None or (before.verdict, before.phase) != (decision.verdict, decision.phase):
            self.changes.append(Judged(verdict=decision.verdict, phase=decision.phase, reason=decision.reason))

    def _after(self, event: Event) -> None:
        """What follows from a new event: the change is told, wanted evidence is collected, a better plan is made."""
        if len(self.changes) > self._told:
            self._post(*self.changes[self._told :])
            self._told = len(self.changes)
            self._write_result()
        if isinstance(event.body, Judged):
            return
        plan = self.senses.replan(self.state)
        if plan is not None:
            self._post(plan)
        for request in wants(self.state, self.state.policy):
            if request not in self._in_flight:
                self._in_flight[request] = asyncio.create_task(self._ask(request))

    async def _ask(self, request: Request) -> None:
        try:
            await self.senses.ask(request, self.state, self._post)
        finally:
            await self._posted()
            self._in_flight.pop(request, None)

    async def _posted(self) -> None:
        """Until what was emitted has come back as events, so that the same request is not wanted twice; a second at most."""
        mark = self._seq
        for _ in range(20):
            if self._outgoing.empty() and self._seq > mark:
                return
            await asyncio.sleep(0.05)

    def _post(self, *bodies: Body) -> None:
        for body in bodies:
            self._outgoing.put_nowait(body)

    async def _send(self, stream: RunStream) -> None:
        """Outgoing events in batches, in order, as soon as there is a link."""
        while True:
            batch = [await self._outgoing.get()]
            while not self._outgoing.empty() and len(batch) < 500:
                batch.append(self._outgoing.get_nowait())
            await stream.connected.wait()
            if stream.link is None:
                return
            try:
                await stream.link.post(batch)
            except KeeperGone:
                return

    async def _sample(self) -> None:
        """Counters each second while starting, each ten seconds after ready."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            interval = READY_INTERVAL if self.state.decision.verdict is Verdict.READY else self.state.policy.sample_interval
            activity = self.senses.log_activity()
            if activity is not None:
                self._post(activity)
            if self.state.root is not None:
                self._post(*await self.senses.sample(self.state, interval))
            while loop.time() - began < interval:
                await asyncio.sleep(min(0.25, interval))
                if interval > 1 and self.state.decision.verdict is not Verdict.READY:
                    break

    def _wall(self, t: float) -> float:
        return (self.state.launched_wall or 0.0) + t

    def _write_result(self) -> None:
        with contextlib.suppress(OSError):
            self.folder.write_json("result.json", result_document(result(self.state, str(self.folder.path))))
