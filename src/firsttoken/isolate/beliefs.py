"""What is believed about the culprits, and which configuration to try next: exact Bayes over small sets of settings.

A hypothesis is a set of settings that fails whenever all of it is kept. That is group testing: a configuration that lacks one of the
culprits passes. Failures are decisive (every hypothesis lies inside whatever failed), passes are decisive too unless the failure is
intermittent: then its rate is unknown, and a beta-Bernoulli posterior weighs how often chance must have helped each hypothesis.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import fsum

import numpy as np
from numpy.typing import NDArray

Config = int
"""a bit for each setting that is kept"""

SIZES = (0.68, 0.2, 0.09, 0.03)
"""How many settings it takes: of 47 public cases with such a fix 40 needed one, 7 two."""
_MOST = 15_000
_NOTHING, _NOTHING_BY_CHANCE = 0.05, 0.15
"""that none of them is at fault, before the barest command was tried; a failure that comes and goes often is a race or a device"""
_SURE = 1 - 1e-9
_ANYWAY = 0.5
"""Bits that it is worth to try just the likeliest set: the answer itself has to be launched in any case (from simulations)."""
_WORTH_A_LAUNCH = 0.2
"""Bits that one more launch beside others has to tell: it takes from the budget as any other."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Beliefs:
    """`sets`: hypotheses as bit masks, `p` their probabilities, `passes`: how likely a configuration that holds it passes all the same."""

    count: int
    sets: NDArray[np.uint64]
    p: Floats
    passes: Floats

    @property
    def best(self) -> tuple[Config, float]:
        at = int(np.argmax(_even(self.p)))
        return int(self.sets[at]), float(self.p[at])

    @property
    def entropy(self) -> float:
        """In bits: about as many launches are left where nothing is left to chance."""
        p = self.p[self.p > 0]
        return float(-(p * np.log2(p)).sum())

    def fails(self, config: Config) -> float:
        """How likely a launch of it fails."""
        return float((self.p * (1 - self.passes))[_fails(self.sets, config, self.count)].sum())

    def marginals(self) -> Floats:
        """How likely each setting is one of the culprits."""
        return _even(self.p @ _members(self.sets, self.count))

    def likeliest(self, most: int) -> list[tuple[Config, float]]:
        order = np.argsort(-_even(self.p), kind="stable")[:most]
        return [(int(self.sets[at]), float(self.p[at])) for at in order if self.p[at] > 1e-4]


def beliefs(
    weights: Sequence[float], known: Config, failed: Config, fails: int, passed: Iterable[Config], *, chance: bool
) -> Beliefs | None:
    """After `fails` failures, the last of which kept exactly `failed`, and after these passing configurations.

    `weights`: how suspected each setting is, 1 as any other. `known`: surely needed. None where no small set explains what was seen.
    """
    sets, prior = _hypotheses(len(weights), tuple(weights), known, _NOTHING_BY_CHANCE if chance else _NOTHING)
    inside = _fails(sets, failed, len(weights))
    sets, prior = sets[inside], prior[inside]
    unlucky = np.zeros(len(sets))
    for config in passed:
        unlucky += _fails(sets, config, len(weights))
    if chance:
        likelihood = np.exp(_log_beta(1 + fails, 1 + unlucky))
        passes = (1 + unlucky) / (2 + fails + unlucky)
    else:
        likelihood = (unlucky == 0).astype(np.float64)
        passes = np.zeros(len(sets))
    p = prior * likelihood
    alive = p > p.sum() * 1e-9
    total = float(p[alive].sum())
    if not total > 0:
        return None
    return Beliefs(len(weights), sets[alive], p[alive] / total, passes[alive])


def most_telling(found: Beliefs, failed: Config, spoilt: Sequence[Config]) -> Config | None:
    """The configuration inside `failed` whose outcome is worth most, None where no outcome would tell anything.

    Tried are all configurations that leave out a run of settings in the order of their suspicion. `spoilt`: configurations that could not
    be resolved; they are not asked again, and what is like them is asked last.
    """
    marginals = found.marginals()
    order = [at for at in np.argsort(-marginals, kind="stable").tolist() if failed >> at & 1 and marginals[at] < _SURE]
    members = _members(found.sets, found.count)
    size = len(order)
    following = np.full(len(found.sets), size)
    noise = found.p * _entropy(found.passes)
    likeliest, sure = found.best
    best: tuple[float, int, Config] | None = None
    for start in range(size - 1, -1, -1):
        following = np.where(members[:, order[start]] > 0, start, following)
        hit = np.cumsum(np.bincount(following, found.p, size + 1))[:size]
        lucky = np.cumsum(np.bincount(following, found.p * found.passes, size + 1))
        noisy = np.cumsum(np.bincount(following, noise, size + 1))
        bits = _entropy(np.clip(hit + lucky[-1] - lucky[:size], 0, 1)) - (noisy[-1] - noisy[:size])
        for end in range(size - 1, start - 1, -1):
            if best is not None and bits[end] + _ANYWAY * sure < best[0] - 1e-9:
                continue
            config = failed & ~sum(1 << at for at in order[start : end + 1])
            worth = float(bits[end]) + (_ANYWAY * sure if config == likeliest else 0.0)
            rank = (round(worth * _resolvable(config, spoilt, found.count), 9), end - start, config)
            if bits[end] > 1e-6 and rank[0] > 0 and (best is None or rank[:2] >= best[:2]):
                best = rank
    return best[2] if best is not None else None


def telling_together(found: Beliefs, failed: Config, first: Config, most: int) -> list[Config]:
    """Up to `most` configurations inside `failed` to launch at once, `first` among them: each is the one with which the outcomes of all
    tell most (joint entropy, nothing left to chance). Fewer where another launch would tell less than `_WORTH_A_LAUNCH` bits.

    One after the other such questions halve what the last one left; at once, each has to cut across all others. So the settings are also
    lined up by turns: one that the earlier configurations keep, one that they leave out, and so on.
    """
    members = _members(found.sets, found.count) > 0
    marginals = found.marginals()
    order = [at for at in np.argsort(-marginals, kind="stable").tolist() if failed >> at & 1 and marginals[at] < _SURE]
    likeliest, sure = found.best
    chosen, cell = [first], _fails(found.sets, first, found.count).astype(np.int64)
    known = _joint_entropy(_shares(cell, found.p))
    while len(chosen) < most:
        best: tuple[float, int, Config] | None = None
        for line in (order, _by_turns(order, chosen)):
            for start, end, bits in _runs(line, members, cell, found.p):
                config = failed & ~sum(1 << at for at in line[start : end + 1])
                gain = bits - known
                rank = (round(gain + (_ANYWAY * sure if config == likeliest else 0.0), 9), start - end, config)
                if gain >= _WORTH_A_LAUNCH and config not in chosen and (best is None or rank > best):
                    best = rank
        if best is None:
            break
        chosen.append(best[2])
        cell = 2 * cell + _fails(found.sets, best[2], found.count)
        known = _joint_entropy(_shares(cell, found.p))
    return chosen


def _runs(line: Sequence[int], members: NDArray[np.bool_], cell: NDArray[np.int64], p: Floats) -> Iterator[tuple[int, int, float]]:
    """Of every configuration that leaves out `line[start]` to `line[end]`: the joint entropy of its outcome and of `cell`."""
    cells, size = int(cell.max()) + 1, len(line)
    following = np.full(len(p), size)
    total = _shares(cell, p)
    for start in range(size - 1, -1, -1):
        following = np.where(members[:, line[start]], start, following)
        table = np.bincount(cell * (size + 1) + following, p, cells * (size + 1)).reshape(cells, size + 1)
        hit = np.cumsum(table, axis=1)
        for end in range(start, size):
            yield start, end, _joint_entropy(np.concatenate((hit[:, end], total - hit[:, end])))


def _by_turns(order: Sequence[int], chosen: Sequence[Config]) -> list[int]:
    """The settings so that any run of them holds about as many of each kind, by which of `chosen` keep them."""
    kinds: dict[tuple[bool, ...], list[int]] = {}
    for at in order:
        kinds.setdefault(tuple(bool(config >> at & 1) for config in chosen), []).append(at)
    turns = [(number / len(kind), kind[number]) for kind in kinds.values() for number in range(len(kind))]
    return [at for _, at in sorted(turns)]


def _even(p: Floats) -> Floats:
    """What is equal but for the order in which it was added up is equal: the same trials lead to the same next one on every machine."""
    return np.round(p, 12)


def _fails(sets: NDArray[np.uint64], config: Config, count: int) -> NDArray[np.bool_]:
    inside: NDArray[np.bool_] = (sets & np.uint64(_outside(config, count))) == 0
    return inside


def _shares(cell: NDArray[np.int64], p: Floats) -> Floats:
    """What each cell holds of `p`."""
    held: Floats = np.bincount(cell, p).astype(np.float64)
    return held


def _joint_entropy(p: Floats) -> float:
    p = p[p > 0]
    return float(-(p * np.log2(p)).sum())


def halves(items: Sequence[int]) -> tuple[Config, Config]:
    """Two masks of about as many settings each."""
    middle = (len(items) + 1) // 2
    return sum(1 << at for at in items[:middle]), sum(1 << at for at in items[middle:])


def bits_of(config: Config) -> list[int]:
    return [at for at in range(config.bit_length()) if config >> at & 1]


def _resolvable(config: Config, spoilt: Sequence[Config], count: int) -> float:
    """Lower, the more alike it is to what could not be resolved; 0 for just that."""
    return min((float((config ^ other).bit_count() / count) ** 0.5 for other in spoilt), default=1.0)


def _outside(config: Config, count: int) -> int:
    return ((1 << count) - 1) & ~config


def _members(sets: NDArray[np.uint64], count: int) -> Floats:
    """A row a set, a column a setting: 1 where it is in the set."""
    return ((sets[:, None] >> np.arange(count, dtype=np.uint64)) & np.uint64(1)).astype(np.float64)


@lru_cache(maxsize=64)
def _hypotheses(count: int, weights: tuple[float, ...], known: Config, nothing: float) -> tuple[NDArray[np.uint64], Floats]:
    """All sets of `known` and a few more, with their prior: by size (`nothing`: of none at all), within a size by the product of the
    weights."""
    free = [at for at in range(count) if not known >> at & 1]
    first = known.bit_count()
    sets: list[int] = []
    prior: list[float] = []
    for more in range(len(SIZES) + 1):
        combined = list(combinations(free, more))
        if more > 1 and len(sets) + len(combined) > _MOST:
            break
        share = _share(first + more) if first + more else nothing
        products = [float(np.prod([weights[at] for at in chosen])) for chosen in combined]
        total = fsum(products)
        sets += [known | sum(1 << at for at in chosen) for chosen in combined]
        prior += [share * product / total for product in products]
    return np.array(sets, dtype=np.uint64), np.array(prior)


def _share(size: int) -> float:
    return SIZES[size - 1] if size <= len(SIZES) else SIZES[-1] / 2 ** (size - len(SIZES))


def _entropy(p: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        found = -(p * np.log2(p) + (1 - p) * np.log2(1 - p))
    return np.nan_to_num(found, nan=0.0)


@lru_cache(maxsize=4096)
def _log_factorial(n: int) -> float:
    return float(np.log(np.arange(1, n + 1, dtype=np.float64)).sum())


def _log_beta(a: int, b: Floats) -> Floats:
    """Of whole numbers."""
    table = np.array([_log_factorial(n) for n in range(int(b.max(initial=1)) + a + 1)])
    whole = b.astype(np.int64)
    result: Floats = table[a - 1] + table[whole - 1] - table[whole + a - 1]
    return result
