"""The factor between two servers from blocks in which both did the same work, with an interval that holds what it promises.

The estimate is the Hodges-Lehmann one of the blocks' log ratios (the median of the means of all pairs): nearly as exact as the mean, and
up to a quarter of the blocks may be spoilt by other load without moving it far. The interval is a bootstrap over blocks, widened for
their small number: a plain percentile interval of eight blocks that promises 95 % covers about 90 %.
Source of the widening: Hesterberg, What Teachers Should Know about the Bootstrap (2015), "expanded percentile interval".
"""

import math
import random
import statistics
from collections.abc import Sequence

from firsttoken.model.speculation import Ratio

CONFIDENCE = 0.95
DRAWS = 2000
FEWEST = 4
"""blocks, below which no interval is told"""


def ratio(log_ratios: Sequence[float], *, seed: int = 0, draws: int = DRAWS) -> Ratio | None:
    """The factor that the blocks' log ratios tell. None for fewer than four blocks. The same values and seed give the same interval."""
    blocks = len(log_ratios)
    if blocks < FEWEST:
        return None
    dice = random.Random(seed)
    drawn = sorted(estimate(dice.choices(log_ratios, k=blocks)) for _ in range(draws))
    tail = statistics.NormalDist().cdf(-math.sqrt(blocks / (blocks - 1)) * _student(blocks - 1))
    centre = estimate(log_ratios)
    low, high = _quantile(drawn, tail), _quantile(drawn, 1 - tail)
    return Ratio(value=math.exp(centre), low=math.exp(min(low, centre)), high=math.exp(max(high, centre)), blocks=blocks)


def estimate(values: Sequence[float]) -> float:
    """Hodges and Lehmann's, of at least one value."""
    means = [(one + other) / 2 for place, one in enumerate(values) for other in values[place:]]
    return statistics.median(means)


def log_ratio(one: float | None, other: float | None) -> float | None:
    """None where one of the two is not known or not positive."""
    return math.log(one / other) if one is not None and other is not None and one > 0 and other > 0 else None


def more_blocks(found: Ratio) -> int | None:
    """How many more blocks should lead to an interval without 1, if the factor is what it looks like. None where it looks like 1."""
    distance = abs(math.log(found.value))
    half = (math.log(found.high) - math.log(found.low)) / 2
    if distance < 0.005:
        return None
    return max(1, math.ceil(found.blocks * (1.1 * half / distance) ** 2) - found.blocks)


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _student(freedom: int) -> float:
    """The quantile of Student's t at CONFIDENCE, by its expansion in the normal one (Abramowitz and Stegun 26.7.5): 1 % off at three."""
    z = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return float(z + sum(term / freedom**power for power, term in enumerate(terms, 1)))
