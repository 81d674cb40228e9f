"""The observer of one run: log bytes and counters in, events out, the judge beside them, and our own requests when the judge wants them.

It is expendable. All that it knows is folded from the run's events, so one that was killed is started again by the keeper and goes on where
the recorded events end. It posts and reads back: its own events count only once the recorder has given them their place. When the keeper
dies it becomes the recorder itself, so that the server loses neither its terminal nor its record.
"""

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from firsttoken.history.runs import RunFolder
from firsttoken.judge.advance import advance, initial
from firsttoken.judge.outcome import result
from firsttoken.judge.state import State
from firsttoken.judge.wants import wants
from firsttoken.launch.folder import Key
from firsttoken.launch.frames import LogFrame
from firsttoken.launch.survivors import NoRecord, Survivor
from firsttoken.model import codec
from firsttoken.model.events import (
    Body,
    Counters,
    Emptied,
    Event,
    Exited,
    Gap,
    Judged,
    LogActivity,
    LogLine,
    Missed,
    Planned,
    SecretsInLog,
)
from firsttoken.model.requests import Request
from firsttoken.model.secrets import LogSearch, Secrets
from firsttoken.report.document import result_document
from firsttoken.session.link import KeeperGone
from firsttoken.session.stream import Ended, Live, RunStream, Skipped, StoredFrame, TimeUp

READY_INTERVAL = 10.0
MOST_BEHIND = 64 << 20
"""Bytes of log that are made up for; of a server that prints faster than can be read, what came before them is skipped, and told."""
_READY_LOOK = 2.0
_LATE = 0.3
"""Seconds between a server's line and our reading of it from which on the line's own time is told beside the event's."""
_CLAIM_INTERVAL, _CLAIM_PATIENCE = 0.25, 5.0
"""Seconds between two looks, and for how long, when a server claims to be ready and no port of it is seen to listen yet."""
_ECHO = 0.1
"""Seconds that a last word is given to come back as an event, and to change the verdict once more."""
_EVENTS_HELD, _FRAMES_HELD = 500, 64
"""of what came last, for the case that the keeper dies before it was written"""


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
    """`master`: the server's terminal (or pipe), held for the case that the keeper dies; None where there is none to take over.

    `stream`: where events and log come from and go to, where that is no keeper. `secrets` are masked in all that it reports.
    `beside`: looked at once, beside the start. `alongside`: goes on beside it, and posts what it finds; told the state when it asks.
    """

    folder: RunFolder
    senses: Senses
    master: int | None = None
    stream: RunStream | None = None
    secrets: Secrets = field(default_factory=Secrets)
    beside: Callable[[], Awaitable[Sequence[Body]]] | None = None
    alongside: Callable[[Callable[[Body], None], Callable[[], State]], Awaitable[None]] | None = None
    state: State = field(default_factory=initial)
    changes: list[Judged] = field(default_factory=list)
    _recorded: int = 0
    _told: int = 0
    _seq: int = -1
    _planned: bool = False
    """the plan has come back as an event; before that nothing better can be made of it"""
    _search: LogSearch = field(init=False)
    _claimed: asyncio.Event = field(default_factory=asyncio.Event)
    _missed: set[str] = field(default_factory=set)
    _outgoing: "asyncio.Queue[Body | None]" = field(default_factory=asyncio.Queue)
    """None: our last word has been said"""
    _in_flight: dict[Request, "asyncio.Task[None]"] = field(default_factory=dict)
    _last_events: deque[Event] = field(default_factory=lambda: deque(maxlen=_EVENTS_HELD))
    _last_frames: deque[LogFrame] = field(default_factory=lambda: deque(maxlen=_FRAMES_HELD))

    def __post_init__(self) -> None:
        self._search = LogSearch(self.secrets)

    async def run(self, first: Iterable[Body] = ()) -> None:
        """Until the run has ended. `first`: events to post before any other, on a fresh run only."""
        resume = self._fold_folder()
        if not self._planned:
            self._post(*first)
        stream = self.stream or RunStream(self.folder, "observer", log_from=resume, seq=self._seq, most_behind=MOST_BEHIND)
        sending, sampling = asyncio.create_task(self._send(stream)), asyncio.create_task(self._sample())
        looking, going_along = asyncio.create_task(self._look_beside()), asyncio.create_task(self._go_along())
        try:
            orderly = await self._follow(stream)
            sending.cancel()
            if not orderly and self.master is not None:
                await self._survive(self.master)
        finally:
            tasks = (sending, sampling, looking, going_along, *self._in_flight.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await stream.close()
            self._write_result()

    async def _look_beside(self) -> None:
        if self.beside is not None and not self.state.checks:
            self._post(*await self.beside())

    async def _go_along(self) -> None:
        if self.alongside is not None:
            try:
                await self.alongside(self._post, lambda: self.state)
            except Exception as error:  # as a probe that fails: the run goes on
                self._miss("what goes along with the start", error)

    async def _follow(self, stream: RunStream) -> bool:
        """Whether the keeper said farewell; False when it is gone."""
        async for item in stream.items():
            match item:
                case Event():
                    self._last_events.append(item)
                    self._take(item)
                case LogFrame():
                    if not isinstance(item, StoredFrame):  # one from the folder is written already
                        self._last_frames.append(item)
                    self._read(item)
                case Skipped():
                    self._post(Gap(what="reading", amount=item.bytes, reason="the server prints faster than its output can be read"))
                case Live() | TimeUp():
                    pass
                case Ended():
                    return item.orderly
        return False

    async def _survive(self, master: int) -> None:
        """The keeper died: drain the server's output, record, and follow it to its end."""
        loop = asyncio.get_running_loop()
        members = [Key(member.process.pid, member.process.start) for member in self.state.members.values()]
        events = [json.loads(codec.encode(event)) for event in self._last_events]
        try:
            survivor = Survivor(self.folder.path, master, received_events=events, received_log=self._last_frames, known=members)
        except (NoRecord, OSError):
            return
        readable = asyncio.Event()
        loop.add_reader(master, readable.set)
        try:
            while not survivor.finished:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(max(survivor.next_at - loop.time(), 0.0), 0.25)):
                        await readable.wait()
                readable.clear()
                frame = survivor.read()
                if frame is not None:
                    self._read(frame)
                if survivor.closed:
                    loop.remove_reader(master)
                survivor.turn()
                survivor.post([codec.body_to_fields(body) for body in self._drain() if body is not None])
                for fields in survivor.take():
                    self._take(codec.from_fields(fields))
            survivor.post([codec.body_to_fields(body) for body in self._drain() if body is not None])
        finally:
            loop.remove_reader(master)
            survivor.close()

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
        if self.state.emptied:
            self._outgoing.put_nowait(None)
        return resume

    def _fold(self, event: Event) -> None:
        self._seq = event.seq
        before = self.changes[-1] if self.changes else None
        self.state = advance(self.state, event)
        match event.body:
            case Judged():
                self._recorded += 1
            case Planned():
                self._planned = True
            case LogLine(claims_ready=True):
                self._claimed.set()
            case _:
                pass
        decision = self.state.decision
        if before is None or (before.verdict, before.phase) != (decision.verdict, decision.phase):
            self.changes.append(Judged(verdict=decision.verdict, phase=decision.phase, reason=decision.reason))

    def _take(self, event: Event) -> None:
        """A new event, and what follows from it: a change is told, wanted evidence is collected, a better plan is made."""
        self._fold(event)
        if len(self.changes) > self._told:
            self._post(*self.changes[self._told :])
            self._told = len(self.changes)
            self._write_result()
        match event.body:
            case Judged():
                return
            case Exited(root=True):  # what it said last tells why
                self._post_activity()
            case Emptied():
                self._outgoing.put_nowait(None)
            case _:
                pass
        plan = self.senses.replan(self.state) if self._planned else None
        if plan is not None:
            self._post(plan)
        for request in wants(self.state, self.state.policy):
            if request not in self._in_flight:
                self._in_flight[request] = asyncio.create_task(self._ask(request))

    def _read(self, frame: LogFrame) -> None:
        hidden = self._search.feed(frame.data, frame.offset)
        if hidden:
            self._post(SecretsInLog(ranges=hidden))
        launched = self.state.launched_wall or 0.0
        bodies = self.senses.log(frame.data, frame.offset, launched + frame.t)
        if frame.t and launched and time.time() - launched - frame.t > _LATE:
            bodies = [replace(body, read_at=round(frame.t, 3)) if isinstance(body, LogLine) else body for body in bodies]
        self._post(*bodies)

    def _post_activity(self) -> None:
        activity = self.senses.log_activity()
        if activity is not None:
            self._post(activity)

    async def _ask(self, request: Request) -> None:
        try:
            await self.senses.ask(request, self.state, self._post)
            await self._posted()
        except Exception as error:  # a probe that fails says so and never stops the run
            self._miss("a first token", error)
        finally:
            self._in_flight.pop(request, None)

    async def _posted(self) -> None:
        """Until what was emitted has come back as events, so that the same request is not wanted twice; a second at most."""
        mark = self._seq
        for _ in range(20):
            if self._outgoing.empty() and self._seq > mark:
                return
            await asyncio.sleep(0.05)

    def _miss(self, request: str, error: Exception) -> None:
        """A fault of ours, told once."""
        reason = f"{type(error).__name__}: {error}"
        if reason not in self._missed:
            self._missed.add(reason)
            self._post(Missed(request=request, reason=reason))

    def _post(self, *bodies: Body) -> None:
        for body in bodies:
            self._outgoing.put_nowait(codec.masked(body, self.secrets) if self.secrets and not isinstance(body, Counters) else body)

    def _drain(self, most: int = 500) -> list[Body | None]:
        drained: list[Body | None] = []
        while len(drained) < most and not self._outgoing.empty():
            drained.append(self._outgoing.get_nowait())
        return drained

    async def _send(self, stream: RunStream) -> None:
        """Outgoing events in batches, in order, as soon as there is a link; behind our last word a farewell, for which the keeper waits."""
        await stream.connected.wait()
        leaving = False
        while stream.link is not None:
            batch = [await self._outgoing.get(), *self._drain()]
            bodies = [body for body in batch if body is not None]
            try:
                await stream.link.post(bodies)
                if leaving:
                    self._write_result()
                    await stream.link.send({"bye": True})
                    return
                if None in batch:
                    leaving = True
                    await asyncio.sleep(_ECHO)
                    self._post_activity()
                    self._outgoing.put_nowait(None)
            except KeeperGone:
                self._post(*bodies)  # for the survivor to record
                return

    async def _sample(self) -> None:
        """Counters each second while starting, each ten seconds after ready."""
        loop = asyncio.get_running_loop()
        while not self.state.emptied:
            began = loop.time()
            interval = READY_INTERVAL if self._is_ready() else self.state.policy.sample_interval
            self._post_activity()
            try:
                self._post(*await self.senses.sample(self.state, interval))
            except Exception as error:  # a probe that fails says so and never stops the run
                self._miss("counters", error)
            while loop.time() - began < interval:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(_READY_LOOK if self._is_ready() else _CLAIM_INTERVAL, interval)):
                        await self._claimed.wait()
                        break
                if self._hurries() or (interval > 1 and not self._is_ready()):
                    break
            self._claimed.clear()

    def _hurries(self) -> bool:
        """Whether a port must be about to listen: it says so and none is seen yet."""
        claims = self.state.claims_since
        return claims is not None and self.state.listening_since is None and self.state.now - claims < _CLAIM_PATIENCE

    def _is_ready(self) -> bool:
        return self.state.ready_at is not None

    def _write_result(self) -> None:
        with contextlib.suppress(OSError):
            self.folder.write_json("result.json", result_document(result(self.state, str(self.folder.path))))
