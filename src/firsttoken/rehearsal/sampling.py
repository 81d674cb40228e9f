"""From scores to a token: greedy, or sampled with noise that depends only on the seed and the position.

Key insight: with noise fixed by (seed, position) a sampled token is as reproducible as a greedy one, so drafts of sampled text
can be verified by comparison and the output does not depend on speculation or on the batch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .tokens import FIRST_PIECE, decode

Floats = NDArray[np.float64]


def choose(logits: Floats, *, position: int, temperature: float, seed: int) -> int:
    """The next token after `position` tokens. Single bytes are never chosen."""
    scores = logits[FIRST_PIECE:]
    if temperature > 0:
        dice = np.random.default_rng((seed, position))
        scores = scores / temperature + dice.gumbel(size=scores.shape)
    return FIRST_PIECE + int(np.argmax(scores))


def top_logprobs(logits: Floats, chosen: int, count: int) -> tuple[float, dict[str, float]]:
    """The log-probability of the chosen token and the `count` best tokens with theirs."""
    scores = logits[FIRST_PIECE:]
    shifted = scores - scores.max()
    logs = shifted - np.log(np.exp(shifted).sum())
    best = np.argsort(-logs)[:count]
    return float(logs[chosen - FIRST_PIECE]), {decode([FIRST_PIECE + int(place)]): float(logs[place]) for place in best}
