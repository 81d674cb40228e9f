"""The recorder of a run without a keeper: it lives in our own process, gives events their place, writes them, and hands them on.

What was logged before we came keeps the times that its lines tell, so the list begins at the process's own start; the event
`observer_started` ends that past, and a decision counts from there on. The server is watched and never touched: how it ended is asked
of the kernel through a descriptor of the process, which newer kernels answer to others than its parent too.
"""

import asyncio
import contextlib
import fcntl
import os
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from firsttoken.history.runs import RunFolder
from firsttoken.hosts.procfs import Procfs
from firsttoken.launch.folder import Folder
from firsttoken.launch.frames import LogFrame
from firsttoken.launch.recorder import Recorder
from firsttoken.model.codec import encode
from firsttoken.model.events import (
    Body,
    Emptied,
    Event,
    Exited,
    Gap,
    Judged,
    Launched,
    LogLine,
    MemberGone,
    MemberSeen,
    ObserverStarted,
    RecordingStopped,
    Tick,
)
from firsttoken.model.process import ProcessKey
from firsttoken.model.words import Verdict
from firsttoken.session.attaching.past import PastClock
from firsttoken.session.link import Link
from firsttoken.session.stream import Ended, Item, Live, RunStream, TimeUp

_LOOK = 0.25
_TICK, _CALM_TICK = 1.0, 10.0
_STATUS_WITHIN = 2.0
"""Seconds. A process that has ended is told as such only when its parent has heard of it."""
_LAST_WORDS = 5.0
_WRITTEN_WITHIN = 5.0
_GET_INFO = 0xC040FF0B
"""PIDFD_GET_INFO for the first 64 bytes of struct pidfd_info (Linux 6.13; how a process ended: 6.15)"""
_INFO_EXIT = 1 << 3


@dataclass(slots=True)
class OwnStream(RunStream):
    """One reader's view of the record, from its first event."""

    waiting: "asyncio.Queue[Item]" = field(default_factory=asyncio.Queue)
    with_log: bool = False

    async def items(self, *, still_written: Callable[[], bool] = lambda: False) -> AsyncIterator[Item]:
        while True:
            try:
                async with asyncio.timeout_at(self.until):
                    item = await self.waiting.get()
            except TimeoutError:
                yield TimeUp()
                continue
            yield item
            if isinstance(item, Ended):
                return


class OwnLink(Link):
    """The observer's way into the record, in place of a keeper's socket."""

    def __init__(self, record: "OwnRecord") -> None:
        self._record = record

    async def send(self, message: dict[str, Any]) -> None:
        if message.get("bye"):
            self._record.last_word.set()

    async def post(self, bodies: Iterable[Body]) -> None:
        self._record.post(bodies)
        await asyncio.sleep(0)

    async def close(self) -> None:
        return None


class OwnRecord:
    """`age_s`: how long the server has run already. `root` None: no process of it can be seen. Make it inside the loop."""

    def __init__(self, folder: RunFolder, *, root: ProcessKey | None, age_s: float, clock: PastClock, procfs: Procfs | None = None) -> None:
        place = Folder(folder.path)
        place.prepare()
        self.last_word = asyncio.Event()
        self.log_end = 0
        self._folder, self._root, self._clock = folder, root, clock
        self._procfs = procfs or Procfs()
        self._origin = time.monotonic() - age_s
        self._node = os.uname().nodename
        self._recorder = Recorder(place, lambda: None)
        self._streams: list[OwnStream] = []
        self._seq = 0
        self._past: float | None = 0.0
        """of the last event that was told from the past; None once we are live"""
        self._calm = False
        self._members: set[ProcessKey] = set()

    @property
    def t(self) -> float:
        return time.monotonic() - self._origin

    def stream(self, *, log: bool = False) -> OwnStream:
        """For one reader; ask before anything is recorded."""
        stream = OwnStream(self._folder, "attach", with_log=log)
        stream.link = OwnLink(self)
        stream.connected.set()
        self._streams.append(stream)
        return stream

    def log(self, data: bytes) -> None:
        """What the server wrote, as it was read."""
        frame = LogFrame(offset=self.log_end, t=self.t, data=data)
        self.log_end += len(data)
        self._recorder.log(frame.offset, frame.t, time.time(), data)
        for stream in self._streams:
            if stream.with_log:
                stream.waiting.put_nowait(frame)

    def post(self, bodies: Iterable[Body]) -> None:
        for body in bodies:
            self._record(body)

    async def keep(self) -> None:
        """Ticks, and the server's end. Returns when no process of it is left and the observer has said its last word."""
        pidfd = self._pidfd()
        try:
            next_tick = 0.0
            while self._root is None or self._procfs.alive(self._root.pid, self._root.start):
                if self._past is None and time.monotonic() >= next_tick:
                    self._record(Tick())
                    self._tell_news()
                    next_tick = time.monotonic() + (_CALM_TICK if self._calm else _TICK)
                await asyncio.sleep(_LOOK)
            await self._root_ended(self._root, pidfd)
        finally:
            if pidfd is not None:
                os.close(pidfd)

    def close(self) -> None:
        """Writes what is left to write, for a few seconds at most."""
        self._tell_news()
        self._recorder.close(_WRITTEN_WITHIN)

    async def _root_ended(self, root: ProcessKey, pidfd: int | None) -> None:
        how = await self._how(root, pidfd)
        if how is not None:
            self._record(how)
        if root in self._members:
            self._record(MemberGone(process=root))
        while any(self._procfs.alive(key.pid, key.start) for key in self._members):
            await asyncio.sleep(_TICK)
            self._record(Tick())
        self._record(Emptied())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                await self.last_word.wait()
        code, signal = (how.code, how.signal) if how is not None else (None, None)
        for stream in self._streams:
            stream.waiting.put_nowait(Ended(True, code, signal))

    async def _how(self, root: ProcessKey, pidfd: int | None) -> Exited | None:
        """None where only its parent can know."""
        until = time.monotonic() + _STATUS_WITHIN
        while True:
            status = _exit_status(pidfd)
            stat = self._procfs.stat(root.pid)
            dead = stat is not None and stat.start == root.start
            if status is None and dead and stat is not None and stat.exit_status > 0:
                status = stat.exit_status
            if status is not None:
                signal = status & 0x7F
                return (
                    Exited(process=root, signal=signal, root=True) if signal else Exited(process=root, code=status >> 8 & 0xFF, root=True)
                )
            if time.monotonic() > until or (not dead and pidfd is None):
                return None
            await asyncio.sleep(_LOOK / 5)

    def _pidfd(self) -> int | None:
        if self._root is None:
            return None
        try:
            return os.pidfd_open(self._root.pid)
        except (OSError, AttributeError):
            return None

    def _tell_news(self) -> None:
        news = self._recorder.news()
        if news.stopped is not None:
            self._record(RecordingStopped(reason=news.stopped))
        for what, lost in (("log", news.lost_log), ("events", news.lost_events), ("old log", news.dropped)):
            if lost:
                reason = "made room for what came later" if what == "old log" else "the disk was too slow, or has failed"
                self._record(Gap(what=what, amount=lost, reason=reason))

    def _record(self, body: Body) -> None:
        match body:
            case MemberSeen():
                self._members.add(body.member.process)
            case MemberGone() | Exited():
                self._members.discard(body.process)
            case Judged():
                self._calm = self._calm or body.verdict is Verdict.READY
            case ObserverStarted():
                self._past = None
            case _:
                pass
        self._seq += 1
        t = self._time(body)
        event = Event(seq=self._seq, t=t, wall=time.time() - (self.t - t), node=self._node, body=body)
        self._recorder.event(encode(event))
        for stream in self._streams:
            stream.seq = event.seq
            stream.waiting.put_nowait(event)
            if isinstance(body, ObserverStarted):
                stream.waiting.put_nowait(Live())

    def _time(self, body: Body) -> float:
        if isinstance(body, Launched):
            return 0.0
        if self._past is None:
            return self.t
        if isinstance(body, LogLine):
            self._past = max(self._past, self._clock.t(body.stamp, self.t))
        return self._past


def _exit_status(pidfd: int | None) -> int | None:
    """As waitpid gives it; None where the kernel does not tell, or not yet."""
    if pidfd is None:
        return None
    buffer = bytearray(64)
    struct.pack_into("=Q", buffer, 0, _INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _GET_INFO, buffer)
    except (OSError, ValueError):
        return None
    (mask,) = struct.unpack_from("=Q", buffer, 0)
    (status,) = struct.unpack_from("=i", buffer, 60)
    return int(status) if mask & _INFO_EXIT else None
