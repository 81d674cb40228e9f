"""Continuous batching on rank 0: which sequences run, what each step computes, which drafts hold.

Key insight: a step costs time by the clock, not by luck: it lasts BASE + TOKEN x tokens, and DRAFT more for each token that
is drafted, by sleeping for what the arithmetic left over, as a GPU would be awaited. Waking up late is made up for by the next
step. So rates are stable on a shared machine, eager decoding is slower than graphs, and a drafter that is seldom right
(0.15) makes serving about 0.66 times as fast.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .decoder import Piece
from .drafting import DraftCounts, Drafter, DraftTask
from .kernels import Kernels
from .sampling import choose, top_logprobs
from .settings import DEPTH

SLOTS = 8
PREFILL = 48
"""Prompt tokens of one sequence that one step takes in."""

BASE_S = 0.0080
EAGER_S = 0.0100
TOKEN_S = 0.00025
DRAFT_S = 0.0030

Forward = Callable[[list[Piece]], NDArray[np.float64]]
"""Runs a step on all ranks; scores of the vocabulary, one row a token."""


@dataclass(slots=True, kw_only=True)
class Sequence:
    """A request in work. `tokens` are prompt and output, `computed` of them are in the KV cache."""

    id: int
    tokens: list[int]
    prompt: int
    max_tokens: int
    temperature: float
    seed: int
    logprobs: int | None
    slot: int = -1
    computed: int = 0
    draft: list[int] = field(default_factory=list[int])

    @property
    def done(self) -> bool:
        return len(self.tokens) >= self.prompt + self.max_tokens


class Batcher:
    def __init__(self, forward: Forward, kernels: Kernels, drafter: Drafter | None, base_s: float) -> None:
        self._forward, self._kernels, self._drafter, self._base_s = forward, kernels, drafter, base_s
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._free = list(reversed(range(SLOTS)))
        self._due = 0.0
        self.counts = DraftCounts(depth=drafter.depth if drafter is not None else DEPTH)

    @property
    def idle(self) -> bool:
        return not self._running and not self._waiting

    def add(self, message: dict[str, Any]) -> None:
        tokens = list(message["tokens"])
        fields = {name: message[name] for name in ("id", "max_tokens", "temperature", "seed", "logprobs")}
        self._waiting.append(Sequence(tokens=tokens, prompt=len(tokens), **fields))

    def abort(self, number: int) -> None:
        """Drops a request that nobody waits for any more."""
        self._waiting = deque(sequence for sequence in self._waiting if sequence.id != number)
        for sequence in [sequence for sequence in self._running if sequence.id == number]:
            self._leave(sequence)

    def step(self) -> dict[str, Any]:
        """One step of all running sequences; what to tell the main process."""
        if not self._running:
            self._due = time.perf_counter()
        while self._waiting and self._free:
            sequence = self._waiting.popleft()
            sequence.slot = self._free.pop()
            self._running.append(sequence)
        drafted = self._draft()
        pieces = [_piece(sequence) for sequence in self._running]
        logits = self._forward(pieces)
        self._due = max(self._due + DRAFT_S * drafted + self._base_s + TOKEN_S * len(logits), time.perf_counter())
        time.sleep(max(0.0, self._due - time.perf_counter()))
        out: list[list[Any]] = []
        row = 0
        for sequence, piece in zip(list(self._running), pieces, strict=True):
            found = self._verify(sequence, piece, logits[row : row + len(piece.tokens)])
            row += len(piece.tokens)
            if found is not None:
                out.append(found)
        counts = [self.counts.drafts, self.counts.drafted, self.counts.accepted, self.counts.by_position]
        return {"op": "step", "out": out, "running": len(self._running), "waiting": len(self._waiting), "drafts": counts}

    def _draft(self) -> int:
        """How many tokens were drafted, one after the other, of all sequences at the same time."""
        if self._drafter is None:
            return 0
        drafting = [(sequence, self._drafter.begin()) for sequence in self._running if len(sequence.tokens) - sequence.computed == 1]
        depth = self._drafter.depth if drafting else 0
        for position in range(depth):
            for sequence, right in drafting:
                if position > right:  # behind a wrong token nothing is looked at
                    sequence.draft.append(sequence.draft[-1])
                    continue
                task = DraftTask(slot=sequence.slot, tokens=sequence.tokens, temperature=sequence.temperature, seed=sequence.seed)
                sequence.draft.append(self._drafter.next_token(task, sequence.draft, self._kernels, right=position < right))
        return depth

    def _verify(self, sequence: Sequence, piece: Piece, logits: NDArray[np.float64]) -> list[Any] | None:
        """Takes over the tokens that a step decided; None while the prompt is still being read."""
        draft, sequence.draft = sequence.draft, []
        sequence.computed += len(piece.tokens) - len(draft)
        if sequence.computed < len(sequence.tokens):
            return None
        before = len(sequence.tokens)
        logprobs: list[list[Any]] = []
        accepted = 0
        for place, scores in enumerate(logits[len(piece.tokens) - len(draft) - 1 :]):
            token = choose(scores, position=len(sequence.tokens), temperature=sequence.temperature, seed=sequence.seed)
            sequence.tokens.append(token)
            if sequence.logprobs is not None:
                logprobs.append(list(top_logprobs(scores, token, sequence.logprobs)))
            if place == len(draft) or draft[place] != token:
                break
            accepted += 1
        sequence.computed += accepted
        if draft:
            self.counts.add(accepted)
        del sequence.tokens[sequence.prompt + sequence.max_tokens :]
        fresh = sequence.tokens[before:]
        if sequence.done:
            self._leave(sequence)
        return [sequence.id, fresh, logprobs[: len(fresh)] or None, "length" if sequence.done else None]

    def _leave(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self._free.append(sequence.slot)
        if self._drafter is not None:
            self._drafter.forget(sequence.slot)


def _piece(sequence: Sequence) -> Piece:
    start = sequence.computed
    tokens = (*sequence.tokens[start : start + PREFILL], *sequence.draft)
    before = (0, 0, *sequence.tokens[max(0, start - 2) : start])[-2:]
    return Piece(slot=sequence.slot, start=start, tokens=tokens, before=(before[0], before[1]))
