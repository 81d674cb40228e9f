"""Secrets known by value: found once by their name or shape, masked wherever they appear again.

A server echoes its key as a model id, a wrapper writes `user:secret@`, a log prints `X=secret`: no name betrays those. The values are kept
in memory only, and are looked for literally. What is short, or an ordinary word, is left alone, since it would be found in every text;
what has but letters or but digits counts only as a whole word.
"""

import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from firsttoken.model.words import Phase, Verdict

MASK = "****"
LEAST = 6
"""characters; anything shorter is in too many words"""
_WORDLIKE = 16
_LEAST_LINE = 16
"""characters of one line of a value of several lines (a private key)"""
_KEPT = frozenset({"kind", "node", "run", "phase", "phases", "edge", "verdict", "scope", "probe", "role", "task", "engine"})
"""fields whose values are names of ours, never a server's text"""
_ORDINARY = """
    abcdef access account address admins administrator answer assistant attention bearer bucket bundle changeme client closed
    cluster command common completion config connect container content count create customer dataset debian default delete device
    disable disabled docker dummies dynamic embedding enable enabled engine english environ error example failed finished forever
    format github gitlab global google graphs hidden huggingface ignore import inference internal kernel kubernetes laptop launch
    layers length linear linux listen listening loaded loading local localhost logger machine manager master memory message method
    metrics missing mistral mixtral models module native network nobody nothing number nvidia object openai output package params
    password people persistent please pointer policy prefill primary private process production profile prompt protocol python
    quantized random reader remote request required response result return router running runtime sample scheduler schema script
    search secret secrets select serial server service session settings sglang shared signal simple single socket source
    speculative start started status stream string student subprocess success switch system target tensor testing thread timeout
    token tokens torch transformer transformers triton ubuntu unknown update upload user-data username values version visible
    waiting warmup weight weights window worker workers workspace
"""
_COMMON = frozenset(_ORDINARY.split()) | {word.value for word in (*Phase, *Verdict)}


class Secrets:
    """Some secret values. Without any it changes nothing and is false."""

    __slots__ = ("_raw", "_strong", "_weak", "values")

    def __init__(self, values: Iterable[str] = ()) -> None:
        kept = {part for value in values for part in _parts(value)}
        self.values = tuple(sorted(kept, key=lambda value: (-len(value), value)))
        spellings = {spelling: None for value in self.values for spelling in _spellings(value)}
        weak = [spelling for spelling in spellings if _is_weak(spelling)]
        self._weak = tuple((value, _whole(value)) for value in weak)
        self._strong = tuple(spelling for spelling in spellings if spelling not in weak)
        self._raw = tuple((_bytes(spelling), spelling in weak) for spelling in spellings)

    def __bool__(self) -> bool:
        return bool(self.values)

    def mask(self, text: str, *, equal_length: bool = False) -> str:
        for value in self._strong:
            if value in text:
                text = text.replace(value, "*" * len(value) if equal_length else MASK)
        for value, whole in self._weak:
            if value in text:
                text = whole.sub("*" * len(value) if equal_length else MASK, text)
        return text

    def plain(self, value: Any) -> Any:
        """JSON types with every text masked, but for names of fields and the values of our own vocabulary."""
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, dict):
            return {name: item if name in _KEPT and isinstance(item, str) else self.plain(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.plain(item) for item in value]
        return value

    def spans(self, data: bytes) -> list[tuple[int, int]]:
        """(begin, end) of every secret in raw bytes, in order."""
        found = []
        for raw, weak in self._raw:
            at = data.find(raw)
            while at >= 0:
                end = at + len(raw)
                if not weak or not (data[at - 1 : at].isalnum() or data[end : end + 1].isalnum()):
                    found.append((at, end))
                at = data.find(raw, end)
        return sorted(found)


class LogSearch:
    """Where secrets stand in a log that comes in pieces; one that is cut by a piece's end is found with the next piece."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._overlap = max((len(value.encode("utf8", "replace")) for value in secrets.values), default=0) * 3 + 1
        self._tail = b""
        self._end = -1
        self._told = 0

    def feed(self, data: bytes, offset: int) -> tuple[tuple[int, int], ...]:
        """(offset, length) of what was not told before. `offset` of `data` in the log; a jump forgets what was cut."""
        if not self._secrets:
            return ()
        if offset != self._end:
            self._tail = b""
        base = offset - len(self._tail)
        whole = self._tail + data
        found = [(base + begin, end - begin) for begin, end in self._secrets.spans(whole) if base + end > self._told]
        self._told = max([self._told, *(at + length for at, length in found)])
        self._tail = whole[-self._overlap :]
        self._end = offset + len(data)
        return tuple(found)


def _parts(value: str) -> list[str]:
    value = value.strip()
    lines = value.splitlines()
    if len(lines) > 1:
        return [line.strip() for line in lines if len(line.strip()) >= _LEAST_LINE and not line.startswith("-----")]
    return [value] if _tells(value) else []


def _tells(value: str) -> bool:
    if len(value) < LEAST or value.lower() in _COMMON or set(value) <= {"*"}:
        return False
    return not _is_path(value)


def _is_path(value: str) -> bool:
    """`/etc/key.pem`, `~/.token`: where a secret is, not what it is. Key material may begin with a slash too, but is one long word."""
    if not re.match(r"(?:~|\.{1,2})?/", value) or re.search(r"[+=\s]", value):
        return False
    return not any(len(part) >= 20 and re.search(r"\d", part) and re.search(r"[A-Za-z]", part) for part in value.split("/"))


def _is_weak(value: str) -> bool:
    return len(value) < _WORDLIKE and (value.isalpha() or value.isdigit())


def _whole(value: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9]){re.escape(value)}(?![A-Za-z0-9])")


def _spellings(value: str) -> list[str]:
    """As it is, in a URL, in JSON."""
    return [value, quote(_bytes(value), safe=""), json.dumps(value)[1:-1]]


def _bytes(value: str) -> bytes:
    """Arguments that are no UTF-8 come as surrogate escapes."""
    try:
        return value.encode("utf8", "surrogateescape")
    except UnicodeEncodeError:
        return value.encode("utf8", "surrogatepass")
