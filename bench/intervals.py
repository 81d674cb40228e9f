"""Medians with a bootstrap interval, and the order in which pairs are run. Seeded: the same rows give the same figures."""

import random
import statistics
from collections.abc import Sequence
from typing import NamedTuple

_DRAWS = 4000


class Interval(NamedTuple):
    """`low` and `high` bound the median with the asked confidence, by the percentile bootstrap; of one value all three are that value."""

    median: float
    low: float
    high: float
    pairs: int

    def rounded(self, digits: int = 4) -> dict[str, float | int]:
        return {
            "median": round(self.median, digits),
            "low": round(self.low, digits),
            "high": round(self.high, digits),
            "count": self.pairs,
        }


def median_interval(values: Sequence[float], *, seed: int = 0, confidence: float = 0.95, draws: int = _DRAWS) -> Interval | None:
    """None where there is no value."""
    if not values:
        return None
    chance = random.Random(seed)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(draws))
    cut = (1 - confidence) / 2
    low, high = medians[int(cut * (draws - 1))], medians[round((1 - cut) * (draws - 1))]
    return Interval(statistics.median(values), low, high, len(values))


def order(pair: int) -> tuple[bool, bool]:
    """Whether the first and the second run of a pair are with firsttoken: A B B A, so that a drift of the machine cancels out."""
    return (False, True) if pair % 2 == 0 else (True, False)
