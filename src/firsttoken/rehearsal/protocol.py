"""OpenAI's requests and answers: bodies in, checked; documents out.

Key insight: everything a client can get wrong is found here, before the engine sees it, and becomes a status and a sentence.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import MODEL_NAME
from .settings import MAX_DEPTH
from .shards import CONTEXT
from .tokens import VOCABULARY, encode

_MAX_SEED = 2**63 - 1


class Refused(Exception):
    """A request that is not served: HTTP status, error type, sentence."""

    def __init__(self, status: int, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.kind, self.sentence = status, kind, sentence

    def document(self) -> dict[str, Any]:
        return {"error": {"message": self.sentence, "type": self.kind, "code": self.status}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A checked request for a completion. `logprobs` is how many alternatives to show, None for no logprobs."""

    chat: bool
    tokens: tuple[int, ...]
    max_tokens: int
    temperature: float
    seed: int
    stop: tuple[str, ...]
    logprobs: int | None
    stream: bool
    include_usage: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Some new text of an answer, and how many tokens came with it. `marks` are (token, logprob, alternatives)."""

    text: str
    tokens: int
    marks: tuple[tuple[str, float, dict[str, float]], ...] = ()
    finish: str | None = None


def read_request(raw: bytes, *, chat: bool, default_seed: int) -> Wanted:
    """The request in a body; raises Refused where it is none or cannot be served."""
    try:
        body: Any = json.loads(raw)
    except (ValueError, RecursionError):
        raise _bad("the body is not JSON") from None
    fields = _mapping(body)
    if fields is None:
        raise _bad("the body is not a JSON object")
    return _checked(fields, chat, default_seed)


class Answer:
    """Builds the documents of one answer."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._id = f"{'chatcmpl' if wanted.chat else 'cmpl'}-{uuid.uuid4().hex}"
        self._created = int(time.time())

    def whole(self, chunks: Sequence[Chunk]) -> dict[str, Any]:
        text = "".join(chunk.text for chunk in chunks)
        marks = tuple(mark for chunk in chunks for mark in chunk.marks)
        choice: dict[str, Any] = {"index": 0, "logprobs": self._logprobs(marks, 0), "finish_reason": chunks[-1].finish if chunks else None}
        choice |= {"message": {"role": "assistant", "content": text}} if self._wanted.chat else {"text": text}
        return self._frame("chat.completion" if self._wanted.chat else "text_completion", [choice]) | {
            "usage": self._usage(sum(chunk.tokens for chunk in chunks))
        }

    def opening(self) -> dict[str, Any] | None:
        """The first event of a streamed chat."""
        if not self._wanted.chat:
            return None
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        return self._frame("chat.completion.chunk", [choice])

    def event(self, chunk: Chunk, before: int) -> dict[str, Any]:
        """A streamed chunk; `before` characters of the answer came earlier."""
        choice: dict[str, Any] = {"index": 0, "logprobs": self._logprobs(chunk.marks, before), "finish_reason": chunk.finish}
        choice |= {"delta": {"content": chunk.text}} if self._wanted.chat else {"text": chunk.text}
        return self._frame("chat.completion.chunk" if self._wanted.chat else "text_completion", [choice])

    def closing(self, tokens: int) -> dict[str, Any]:
        """The last event, with the usage."""
        frame = self._frame("chat.completion.chunk" if self._wanted.chat else "text_completion", [])
        return frame | {"usage": self._usage(tokens)}

    def _usage(self, tokens: int) -> dict[str, int]:
        prompt = len(self._wanted.tokens)
        return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}

    def _frame(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": MODEL_NAME, "choices": choices}

    def _logprobs(self, marks: tuple[tuple[str, float, dict[str, float]], ...], before: int) -> dict[str, Any] | None:
        if self._wanted.logprobs is None:
            return None
        if self._wanted.chat:
            content = [
                {"token": token, "logprob": logprob, "bytes": list(token.encode())}
                | {"top_logprobs": [{"token": t, "logprob": p, "bytes": list(t.encode())} for t, p in top.items()]}
                for token, logprob, top in marks
            ]
            return {"content": content}
        offsets = [before + sum(len(token) for token, _, _ in marks[:place]) for place in range(len(marks))]
        return {
            "tokens": [token for token, _, _ in marks],
            "token_logprobs": [logprob for _, logprob, _ in marks],
            "top_logprobs": [top for _, _, top in marks],
            "text_offset": offsets,
        }


def _checked(body: dict[str, Any], chat: bool, default_seed: int) -> Wanted:
    model = body.get("model", MODEL_NAME)
    if model != MODEL_NAME:
        raise Refused(404, "NotFoundError", f"The model {model!r} does not exist; there is {MODEL_NAME!r}.")
    tokens = tuple(encode(_conversation(body))) if chat else _prompt(body)
    wish = body.get("max_completion_tokens") if chat and body.get("max_completion_tokens") is not None else body.get("max_tokens")
    max_tokens = _number(wish, "max_tokens", 64 if chat else 16, 1, CONTEXT, whole=True)
    if len(tokens) + max_tokens + MAX_DEPTH + 1 > CONTEXT:
        raise _bad(f"{len(tokens)} prompt tokens and {max_tokens} new ones do not fit into the context of {CONTEXT - MAX_DEPTH - 1} tokens")
    if _number(body.get("n"), "n", 1, 1, 128, whole=True) != 1:
        raise _bad("n must be 1")
    options = _mapping(body.get("stream_options")) or {}
    return Wanted(
        chat=chat,
        tokens=tokens,
        max_tokens=int(max_tokens),
        temperature=_number(body.get("temperature"), "temperature", 0.0, 0, 100),
        seed=int(_number(body.get("seed"), "seed", default_seed, -_MAX_SEED, _MAX_SEED, whole=True)) & _MAX_SEED,
        stop=_stop(body.get("stop")),
        logprobs=_logprobs(body, chat),
        stream=body.get("stream") is True,
        include_usage=options.get("include_usage") is True,
    )


def _bad(sentence: str) -> Refused:
    return Refused(400, "BadRequestError", f"{sentence[0].upper()}{sentence[1:]}.")


def _prompt(body: dict[str, Any]) -> tuple[int, ...]:
    several = _list(body.get("prompt"))
    nested = several is not None and len(several) == 1 and not isinstance(several[0], int)
    prompt: Any = several[0] if several is not None and nested else body.get("prompt")
    if isinstance(prompt, str):
        return tuple(encode(prompt))
    tokens = _list(prompt)
    if tokens and all(type(token) is int and 0 <= token < VOCABULARY for token in tokens):
        return tuple(tokens)
    raise _bad("prompt must be a text or a list of tokens")


def _conversation(body: dict[str, Any]) -> str:
    lines: list[str] = []
    for message in map(_mapping, _list(body.get("messages")) or []):
        if message is None or not isinstance(message.get("role"), str):
            raise _bad("a message must have a role and a content")
        content: Any = message.get("content") or ""
        parts = _list(content)
        if parts is not None:
            content = "".join(str(part.get("text", "")) for part in map(_mapping, parts) if part is not None)
        lines.append(f"{message['role']}: {content}\n")
    if not lines:
        raise _bad("messages must be a list of messages")
    return "".join(lines) + "assistant:"


def _stop(stop: Any) -> tuple[str, ...]:
    stops = [stop] if isinstance(stop, str) else _list(stop or [])
    if stops is None or len(stops) > 16 or not all(isinstance(text, str) and text for text in stops):
        raise _bad("stop must be a text or a list of up to 16 texts")
    return tuple(stops)


def _list(value: Any) -> list[Any] | None:
    if not isinstance(value, list):
        return None
    return list(value)  # pyright: ignore[reportUnknownArgumentType]  # of anything


def _mapping(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    return dict(value)  # pyright: ignore[reportUnknownArgumentType]  # JSON: of text and anything


def _logprobs(body: dict[str, Any], chat: bool) -> int | None:
    wish = body.get("logprobs")
    if not chat:
        return None if wish is None or wish is False else int(_number(wish, "logprobs", 0, 0, 20, whole=True))
    return int(_number(body.get("top_logprobs"), "top_logprobs", 0, 0, 20, whole=True)) if wish else None


def _number(value: Any, name: str, default: float, low: float, high: float, *, whole: bool = False) -> float:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not low <= value <= high:
        raise _bad(f"{name} must be a {'whole number' if whole else 'number'} from {low:g} to {high:g}")
    return value
