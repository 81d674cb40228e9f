"""The client side of a keeper's control socket, for faces and observers. Every wait on the keeper has a deadline but the stream itself."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

from firsttoken.launch.frames import Decoder, LogFrame, encode_json
from firsttoken.model.codec import body_to_fields
from firsttoken.model.events import Body

_DEADLINE = 5.0
_CHUNK = 1 << 18


class KeeperGone(ConnectionError):
    """The keeper does not answer: it ended, was killed, or never started."""


class Link:
    """One connection. `messages` gives JSON objects as dicts and log frames as they are, in the keeper's order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(
        cls, socket: str | Path, hello: str, *, events_from: int | None, log_from: int | None, seconds: float = _DEADLINE
    ) -> "Link":
        """KeeperGone where nobody answers on `socket` within so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                reader, writer = await asyncio.open_unix_connection(socket)
        except (OSError, TimeoutError) as error:
            raise KeeperGone(f"no keeper answers on {socket}: {error}") from error
        link = cls(reader, writer)
        await link.send({"hello": hello, "events_from": events_from, "log_from": log_from})
        return link

    async def send(self, message: dict[str, Any]) -> None:
        try:
            self._writer.write(encode_json(message))
            async with asyncio.timeout(_DEADLINE):
                await self._writer.drain()
        except (OSError, TimeoutError) as error:
            raise KeeperGone(f"the keeper does not take our message: {error}") from error

    async def post(self, bodies: Iterable[Body]) -> None:
        fields = [body_to_fields(body) for body in bodies]
        if fields:
            await self.send({"post": fields})

    async def messages(self, until: Callable[[], float | None] = lambda: None) -> AsyncIterator[dict[str, Any] | LogFrame | None]:
        """Ends when the keeper closes, and where what comes is not made of frames.

        `until` is asked at each wait for the loop's time at which to yield None instead; the messages go on after that.
        """
        decoder = Decoder()
        while decoder.broken is None:
            try:
                async with asyncio.timeout_at(until()):
                    data = await self._reader.read(_CHUNK)
            except TimeoutError:
                yield None
                continue
            except OSError:
                return
            if not data:
                return
            for frame in decoder.feed(data):
                yield frame if isinstance(frame, LogFrame) else frame.value

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_DEADLINE):
                await self._writer.wait_closed()
