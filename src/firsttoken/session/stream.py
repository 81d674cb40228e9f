"""A run's events and log as one live stream: what the folder holds first, then what the keeper sends, without a gap between.

Where no keeper answers, the folder alone is followed for as long as something of ours may still append to it.
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from math import inf

from firsttoken.history.runs import RunFolder
from firsttoken.launch.frames import LogFrame
from firsttoken.model import codec
from firsttoken.model.events import Event
from firsttoken.session.link import KeeperGone, Link

_POLL = 0.5
_CONNECT_WITHIN = 5.0


@dataclass(frozen=True, slots=True)
class Ended:
    """The stream is over. `orderly`: the keeper said farewell; else it is gone."""

    orderly: bool
    code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class Live:
    """All that was stored has been told; what follows is new."""


@dataclass(frozen=True, slots=True)
class TimeUp:
    """`until` has come. The stream goes on where it is asked again."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """So many bytes of the log are not told: they came faster than they were read."""

    bytes: int


@dataclass(frozen=True, slots=True)
class StoredFrame(LogFrame):
    """From the folder: it is written already. `t` is 0 where the index does not tell it."""


Item = Event | LogFrame | Live | TimeUp | Ended | Skipped


@dataclass(slots=True)
class RunStream:
    """`hello` names us to the keeper. `log_from` None: no log wanted. `link` is set while the keeper answers.

    `most_behind`: bytes of log that are read from the folder when the keeper's memory has moved past us; None: all of it.
    `until`: the loop's time at which a wait ends with `TimeUp`; may be set anew at any time.
    """

    folder: RunFolder
    hello: str
    log_from: int | None = None
    link: Link | None = None
    seq: int = -1
    most_behind: int | None = None
    until: float | None = None
    connected: asyncio.Event = field(default_factory=asyncio.Event)

    async def items(self, *, still_written: Callable[[], bool] = lambda: False) -> AsyncIterator[Item]:
        """`still_written` says, after the keeper's death, whether somebody still appends to the folder."""
        async for item in self._catch_up():
            yield item
        if await self._connect():
            yield Live()
            async for told in self._from_keeper():
                yield told
                if isinstance(told, Ended):
                    return
        for item in self._stored():
            yield item
        yield Live()
        while still_written():
            if self.until is not None and asyncio.get_running_loop().time() >= self.until:
                yield TimeUp()
            await asyncio.sleep(_POLL)
            for item in self._stored():
                yield item
        for item in self._stored():
            yield item
        yield Ended(False)

    def socket(self) -> str:
        return str(self.folder.keeper().get("socket") or self.folder.path / "control.sock")

    async def close(self) -> None:
        if self.link is not None:
            await self.link.close()
            self.link = None

    async def _connect(self) -> bool:
        now = asyncio.get_running_loop().time()
        seconds = _CONNECT_WITHIN if self.until is None else min(max(self.until - now, 0.1), _CONNECT_WITHIN)
        try:
            self.link = await Link.connect(self.socket(), self.hello, events_from=self.seq + 1, log_from=self.log_from, seconds=seconds)
        except KeeperGone:
            self.link = None
            return False
        self.connected.set()
        return True

    async def _from_keeper(self) -> AsyncIterator[Item]:
        """Until its farewell, or its death."""
        assert self.link is not None
        async for message in self.link.messages(lambda: self.until):
            if message is None:
                yield TimeUp()
            elif isinstance(message, LogFrame):
                fresh = self._fresh(message)
                if fresh is not None:
                    yield fresh
            elif "events" in message:
                for event in self._new(message["events"]):
                    yield event
            elif "behind" in message:
                async for item in self._catch_up(message["behind"].get("log_from")):
                    yield item
            elif "ended" in message:
                ended = message["ended"] or {}
                await self.close()
                yield Ended(True, ended.get("code"), ended.get("signal"))
                return
        await self.close()

    async def _catch_up(self, until: int | None = None) -> AsyncIterator[Item]:
        """From the folder what was not told, of the log the bytes before `until`. Lets others work between two blocks: it may be long."""
        if until is not None and self.log_from is not None and self.most_behind is not None and until - self.log_from > self.most_behind:
            yield Skipped(until - self.log_from)
            self.log_from = until
        for item in self._stored(until):
            yield item
            await asyncio.sleep(0)

    def _fresh(self, frame: LogFrame) -> LogFrame | None:
        """Without the bytes that were read from the folder already."""
        known = max(0, (self.log_from or 0) - frame.offset)
        if known >= len(frame.data):
            return None
        self.log_from = frame.offset + len(frame.data)
        return frame if not known else LogFrame(offset=frame.offset + known, t=frame.t, data=frame.data[known:])

    def _stored(self, until: int | None = None) -> Iterator[Event | LogFrame]:
        """Events and log that the folder holds and that were not told; of the log at most the bytes before `until`."""
        for event in self.folder.events():
            if event.seq > self.seq:
                self.seq = event.seq
                yield event
        if self.log_from is not None:
            times = self.folder.log_times()
            for offset, data in self.folder.log(self.log_from):
                if until is not None and offset >= until:
                    return
                self.log_from = offset + len(data)
                yield from _timed(offset, data, times)

    def _new(self, raw: list[dict[str, object]]) -> Iterator[Event]:
        for fields in raw:
            try:
                event = codec.from_fields(fields)
            except (KeyError, TypeError, ValueError):
                continue
            if event.seq > self.seq:
                self.seq = event.seq
                yield event


def _timed(offset: int, data: bytes, times: list[tuple[int, float]]) -> Iterator[StoredFrame]:
    """The block, cut where the index tells another time."""
    at = bisect_right(times, (offset, inf)) - 1
    begin = offset
    for index in range(at + 1, len(times) + 1):
        end = min(times[index][0], offset + len(data)) if index < len(times) else offset + len(data)
        if end > begin:
            yield StoredFrame(offset=begin, t=times[index - 1][1] if index > 0 else 0.0, data=data[begin - offset : end - offset])
        begin = end
        if begin >= offset + len(data):
            return
