"""One request on a connection of its own, and what came of it. Whatever the server does, the result is a value and never an exception.

Key insight: a generation has no time-out here, because a slow first token and a hung server look alike on the wire; who asks decides from
the run's other signs. Only connecting (TLS included) is bounded, since a port that accepts nothing has not taken the request.
"""

import asyncio
import json
import os
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from firsttoken import __version__
from firsttoken.observe.http_target import Target, reachable

if TYPE_CHECKING:
    import httpx

CONNECT_S = 10.0
MAX_BODY = 1 << 20
"""bytes of an answer that are read; eight tokens need a few thousand"""
_HINT_S = 1.0
_STREAM_MARKS = (b"data:", b"event:", b": ", b"id:", b"retry:")
_NO_HTTP = "the server took the request and gave no HTTP answer"
_KEEP = 64 * 1024
"""bytes of a body that the caller may look at afterwards, beside what it took chunk by chunk"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """`status` None: no answer at all. `body`: its first 64 KiB, or all up to 1 MiB where nobody took the chunks. `seconds`: to its end.

    `error` says what happened where the answer is missing, broken off or too big. `no_http`: the request was taken, and what came
    back, if anything, was no HTTP. `too_big`: its rest was not read.
    """

    status: int | None
    body: bytes
    seconds: float
    error: str | None = None
    no_http: bool = False
    too_big: bool = False
    event_stream: bool = False
    location: str | None = None


Take = Callable[[bytes, float], bool]
"""A chunk of an event stream and the seconds since the request; True: enough."""


async def exchange(
    target: Target, path: str, *, body: dict[str, Any] | None = None, deadline: float | None = None, take: Take | None = None
) -> Exchange:
    """GET, or POST where there is a body. `deadline`: seconds for all of it; None waits as long as the server does."""
    import httpx  # half of what an observer's start would cost; not before there is somebody to ask

    talk = _Talk(target, path, body, take)
    try:
        async with asyncio.timeout(deadline):
            await talk.run()
    except TimeoutError:
        talk.error = f"no whole answer within {deadline:g} s" if deadline is not None else "timed out"
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, ValueError) as exc:
        talk.error = _explain(exc, target, talk.status)
        talk.no_http = talk.error.startswith(_NO_HTTP)
    except Exception as exc:  # the last net under a third party's protocol stack: a probe that fails says so and never ends the run
        talk.error = f"the request failed in an unforeseen way: {type(exc).__name__}: {exc}"
    return talk.result()


async def speaks_tls(target: Target) -> bool:
    """Whether a handshake succeeds: tells a server that was asked by the wrong scheme. At most a second."""
    try:
        async with asyncio.timeout(_HINT_S):
            if target.unix_socket is not None:
                _, writer = await asyncio.open_unix_connection(target.unix_socket, ssl=_unverified(), server_hostname="localhost")
            else:
                _, writer = await asyncio.open_connection(reachable(target.host), target.port, ssl=_unverified())
            writer.transport.abort()
            return True
    except (TimeoutError, OSError, ValueError):
        return False


class _Talk:
    """The state of one exchange, so that what was read before a failure is not lost."""

    def __init__(self, target: Target, path: str, body: dict[str, Any] | None, take: Take | None) -> None:
        self._target, self._path, self._body, self._take = target, path, body, take
        self._began = time.monotonic()
        self._kept = bytearray()
        self._stream = False
        self._location: str | None = None
        self.status: int | None = None
        self.error: str | None = None
        self.no_http = self.too_big = False

    async def run(self) -> None:
        content = None if self._body is None else json.dumps(self._body).encode()
        method = "GET" if content is None else "POST"
        async with _client(self._target) as client, client.stream(method, self._target.wire_url + self._path, content=content) as response:
            self.status = response.status_code
            self._location = response.headers.get("location")
            kind = response.headers.get("content-type", "").lower()
            self._stream = self._take is not None and response.status_code == 200 and "event-stream" in kind
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                self.error = "the answer is compressed although we asked for it as it is"
                return
            await self._read(response)

    async def _read(self, response: "httpx.Response") -> None:
        read = 0
        async for chunk in response.aiter_raw():
            read += len(chunk)
            limit = _KEEP if self._stream else MAX_BODY
            if read == len(chunk) and self._take is not None and self.status == 200:
                self._stream = self._stream or chunk.startswith(_STREAM_MARKS)  # some send events under another content type
            self._kept += chunk[: max(0, limit - len(self._kept))]
            if self._stream and self._take is not None and self._take(chunk, time.monotonic() - self._began):
                return
            if read > MAX_BODY:
                self.error = f"the answer is bigger than {MAX_BODY >> 20} MiB; the rest was not read"
                self.too_big = True
                return

    def result(self) -> Exchange:
        return Exchange(
            status=self.status,
            body=bytes(self._kept),
            seconds=time.monotonic() - self._began,
            error=self.error,
            no_http=self.no_http,
            too_big=self.too_big,
            event_stream=self._stream,
            location=self._location,
        )


@asynccontextmanager
async def _client(target: Target) -> "AsyncIterator[httpx.AsyncClient]":
    """A client for one request: no proxy of the environment, no redirect, no connection that is kept."""
    import httpx

    headers = {
        "User-Agent": f"firsttoken/{__version__}",
        "Accept": "application/json, text/event-stream",
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        "Connection": "close",
    }
    if target.sends_key:
        headers["Authorization"] = f"Bearer {target.key}"
    verify = ssl.create_default_context() if target.verifies else _unverified()
    transport = httpx.AsyncHTTPTransport(verify=verify, uds=target.unix_socket, trust_env=False, retries=0)
    timeout = httpx.Timeout(None, connect=CONNECT_S)
    async with httpx.AsyncClient(transport=transport, trust_env=False, follow_redirects=False, timeout=timeout, headers=headers) as client:
        yield client


@cache
def _unverified() -> ssl.SSLContext:
    """One for all: to make one costs more than a request over loopback does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _explain(exc: Exception, target: Target, status: int | None) -> str:
    """What happened, in words. "could not connect" stands only where the server did not take the request."""
    import httpx

    words = _words(exc)
    if isinstance(exc, httpx.ConnectTimeout):
        return f"could not connect to {target.base_url} within {CONNECT_S:g} s: the port is open and nobody accepts"
    if isinstance(exc, httpx.ConnectError):
        if target.tls and ("SSL" in words or "TLS" in words):
            return f"could not connect: the TLS handshake failed ({words}); does {target.base_url} speak plain http?"
        return f"could not connect to {target.base_url}: {words}"
    if isinstance(exc, httpx.InvalidURL | UnicodeError):
        # the exception's own text may hold the key
        return f"the request could not be written: {type(exc).__name__} (is the address or the key malformed?)"
    if isinstance(exc, httpx.LocalProtocolError):
        return "the request could not be written: a header is not allowed (is the key malformed?)"
    if isinstance(exc, ValueError):
        return f"the request could not be sent: {words}"
    if status is not None:
        return f"the server broke off in mid-answer: {words}"
    return f"{_NO_HTTP}: {words}"


def _words(exc: BaseException) -> str:
    """The system's own words where there are some (httpx wraps them), else the first message of the chain that is not empty."""
    chain: list[BaseException] = []
    seen: BaseException | None = exc
    while seen is not None and seen not in chain and len(chain) < 8:
        chain.append(seen)
        seen = seen.__cause__ or seen.__context__
    codes = [one.errno for one in chain if isinstance(one, OSError) and one.errno and not isinstance(one, ssl.SSLError)]
    text = os.strerror(codes[-1]) if codes else next((str(one) for one in chain if str(one)), type(exc).__name__)
    # nothing here may read like a failed connect: the server had taken the request
    return re.sub(r"disconnected", "closed", re.sub(r"\bconnection\b", "line", text, flags=re.I), flags=re.I)
