"""From the bytes of an answer to tokens: server-sent events, plain JSON or JSON lines, in the shapes that servers really send. Pure.

Key insight: a line that is complete JSON by itself is taken at once, whether or not the blank line that should end it ever comes; so the
time of the first token is that of its bytes, and sloppy streams are read like proper ones. Nothing here raises on any bytes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from firsttoken.observe.sanity import Generation

DONE: Final = "[DONE]"
_EARLY_TRIES = 32
"""data lines of one event after which it is only read whole, at its blank line: reading at each line is quadratic"""
_NATURAL_ENDS = frozenset({"stop", "length", "eos", "eos_token", "stop_sequence", "end_turn", "limit", "word", "max_tokens"})
_TEXT_KEYS = ("text", "generated_text", "content", "response", "output_text", "output")
_DELTA_KEYS = ("reasoning_content", "reasoning", "thinking", "content", "text")
_COUNT_KEYS = ("completion_tokens", "output_tokens", "generated_tokens", "eval_count", "tokens_predicted")


class StreamParser:
    """Bytes in, payloads out. A payload is parsed JSON, or a string where it was none (`[DONE]`, prose)."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._after_cr = False
        self._data: list[str] = []
        self._first = True

    def feed(self, chunk: bytes) -> list[object]:
        found: list[object] = []
        if not chunk:
            return found
        ends_in_cr = chunk.endswith(b"\r")
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = ends_in_cr
        *whole, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for piece in whole:
            self._line += piece
            self._take_line(bytes(self._line), found)
            self._line.clear()
        self._line += rest
        return found

    def finish(self) -> list[object]:
        """What was left without a line end or a blank line."""
        found: list[object] = []
        if self._line:
            self._take_line(bytes(self._line), found)
            self._line.clear()
        self._flush(found)
        return found

    def _take_line(self, raw: bytes, found: list[object]) -> None:
        if self._first:
            raw, self._first = raw.removeprefix(b"\xef\xbb\xbf"), False
        line = raw.decode("utf8", "replace")
        if not line:
            self._flush(found)
            return
        name, _, value = line.partition(":")
        if name != "data":
            return  # a comment (":"), event, id, retry: the payload says all that matters
        value = value.removeprefix(" ")
        if not self._data and value.strip() == DONE:
            found.append(DONE)
            return
        self._data.append(value)
        if len(self._data) <= _EARLY_TRIES and value.rstrip()[-1:] in ("}", "]"):
            payload = parse("\n".join(self._data))
            if isinstance(payload, dict | list):
                found.append(payload)
                self._data.clear()

    def _flush(self, found: list[object]) -> None:
        if self._data:
            text = "\n".join(self._data)
            payload = parse(text)
            found.append(text if payload is None else payload)
            self._data.clear()


def parse(text: str) -> object:
    """JSON, with NaN and Infinity as engines write them; None where it is none (or null)."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value


def parse_whole(body: bytes) -> list[object]:
    """A body that was not a stream of events: one JSON value, or one a line."""
    text = body.decode("utf8", "replace").removeprefix("\ufeff").strip()
    whole = parse(text)
    if whole is not None:
        return [whole]
    lines = [parse(line) for line in text.splitlines() if line.strip()]
    return [line for line in lines if line is not None] if lines and isinstance(lines[0], dict) else []


@dataclass(slots=True)
class Reading:
    """What the payloads of one answer say so far. `first_at`: seconds to the first token. `text_path`: where the text is (`a.0.b`)."""

    text_path: str | None = None
    pieces: list[str] = field(default_factory=list)
    units: list[str] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    numbers: list[float | None] = field(default_factory=list)
    counted: int | None = None
    finish: str | None = None
    error: str | None = None
    done: bool = False
    first_at: float | None = None

    @property
    def anything(self) -> bool:
        return bool(self.done or self.error or self.finish or self.pieces or self.units or self.numbers)

    def take(self, payload: object, at: float) -> None:
        if payload == DONE:
            self.done = True
        elif isinstance(payload, list):
            for item in payload[:64]:
                if isinstance(item, Mapping):
                    self._take_object(item)
                elif isinstance(item, list):
                    self._take_numbers(item)
        elif isinstance(payload, Mapping):
            self._take_object(payload)
        if self.first_at is None and (self.pieces or self.units):
            self.first_at = at

    def generation(self, streamed: bool) -> Generation:
        """A count that nobody told is that of the chunks where they came one by one, else unknown."""
        text, pieces = self._joined()
        units = tuple(self.units) or pieces
        seen = len(self.units) or (len(pieces) if streamed else 0)
        tokens: int | None = max(seen, self.counted or 0)
        if not tokens:
            # an end of its own accord without a text was a token that is not shown: the end token, or half a character
            tokens = None if text else int(self.counted is None and self.finish in _NATURAL_ENDS)
        return Generation(text=text, units=units, tokens=tokens, logprobs=tuple(self.logprobs))

    def _joined(self) -> tuple[str, tuple[str, ...]]:
        """Native streams may repeat the whole text in each chunk: then each begins with the one before it and they grow."""
        pieces = tuple(self.pieces)
        pairs = list(pairwise(pieces))
        if len(pieces) > 1 and len(pieces[-1]) > len(pieces[0]) and all(after.startswith(before) for before, after in pairs):
            grown = (pieces[0], *(after[len(before) :] for before, after in pairs))
            return pieces[-1], tuple(piece for piece in grown if piece)
        return "".join(pieces), pieces

    def _take_object(self, payload: Mapping[str, object]) -> None:
        told = error_of(payload)
        if told is not None:
            self.error = told
            return
        for holder in (payload.get("usage"), payload.get("meta_info"), payload.get("details"), payload):
            if isinstance(holder, Mapping):
                self._take_counts(holder)
        if self.text_path is not None and (text := _text(_at(payload, self.text_path))):
            self._add(text)
            return
        choices = payload.get("choices")
        if isinstance(choices, list):
            if choices and isinstance(choices[0], Mapping):
                self._take_choice(choices[0])
        elif not self._take_vectors(payload):
            token = payload.get("token")
            if isinstance(token, Mapping):
                self._add(_text(token.get("text")))
                if "logprob" in token:
                    self.logprobs.append(_number(token["logprob"]))
            elif isinstance(payload.get("message"), Mapping):
                self._take_choice(payload)
            else:
                self._add(next((text for key in _TEXT_KEYS if (text := _text(payload.get(key)))), ""))

    def _take_choice(self, choice: Mapping[str, object]) -> None:
        self._take_counts(choice)
        self._add(_text(choice.get("text")))
        for key in ("delta", "message"):
            holder = choice.get(key)
            if isinstance(holder, Mapping):
                for name in _DELTA_KEYS:
                    text = _text(holder.get(name))
                    if text and not (name == "reasoning" and holder.get("reasoning_content")):  # some send it under both names
                        self._add(text)
        logprobs = choice.get("logprobs")
        if isinstance(logprobs, Mapping):
            self._take_logprobs(logprobs)

    def _take_logprobs(self, logprobs: Mapping[str, object]) -> None:
        content = logprobs.get("content")
        if isinstance(content, list):
            for item in content:
                if isinstance(item, Mapping) and "logprob" in item:
                    self.units.append(_text(item.get("token")))
                    self.logprobs.append(_number(item["logprob"]))
            return
        tokens, values = logprobs.get("tokens"), logprobs.get("token_logprobs")
        if isinstance(tokens, list):
            self.units.extend(_text(token) for token in tokens)
        if isinstance(values, list):
            self.logprobs.extend(_number(value) for value in values)

    def _take_counts(self, holder: Mapping[str, object]) -> None:
        for key in _COUNT_KEYS:
            value = holder.get(key)
            if isinstance(value, int) and not isinstance(value, bool):
                self.counted = max(self.counted or 0, value)
        for key in ("finish_reason", "done_reason", "stop_type"):
            reason = holder.get(key)
            if isinstance(reason, Mapping):
                reason = reason.get("type")
            if isinstance(reason, str) and reason:
                self.finish = reason

    def _take_vectors(self, payload: Mapping[str, object], *, outermost: bool = True) -> bool:
        """Embeddings and scores, in the shapes of several servers; True where there were some."""
        before = len(self.numbers)
        for key in ("data", "results", "embeddings", "scores") if outermost else ():
            rows = payload.get(key)
            for row in rows[:64] if isinstance(rows, list) else ():
                if isinstance(row, Mapping):
                    self._take_vectors(row, outermost=False)
                elif isinstance(row, list):
                    self._take_numbers(row)
                else:
                    self._take_numbers([row])
        vector = payload.get("embedding")
        if isinstance(vector, list):
            self._take_numbers(vector)
        for key in ("relevance_score", "score"):
            if key in payload:
                self._take_numbers([payload[key]])
        return len(self.numbers) > before

    def _take_numbers(self, values: list[object]) -> None:
        for value in values:
            if isinstance(value, list):
                self.numbers.extend(_number(inner) for inner in value)  # one vector a token: pooled by nobody
            else:
                self.numbers.append(_number(value))

    def _add(self, text: str) -> None:
        if text:
            self.pieces.append(text)


def error_of(payload: object) -> str | None:
    """The message of an error object, in the shapes of OpenAI, FastAPI and others; None where it is none."""
    if not isinstance(payload, Mapping):
        return None
    told = payload.get("error")
    if isinstance(told, Mapping):
        return str(told.get("message") or told.get("type") or json.dumps(told, default=str))[:2000]
    if isinstance(told, str) and told:
        return told[:2000]
    if payload.get("object") == "error":
        return str(payload.get("message"))[:2000]
    return None


def _at(value: object, path: str) -> object:
    for part in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and part.isdecimal():
            value = value[int(part)] if len(part) < 9 and int(part) < len(value) else None
        else:
            return None
    return value


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value:
        first = value[0]
        if isinstance(first, str):
            return first
        return "".join(_text(part.get("text")) for part in value if isinstance(part, Mapping))
    return ""


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
