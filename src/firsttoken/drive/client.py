"""One streamed request, as a user's client would see it: when it was sent, when its tokens came, what they say, how many they were.

The HTTP is httpx's. Of our own is what it does not have: server-sent events, and the clock read at each of them.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from firsttoken.drive.prompts import Prompt

CONNECT = 10.0
SILENCE = 120.0
"""Seconds for which an answer may say nothing. A server that computes a long prompt is silent; one that died has closed its socket."""
SHORT = 10.0
"""Seconds for pages: lists and metrics."""
MOST = 16 << 20
"""bytes of one answer; what is longer is no answer to a request of ours"""
_TEXTS = ("reasoning_content", "reasoning", "content", "text")


class LoadError(Exception):
    """A request was not answered as it must be for measuring. `status` where the server refused it."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status

    @property
    def refused(self) -> bool:
        """Whether the request itself was at fault, so that another form of it may do."""
        return self.status is not None and 400 <= self.status < 500 and self.status not in (401, 403, 408, 429)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """How one server is asked. `chat` or `completions` is the path in use; `body` what each request adds. `key` is never told."""

    url: str
    unix_socket: str | None = None
    root_path: str = ""
    verify: bool = False
    key: str | None = field(default=None, repr=False)
    model: str | None = None
    chat: str | None = "/v1/chat/completions"
    completions: str | None = "/v1/completions"
    models: str | None = "/v1/models"
    metrics: str | None = "/metrics"
    body: Mapping[str, Any] = field(default_factory=dict)
    as_chat: bool = True

    @property
    def route(self) -> str | None:
        return self.chat if self.as_chat else self.completions

    def client(self, most: int = 64) -> httpx.AsyncClient:
        """At most `most` connections. No proxy and no .netrc is heeded: what is measured is the server."""
        transport = httpx.AsyncHTTPTransport(
            uds=self.unix_socket, verify=self.verify, limits=httpx.Limits(max_connections=most, max_keepalive_connections=most)
        )
        timeout = httpx.Timeout(SILENCE, connect=CONNECT)
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return httpx.AsyncClient(base_url=self.url + self.root_path, transport=transport, timeout=timeout, headers=headers, trust_env=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer. Times are of the monotonic clock. `events`: how many pieces of text came; `counted`: the server told `tokens` itself."""

    prompt: str
    text: str
    tokens: int
    counted: bool
    events: int
    asked: float
    first: float
    last: float

    @property
    def first_token_s(self) -> float:
        return self.first - self.asked

    @property
    def inter_token_s(self) -> float | None:
        return (self.last - self.first) / (self.tokens - 1) if self.tokens > 1 and self.last > self.first else None


async def ask(
    client: httpx.AsyncClient, server: Server, prompt: Prompt, *, tokens: int, temperature: float, seed: int, fixed: bool = True
) -> Reply:
    """LoadError where no whole answer comes. `fixed`: with what makes the answer as long as asked."""
    wish: dict[str, Any] = {
        **({"model": server.model} if server.model is not None else {}),
        **({"messages": [{"role": "user", "content": prompt.text}]} if server.as_chat else {"prompt": prompt.text}),
        "max_tokens": tokens,
        "temperature": temperature,
        **({"seed": seed} if temperature > 0 else {}),
        "stream": True,
        "stream_options": {"include_usage": True},
        **(server.body if fixed else {}),
    }
    asked = time.perf_counter()
    first = last = 0.0
    texts: list[str] = []
    told: int | None = None
    try:
        async with client.stream("POST", server.route or "", json=wish) as answer:
            if answer.status_code != 200:
                raise _refusal(answer.status_code, await _whole(answer))
            async for event in _events(answer):
                now = time.perf_counter()
                piece, usage = _read(event)
                told = usage if usage is not None else told
                if piece is not None:
                    first, last = first or now, now
                    texts.append(piece)
    except httpx.HTTPError as error:
        raise LoadError(_said(error, prompt)) from error
    if not texts:
        raise LoadError(f"the answer to {prompt.name!r} held no token")
    return Reply(
        prompt=prompt.name,
        text="".join(texts),
        tokens=told if told is not None else len(texts),
        counted=told is not None,
        events=len(texts),
        asked=asked,
        first=first,
        last=last,
    )


async def fetch(client: httpx.AsyncClient, path: str) -> bytes | None:
    """A small page; None where there is none."""
    try:
        async with asyncio.timeout(3 * SHORT), client.stream("GET", path, timeout=SHORT) as answer:
            return await _whole(answer) if answer.status_code == 200 else None
    except (httpx.HTTPError, LoadError, TimeoutError):
        return None


async def choices(client: httpx.AsyncClient, server: Server, prompt: Prompt, *, tokens: int) -> list[tuple[str, float | None]] | None:
    """A greedy answer token by token: its text, and by how much it was preferred to the next best (difference of logarithms).

    None where the server does not tell probabilities or does not answer.
    """
    wish: dict[str, Any] = {
        **({"model": server.model} if server.model is not None else {}),
        **({"messages": [{"role": "user", "content": prompt.text}]} if server.as_chat else {"prompt": prompt.text}),
        **({"logprobs": True, "top_logprobs": 2} if server.as_chat else {"logprobs": 2}),
        "max_tokens": tokens,
        "temperature": 0,
        **server.body,
    }
    try:
        answer = await client.post(server.route or "", json=wish)
        return _choices(answer.json()) if answer.status_code == 200 else None
    except (httpx.HTTPError, ValueError, RecursionError):
        return None


async def _events(answer: httpx.Response) -> AsyncIterator[Any]:
    """The JSON of each `data:` line; LoadError where the server tells an error in the stream."""
    async for line in _lines(answer):
        if not line.startswith(b"data:"):
            continue
        text = line[5:].strip()
        if text == b"[DONE]":
            return
        try:
            event = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and event.get("error"):
            raise LoadError(f"the server broke off its answer: {str(event['error'])[:300]}")
        yield event


async def _lines(answer: httpx.Response) -> AsyncIterator[bytes]:
    """LoadError where the answer grows without an end."""
    size, rest = 0, b""
    async for chunk in answer.aiter_bytes():
        size += len(chunk)
        if size > MOST:
            raise LoadError(f"the answer has more than {MOST >> 20} MiB and goes on")
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
    yield rest


async def _whole(answer: httpx.Response) -> bytes:
    """LoadError where it grows without an end."""
    return b"\n".join([line async for line in _lines(answer)])


def _read(event: Any) -> tuple[str | None, int | None]:
    """New text of an event, and the number of tokens of the whole answer where it is told. Thoughts count as text.

    Tokens may have no text of their own (half a character, a special token): then it is empty. None: the event brings no token.
    """
    if not isinstance(event, dict):
        return None, None
    usage = event.get("usage")
    told = usage.get("completion_tokens") if isinstance(usage, dict) else None
    rows = event.get("choices")
    first = rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], dict) else {}
    delta = first.get("delta")
    holder = delta if isinstance(delta, dict) else first
    pieces = [piece for name in _TEXTS if isinstance(piece := holder.get(name), str)]
    text = "".join(pieces) if pieces else None
    if text == "" and ("role" in holder or first.get("finish_reason")):  # an opening or a closing
        text = None
    return text, told if isinstance(told, int) and told > 0 else None


def _choices(answer: Any) -> list[tuple[str, float | None]] | None:
    rows = answer.get("choices") if isinstance(answer, dict) else None
    told = rows[0].get("logprobs") if isinstance(rows, list) and rows and isinstance(rows[0], dict) else None
    if not isinstance(told, dict):
        return None
    if isinstance(told.get("content"), list):
        return [
            (str(row.get("token", "")), _margin([top.get("logprob") for top in row.get("top_logprobs") or () if isinstance(top, dict)]))
            for row in told["content"]
            if isinstance(row, dict)
        ]
    tops = told.get("top_logprobs")
    if not isinstance(told.get("tokens"), list) or not isinstance(tops, list):
        return None
    return [
        (str(token), _margin(list(top.values()) if isinstance(top, dict) else [])) for token, top in zip(told["tokens"], tops, strict=False)
    ]


def _margin(values: Sequence[Any]) -> float | None:
    found = sorted((value for value in values if isinstance(value, int | float)), reverse=True)
    return float(found[0] - found[1]) if len(found) > 1 else None


def _refusal(status: int, content: bytes) -> LoadError:
    text = " ".join(content[:2000].decode("utf8", "replace").split())[:300]
    return LoadError(f"the server answered {status}: {text}", status)


def _said(error: httpx.HTTPError, prompt: Prompt) -> str:
    what = str(error) or type(error).__name__
    if isinstance(error, httpx.ReadTimeout):
        return f"no token came for {SILENCE:.0f} s in the answer to {prompt.name!r}"
    return f"the connection broke while {prompt.name!r} was answered: {what}"
