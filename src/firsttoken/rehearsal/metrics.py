"""What /metrics shows, in Prometheus' text format with the prefix `rehearsal:`.

Key insight: counters grow with every step, not at a request's end, so an observer sees a generation move.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from . import MODEL_NAME
from .settings import DEPTH

_BOUNDS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Metrics:
    """Safe from any thread. `drafts` is (drafts, draft tokens, accepted tokens, accepted by position)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.running = self.waiting = 0
        self.prompt_tokens = self.generation_tokens = self.requests = 0
        self.drafts: tuple[int, int, int, tuple[int, ...]] = (0, 0, 0, (0,) * DEPTH)
        self._buckets = [0] * (len(_BOUNDS_S) + 1)
        self._first_token_s = 0.0

    def began(self, prompt_tokens: int) -> None:
        with self._lock:
            self.prompt_tokens += prompt_tokens

    def first_token(self, seconds: float) -> None:
        with self._lock:
            place = next((place for place, bound in enumerate(_BOUNDS_S) if seconds <= bound), len(_BOUNDS_S))
            self._buckets[place] += 1
            self._first_token_s += seconds

    def generated(self, tokens: int) -> None:
        with self._lock:
            self.generation_tokens += tokens

    def finished(self) -> None:
        with self._lock:
            self.requests += 1

    def text(self) -> str:
        with self._lock:
            return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        drafts, drafted, accepted, by_position = self.drafts
        yield from _metric("num_requests_running", "gauge", "Requests that are being decoded.", self.running)
        yield from _metric("num_requests_waiting", "gauge", "Requests that wait for a slot.", self.waiting)
        yield from _metric("prompt_tokens_total", "counter", "Prompt tokens of all requests.", self.prompt_tokens)
        yield from _metric("generation_tokens_total", "counter", "Tokens generated.", self.generation_tokens)
        yield from _metric("request_success_total", "counter", "Requests answered to the end.", self.requests)
        yield from _metric("spec_decode_num_drafts_total", "counter", "Rounds of drafting.", drafts)
        yield from _metric("spec_decode_num_draft_tokens_total", "counter", "Tokens drafted.", drafted)
        yield from _metric("spec_decode_num_accepted_tokens_total", "counter", "Draft tokens accepted.", accepted)
        name = "rehearsal:spec_decode_num_accepted_tokens_per_pos_total"
        yield from (f"# HELP {name} Draft tokens accepted, by position in the draft.", f"# TYPE {name} counter")
        for position, count in enumerate(by_position):
            yield f'{name}{{model_name="{MODEL_NAME}",position="{position}"}} {count}'
        yield from self._histogram()

    def _histogram(self) -> Iterator[str]:
        name, label = "rehearsal:time_to_first_token_seconds", f'model_name="{MODEL_NAME}"'
        yield from (f"# HELP {name} From the request to its first token.", f"# TYPE {name} histogram")
        total = 0
        for bound, count in zip((*map(str, _BOUNDS_S), "+Inf"), self._buckets, strict=True):
            total += count
            yield f'{name}_bucket{{{label},le="{bound}"}} {total}'
        yield f"{name}_sum{{{label}}} {self._first_token_s:.6f}"
        yield f"{name}_count{{{label}}} {total}"


def _metric(name: str, kind: str, text: str, value: int) -> Iterator[str]:
    yield f"# HELP rehearsal:{name} {text}"
    yield f"# TYPE rehearsal:{name} {kind}"
    yield f'rehearsal:{name}{{model_name="{MODEL_NAME}"}} {value}'
