"""What our own requests showed. Ready means that real tokens came back twice; a 200 from a health page is a claim.

A request that is under way is evidence too: how long it has been waiting stands in `asked`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from firsttoken.model.events import HttpAnswer, HttpAsked
from firsttoken.model.words import ProbeKind

GENERATING = frozenset({ProbeKind.COMPLETION, ProbeKind.CHAT, ProbeKind.NATIVE, ProbeKind.EMBEDDING, ProbeKind.RERANK})
TOKENS_WANTED = 2
LOADING = 503
"""llama.cpp answers 503 "Loading model", SGLang's health 503 while starting: not yet, rather than broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """`tokens`: answers that brought one. `errors`: 5xx answers or broken ones. `refused`: the last 4xx. `open_since`: a request waits."""

    open_since: float | None = None
    answers: tuple[HttpAnswer, ...] = ()
    answered_at: float | None = None
    tokens: int = 0
    errors: tuple[tuple[float, HttpAnswer], ...] = ()
    refused: HttpAnswer | None = None
    healthy: bool = False
    tries: Mapping[str, int] = field(default_factory=dict)


def asked(serving: Serving, body: HttpAsked, t: float) -> Serving:
    if body.probe not in GENERATING:
        return serving
    return replace(serving, open_since=t)


def answered(serving: Serving, answer: HttpAnswer, t: float) -> Serving:
    tries = {**serving.tries, answer.probe: serving.tries.get(answer.probe, 0) + 1}
    if answer.probe not in GENERATING:
        return replace(serving, tries=tries, healthy=serving.healthy or answer.status == 200)
    serving = replace(serving, answers=(*serving.answers[-7:], answer), open_since=None, answered_at=t, tries=tries)
    if is_token(answer):
        return replace(serving, tokens=serving.tokens + 1, errors=(), refused=None)
    if answer.status is not None and 400 <= answer.status < 500:
        return replace(serving, refused=answer)
    if answer.status == LOADING or (answer.status is None and answer.error is not None and "connect" in answer.error.lower()):
        return serving
    return replace(serving, errors=(*serving.errors[-3:], (t, answer)))


def is_token(answer: HttpAnswer) -> bool:
    """Embeddings and rankings have no tokens: their 200 with a result (no error) stands for one."""
    if answer.status != 200 or answer.error is not None:
        return False
    if answer.probe in (ProbeKind.EMBEDDING, ProbeKind.RERANK):
        return True
    return answer.tokens is None or answer.tokens > 0
