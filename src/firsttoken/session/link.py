"""The client side of a keeper's control socket, for faces and observers. Every wait on the keeper has a deadline but the stream itself."""

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firsttoken.model.codec import body_to_fields
from firsttoken.model.events import Body

_HEAD = struct.Struct(">IB")
_LOG = struct.Struct(">Qd")
_LARGEST = 64 << 20
_DEADLINE = 5.0


class KeeperGone(ConnectionError):
    """The keeper does not answer: it ended, was killed, or never started."""


@dataclass(frozen=True, slots=True)
class LogBytes:
    offset: int
    t: float
    data: bytes


class Link:
    """One connection. `messages` gives JSON objects as dicts and log frames as `LogBytes`, in the keeper's order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, socket: str | Path, hello: str, *, events_from: int | None, log_from: int | None) -> "Link":
        """KeeperGone where nobody listens on `socket`."""
        try:
            async with asyncio.timeout(_DEADLINE):
                reader, writer = await asyncio.open_unix_connection(socket)
        except (OSError, TimeoutError) as error:
            raise KeeperGone(f"no keeper answers on {socket}: {error}") from error
        link = cls(reader, writer)
        await link.send({"hello": hello, "events_from": events_from, "log_from": log_from})
        return link

    async def send(self, message: dict[str, Any]) -> None:
        payload = json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode("utf8", "replace")
        try:
            self._writer.write(_HEAD.pack(len(payload), ord("J")) + payload)
            async with asyncio.timeout(_DEADLINE):
                await self._writer.drain()
        except (OSError, TimeoutError) as error:
            raise KeeperGone(f"the keeper does not take our message: {error}") from error

    async def post(self, bodies: Iterable[Body]) -> None:
        fields = [body_to_fields(body) for body in bodies]
        if fields:
            await self.send({"post": fields})

    async def messages(self) -> AsyncIterator[dict[str, Any] | LogBytes]:
        """Ends when the keeper closes; what it cannot have meant (an oversized or broken frame) ends it too."""
        try:
            while True:
                length, kind = _HEAD.unpack(await self._reader.readexactly(_HEAD.size))
                if length > _LARGEST:
                    return
                payload = await self._reader.readexactly(length)
                if kind == ord("L"):
                    offset, t = _LOG.unpack_from(payload)
                    yield LogBytes(offset, t, payload[_LOG.size :])
                elif kind == ord("J"):
                    message = json.loads(payload)
                    if isinstance(message, dict):
                        yield message
        except (asyncio.IncompleteReadError, OSError, ValueError):
            return

    async def ask_state(self) -> dict[str, Any]:
        """The keeper's own state; only on a link that asked for neither events nor log."""
        await self.send({"ask": "state"})
        try:
            async with asyncio.timeout(_DEADLINE):
                async for message in self.messages():
                    if isinstance(message, dict) and "state" in message:
                        state: dict[str, Any] = message["state"]
                        return state
        except TimeoutError as error:
            raise KeeperGone("the keeper does not tell its state") from error
        raise KeeperGone("the keeper closed the connection")

    async def close(self) -> None:
        self._writer.close()
        try:
            async with asyncio.timeout(_DEADLINE):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            pass
