"""A server that answers as it was told to, over real HTTP: streams of events, refusals, connections that break."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

Script = Callable[[str, dict[str, Any]], "Told"]
"""From a path and a body to what is answered."""


@dataclass(frozen=True)
class Told:
    """`events`: pieces of a stream, `body`: a plain answer. `breaks`: the connection is closed in the middle."""

    status: int = 200
    events: tuple[Any, ...] = ()
    body: Any = None
    breaks: bool = False


@dataclass
class Fake:
    url: str
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


def text_events(words: list[str], *, chat: bool, usage: int | None) -> tuple[Any, ...]:
    """An answer in pieces, with the number of tokens at the end where there is one."""
    pieces: list[Any] = [{"choices": [{"delta": {"content": word}} if chat else {"text": word}]} for word in words]
    return (*pieces, *([{"choices": [], "usage": {"completion_tokens": usage}}] if usage is not None else []), "[DONE]")


@asynccontextmanager
async def fake(script: Script) -> AsyncIterator[Fake]:
    made = Fake("")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (line := await reader.readline()).strip():
                path = line.split()[1].decode()
                length = 0
                while (header := await reader.readline()).strip():
                    name, _, value = header.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                body = json.loads(await reader.readexactly(length)) if length else {}
                made.asked.append((path, body))
                told = script(path, body)
                writer.write(_answer(told))
                await writer.drain()
                if told.breaks:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
        await server.wait_closed()


def _answer(told: Told) -> bytes:
    if not told.events:
        content = told.body if isinstance(told.body, bytes) else json.dumps(told.body).encode()
        return f"HTTP/1.1 {told.status} X\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content
    texts = [f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode() for event in told.events]
    chunks = b"".join(f"{len(text):x}\r\n".encode() + text + b"\r\n" for text in texts)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + chunks + (b"" if told.breaks else b"0\r\n\r\n")
