"""The ways to ask a server for a token, in their order, and what a refusal says about the next one. Pure.

Key insight: a 404 has two meanings. "No such route" (also 405 and 501) means ask another way; "no such model" is an answer to what was
asked, and asking another way would hide it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firsttoken.model.words import ProbeKind
from firsttoken.observe.http_target import Target

PROMPTS = (
    "The capital of France is",
    "Here is a short story about a lighthouse: once upon a",
    "Water boils when",
    "A list of colours: red,",
)
"""Each invites several different words, so that a healthy model does not repeat itself."""
MAX_TOKENS = 8
_RERANK_PATHS = ("/rerank", "/v1/rerank", "/v1/score", "/score")
_DOCUMENTS = ("Paris is the capital of France.", "Bread is made of flour and water.")

_MISSING_MODEL = re.compile(
    r"\bmodel\b.{0,200}?(does not exist|not found|doesn't exist|unknown|not loaded)|(unknown|no such|not found:?) model\b", re.I | re.S
)
_HINTS: tuple[tuple[re.Pattern[str], ProbeKind], ...] = (
    (re.compile(r"rerank|cross.?encoder|\bscor(e|ing)\b", re.I), ProbeKind.RERANK),
    (re.compile(r"embedding", re.I), ProbeKind.EMBEDDING),
    (re.compile(r"\bchat\b", re.I), ProbeKind.CHAT),
)
_UNSUPPORTED = re.compile(r"(does not|doesn't|not) support(ed)?|unsupported|not (appear to be|a|an) .{0,20}(generat|completion|text)", re.I)
_ABOUT_STREAM = re.compile(r"stream", re.I)
_NO_ROUTE = frozenset({404, 405, 501})
_BAD_REQUEST = frozenset({400, 404, 422})


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One route and what is sent to it. `shape` tells apart bodies of the same kind."""

    kind: ProbeKind
    path: str
    shape: str = ""

    @property
    def generates(self) -> bool:
        return self.kind in (ProbeKind.COMPLETION, ProbeKind.CHAT, ProbeKind.NATIVE)


def ways(target: Target) -> tuple[Way, ...]:
    """All that the server may have, the one for its task first; the other kinds follow in case that the task was read wrongly."""
    routes = target.routes
    generate = [
        Way(kind=kind, path=path)
        for kind, path in (
            (ProbeKind.COMPLETION, routes.completions),
            (ProbeKind.CHAT, routes.chat),
            (ProbeKind.NATIVE, routes.native if target.native_body is not None else None),
        )
        if path is not None
    ]
    embed = [Way(kind=ProbeKind.EMBEDDING, path=routes.embeddings)] if routes.embeddings is not None else []
    known = [routes.rerank] if routes.rerank is not None else []
    paths = dict.fromkeys((*known, *_RERANK_PATHS) if target.task == "rerank" else known or _RERANK_PATHS[:1])
    rerank = [Way(kind=ProbeKind.RERANK, path=path, shape="score" if path.endswith("score") else "rerank") for path in paths]
    match target.task:
        case "rerank":
            return (*rerank, *embed, *generate)
        case "embed":
            return (*embed, *rerank, *generate)
        case _:
            return (*generate, *embed, *rerank)


def body_for(way: Way, target: Target, prompt_no: int, model: str | None, *, stream: bool) -> dict[str, Any]:
    """The request's JSON. `prompt_no` counts from anything: neighbours give different prompts."""
    prompt = PROMPTS[prompt_no % len(PROMPTS)]
    named: dict[str, Any] = {} if model is None else {"model": model}
    generate: dict[str, Any] = {"max_tokens": MAX_TOKENS, "temperature": 0, "stream": stream}
    match way.kind:
        case ProbeKind.COMPLETION:
            return {**named, "prompt": prompt, **generate}
        case ProbeKind.CHAT:
            return {**named, "messages": [{"role": "user", "content": prompt}], **generate}
        case ProbeKind.EMBEDDING:
            return {**named, "input": prompt}
        case ProbeKind.RERANK if way.shape == "score":
            return {**named, "text_1": prompt, "text_2": list(_DOCUMENTS)}
        case ProbeKind.RERANK:
            return {**named, "query": prompt, "documents": list(_DOCUMENTS)}
        case _:
            filled: dict[str, Any] = _filled(target.native_body or {}, prompt, model or "")
            if not stream and "stream" in filled:
                filled["stream"] = False
            return filled


def after_refusal(status: int, told: str, way: Way, left: Sequence[Way]) -> tuple[Way, ...] | None:
    """The ways that are still worth asking, best first; None where the answer stands as it is. `told`: the error's own words."""
    if status == 404 and _MISSING_MODEL.search(told):
        return None
    hinted = [kind for pattern, kind in _HINTS if kind is not way.kind and pattern.search(told)]
    if is_missing_route(status, told):
        return tuple(sorted(left, key=lambda other: other.kind not in hinted)) or None
    if status not in _BAD_REQUEST:
        return None
    if hinted:
        return tuple(other for kind in hinted for other in left if other.kind is kind) or None
    return tuple(left) or None if _UNSUPPORTED.search(told) and not _ABOUT_STREAM.search(told) else None


def is_missing_route(status: int, told: str) -> bool:
    return status in _NO_ROUTE and not (status == 404 and _MISSING_MODEL.search(told))


def refuses_stream(status: int, told: str) -> bool:
    return status in _BAD_REQUEST | {501} and bool(_ABOUT_STREAM.search(told))


def name_from_list(payload: object, served: str | None) -> str | None:
    """The model to ask for: the served name if the server lists it, else the first entry; None where there is no list."""
    rows = payload.get("data") or payload.get("models") if isinstance(payload, Mapping) else payload
    if not isinstance(rows, list):
        return None
    names = [
        name for row in rows if isinstance(row, Mapping) and isinstance(name := row.get("id") or row.get("name") or row.get("model"), str)
    ]
    if served is not None and served in names:
        return served
    return names[0][:300] if names else None


def _filled(value: Any, prompt: str, model: str) -> Any:
    """`$tokens` alone is a number; `$prompt` and `$model` may stand inside a string."""
    if value == "$tokens":
        return MAX_TOKENS
    if isinstance(value, str):
        return value.replace("$prompt", prompt).replace("$model", model).replace("$tokens", str(MAX_TOKENS))
    if isinstance(value, Mapping):
        return {key: _filled(item, prompt, model) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(item, prompt, model) for item in value]
    return value
