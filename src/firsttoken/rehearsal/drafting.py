"""The drafter of speculative decoding: proposes tokens that the decoder verifies.

Key insight: a drafter of a wished quality is the whole model with an error on purpose. It runs unsharded on rank 0, computes
the decoder's own next token, and departs from it so that the share of accepted among drafted tokens is Q. How many tokens of a
round are right is drawn from one low-discrepancy number a round, with P(at least k right) = p^k, where p is solved so that
the mean of p, p^2 … p^DEPTH is Q: the measured share converges in tens of rounds, and positions fall off as real ones do.
p is the drafter's own: with more or fewer tokens a round than DEPTH the share changes, as it does for a real drafter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .decoder import Decoder, Piece
from .kernels import Kernels
from .sampling import choose
from .settings import DEPTH
from .tokens import FIRST_PIECE, VOCABULARY

_GOLDEN = 0.6180339887498949


@dataclass(slots=True)
class DraftCounts:
    """What the verification found, since the start."""

    depth: int = DEPTH
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    by_position: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.by_position = [0] * self.depth

    def add(self, accepted: int) -> None:
        self.drafts += 1
        self.drafted += self.depth
        self.accepted += accepted
        for position in range(accepted):
            self.by_position[position] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftTask:
    """A sequence that wants drafts: its tokens so far and how the next ones are chosen."""

    slot: int
    tokens: Sequence[int]
    temperature: float
    seed: int


class Drafter:
    def __init__(self, decoder: Decoder, table_rows: Sequence[int], quality: float, seed: int, depth: int = DEPTH) -> None:
        self._decoder, self._table_rows, self.depth = decoder, table_rows, depth
        self._keep = _chance_per_token(quality)
        self._number = (seed * _GOLDEN + 0.5) % 1.0
        self._known: dict[int, int] = {}

    def forget(self, slot: int) -> None:
        """A sequence left its slot."""
        self._known.pop(slot, None)

    def begin(self) -> int:
        """How many tokens of the coming round will be right."""
        self._number = (self._number + _GOLDEN) % 1.0
        right = 0
        while right < self.depth and self._number < self._keep ** (right + 1):
            right += 1
        return right

    def next_token(self, task: DraftTask, drafted: Sequence[int], kernels: Kernels, *, right: bool) -> int:
        """One more draft token after the sequence and what is already drafted of it."""
        tokens = [*task.tokens, *drafted]
        start = min(self._known.get(task.slot, 0), len(tokens) - 1)
        before = ((0, 0, *tokens[:start])[-2:]) if start else (0, 0)
        piece = Piece(slot=task.slot, start=start, tokens=tuple(tokens[start:]), before=(before[0], before[1]))
        hidden = self._decoder.forward([piece], kernels, lambda values: values, self._table_rows)
        self._known[task.slot] = len(task.tokens)
        token = choose(self._decoder.logits(hidden[-1]), position=len(tokens), temperature=task.temperature, seed=task.seed)
        return token if right else FIRST_PIECE + (token - FIRST_PIECE + 1) % (VOCABULARY - FIRST_PIECE)


def _chance_per_token(quality: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        share = sum(middle**power for power in range(1, DEPTH + 1)) / DEPTH
        low, high = (middle, high) if share < quality else (low, middle)
    return 1.0 if quality >= 1.0 else (0.0 if quality <= 0.0 else high)
