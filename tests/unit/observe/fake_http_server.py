"""A small real HTTP server on loopback (or a unix socket) that answers as a test says, well or badly."""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from firsttoken.model.events import Body
from firsttoken.observe.http import FirstTokenProber
from firsttoken.observe.http_target import Target

SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Reply = bytes | Callable[[Request], bytes] | Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


def http(status: int, body: bytes | str, kind: str = "text/plain", extra: str = "") -> bytes:
    raw = body.encode() if isinstance(body, str) else body
    return f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(raw)}\r\n{extra}Connection: close\r\n\r\n".encode() + raw


def js(payload: object, status: int = 200) -> bytes:
    return http(status, json.dumps(payload), "application/json")


def sse(*payloads: object, done: bool = True, kind: str = "text/event-stream") -> bytes:
    lines = [f"data: {payload if isinstance(payload, str) else json.dumps(payload)}\n\n" for payload in payloads]
    body = "".join(lines) + ("data: [DONE]\n\n" if done else "")
    return f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n{body}".encode()


def said(*texts: str, **more: object) -> list[object]:
    """The chunks of a streamed completion."""
    chunks: list[object] = [{"choices": [{"index": 0, "text": text, **more}]} for text in texts]
    return [*chunks, {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}]


MODELS = js({"object": "list", "data": [{"id": "tiny", "object": "model"}]})
NO_ROUTE = js({"detail": "Not Found"}, 404)
HEALTHY = {"/v1/models": MODELS, "/health": http(200, ""), "/v1/completions": sse(*said(" Paris", ",", " a", " city", " of"))}


class FakeServer:
    """`async with FakeServer({...}) as server:`; what was asked stands in `requests`. Unknown paths get a 404 like FastAPI's."""

    def __init__(self, routes: Mapping[str, Reply], *, tls: ssl.SSLContext | None = None, path: str | None = None) -> None:
        self.routes, self._tls, self._path = routes, tls, path
        self.requests: list[Request] = []
        self._arrived = asyncio.Condition()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def __aenter__(self) -> "FakeServer":
        if self._path is not None:
            self._server = await asyncio.start_unix_server(self._serve, self._path)
        else:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
            self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        for writer in self._writers:
            writer.transport.abort()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=SECONDS)
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            first = await reader.readexactly(1)
            if first == b"\x16":  # a TLS handshake, to see whether it would be understood
                writer.close()
                return
            head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, path, _ = head[0].split(" ", 2)
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            request = Request(method=method, path=path, headers=headers, body=body)
            self.requests.append(request)
            async with self._arrived:
                self._arrived.notify_all()
            reply = self.routes.get(path, NO_ROUTE)
            if not isinstance(reply, bytes):
                made = reply(request, writer) if reply.__code__.co_argcount == 2 else reply(request)
                reply = made if isinstance(made, bytes) else (await made or b"")
            writer.write(reply)
            await writer.drain()
        writer.close()

    async def asked(self, path: str) -> None:
        """Waits until that path was asked."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: any(request.path == path for request in self.requests))

    def target(self, **more: Any) -> Target:
        return Target(host="127.0.0.1", port=self.port, **more)

    def prober(self, events: list[Body] | None = None, **more: Any) -> FirstTokenProber:
        return FirstTokenProber(self.target(**more), ([] if events is None else events).append)
