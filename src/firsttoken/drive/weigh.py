"""From what was measured to numbers: speed-ups, acceptance, costs, and what other numbers of draft tokens promise. Pure.

Key insight: three numbers decide. A round of drafting and verifying takes `round_s` where one step of the target takes `step_s`, and brings
1 + n * acceptance tokens; so it pays from an acceptance of (round_s / step_s - 1) / n. What one more draft token costs and how often it is
right at its position then tell which n is best. All are measured at the client, so they hold for this machine and this load.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from firsttoken.drive.counters import Counts, acceptance, from_stream, total
from firsttoken.drive.load import Stretch, figures
from firsttoken.drive.pairs import estimate, log_ratio, ratio
from firsttoken.model.speculation import Acceptance, Costs, Kind, Level, Ratio, Sampling

EQUAL = 0.02
"""Factors from 0.98 to 1.02 are no difference that anybody would keep a drafter for."""
WORTH = 1.03
"""what another number of draft tokens must promise over the present one to be suggested"""
_DEEPEST = 16
_TRIED = 3
_ALWAYS = 0.8
"""of the draft tokens that a round may have: so many are drafted by a drafter that always has something to say"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The same prompts on both servers, one stretch right after the other."""

    baseline: Stretch
    speculative: Stretch


_Speeds = tuple[float | None, float | None]
Block = tuple[Pair, ...]
"""Pairs in the order A B B A: what drifts steadily falls on both sides alike."""


def level(
    concurrency: int, blocks: Sequence[Block], *, draft_tokens: int | None, logged: Acceptance | None = None, seed: int = 0
) -> Level | None:
    """None where fewer blocks than an interval needs were measured. `logged`: acceptance from the log, where the engine counts nothing."""
    speedup = _ratio([[_speeds(pair) for pair in block] for block in blocks], seed)
    if speedup is None:
        return None
    sides = [[pair.baseline for block in blocks for pair in block], [pair.speculative for block in blocks for pair in block]]
    found = accepted(sides[1], draft_tokens, logged)
    return Level(
        concurrency=concurrency,
        speedup=speedup,
        pays=pays(speedup),
        end_to_end=_ratio([[(pair.baseline.throughput, pair.speculative.throughput) for pair in block] for block in blocks], seed),
        greedy=_kind(Sampling.GREEDY, blocks, seed),
        sampled=_kind(Sampling.SAMPLED, blocks, seed),
        baseline=figures(sides[0]),
        speculative=figures(sides[1]),
        acceptance=found,
        costs=_costs(sides[0], sides[1], found, draft_tokens),
    )


def so_far(blocks: Sequence[Block]) -> float | None:
    """The factor alone, for who watches."""
    logs = _logs([[_speeds(pair) for pair in block] for block in blocks])
    return math.exp(estimate(logs)) if logs else None


def accepted(stretches: Sequence[Stretch], draft_tokens: int | None, logged: Acceptance | None = None) -> Acceptance:
    """By the best source that there is: counters, log, stream."""
    tokens, requests = sum(one.tokens for one in stretches), sum(len(one.replies) for one in stretches)
    counted: list[Counts] = [one.counts for one in stretches if one.counts is not None]
    single = [count for one in stretches for count in one.by_request]
    found = acceptance(total(counted), single, tokens=tokens, requests=requests, draft_tokens=draft_tokens)
    events = sum(reply.events for one in stretches for reply in one.replies)
    return found or logged or from_stream(tokens, requests, events) or Acceptance(source="nothing that the engine tells")


def predicted(found: Level, depth: int | None) -> dict[int, float]:
    """The speed-up that each number of draft tokens should bring, by the curve over positions and the cost of a draft token.

    Empty where that cannot be known: of a drafter that does not draft as many in each round.
    """
    costs, curve = found.costs, _curve(found.acceptance, depth)
    if costs is None or depth is None or not depth <= len(curve) or costs.step_s <= 0 or costs.drafted < _ALWAYS * depth:
        return {}
    step = max(0.0, costs.draft_s / costs.step_s)
    gains = [1.0]
    for right in curve:
        gains.append(gains[-1] + right)
    promised = {number: gains[number] / (1 + number * step) for number in range(1, len(gains))}
    return {number: value * found.speedup.value / promised[depth] for number, value in promised.items()}


def candidates(levels: Sequence[Level], draft_tokens: int | None) -> list[int]:
    """Numbers of draft tokens to try, the most promising first, its neighbours with it: there can be a cliff beside the best."""
    depth = drafted_at_once(levels[0].acceptance, draft_tokens) if levels else None
    promised = predicted(levels[0], depth) if levels else {}
    if not promised:
        return []
    best = max(promised, key=lambda number: promised[number])
    near = [best, best - 1, best + 1, 1]
    return [number for number in dict.fromkeys(near) if 1 <= number <= _DEEPEST and number != depth][:_TRIED]


def drafted_at_once(found: Acceptance, told: int | None) -> int | None:
    """Tokens a draft, as counted or else as told."""
    if found.drafted and found.drafts:
        return max(1, round(found.drafted / found.drafts))
    return told


def better(found: Level, depth: int | None) -> int | None:
    """A number of draft tokens that promises clearly more than the present one; None where there is none."""
    promised = predicted(found, depth)
    if not promised or depth is None or depth not in promised:
        return None
    best = max(promised, key=lambda number: promised[number])
    return best if best != depth and promised[best] > WORTH * promised[depth] else None


def pays(found: Ratio) -> bool | None:
    """None where the interval does not tell."""
    if found.low >= 1 - EQUAL and found.high <= 1 + EQUAL:
        return False
    return True if found.low > 1 else False if found.high < 1 else None


def _speeds(pair: Pair) -> _Speeds:
    return pair.baseline.speed, pair.speculative.speed


def _ratio(blocks: Sequence[Sequence[_Speeds]], seed: int) -> Ratio | None:
    return ratio(_logs(blocks), seed=seed)


def _logs(blocks: Sequence[Sequence[_Speeds]]) -> list[float]:
    """Each block counts once, by the mean of its pairs' log ratios."""
    known = [[log for baseline, speculative in pairs if (log := log_ratio(speculative, baseline)) is not None] for pairs in blocks]
    return [sum(logs) / len(logs) for logs in known if logs]


def _kind(sampling: Sampling, blocks: Sequence[Block], seed: int) -> Kind | None:
    pairs = [[pair for pair in block if pair.baseline.sampling is sampling] for block in blocks]
    speedup = _ratio([[_speeds(pair) for pair in some] for some in pairs], seed)
    counted = total(pair.speculative.counts for some in pairs for pair in some if pair.speculative.counts is not None)
    return Kind(speedup=speedup, acceptance=counted.rate) if speedup is not None else None


def _costs(baseline: Sequence[Stretch], speculative: Sequence[Stretch], found: Acceptance, told: int | None) -> Costs | None:
    seconds, tokens = _decoding(baseline)
    drafting, made = _decoding(speculative)
    if found.accepted is not None and found.drafted is not None:
        # a drafter that finds nothing to say leaves a step of the target alone
        steps: float = max(made - found.accepted, found.drafts or 0)
        drafted = found.drafted / steps if steps else 0.0
    else:
        steps = made / found.length if found.length else 0.0
        drafted = float(told or 0)
    if not drafted or not steps or not tokens:
        return None
    step_s, round_s = seconds / tokens, drafting / steps
    return Costs(
        step_s=step_s,
        round_s=round_s,
        drafted=drafted,
        draft_s=max(0.0, (round_s - step_s) / drafted),
        break_even=max(0.0, (round_s / step_s - 1) / drafted),
    )


def _decoding(stretches: Sequence[Stretch]) -> tuple[float, int]:
    """Seconds and tokens from the first tokens on, of all users together."""
    replies = [reply for one in stretches for reply in one.replies if reply.inter_token_s is not None]
    return sum(reply.last - reply.first for reply in replies), sum(reply.tokens - 1 for reply in replies)


def _curve(found: Acceptance, depth: int | None) -> list[float]:
    """The share of rounds that are right up to each position, going on behind the last measured one as it went before."""
    curve = list(found.by_position)
    if not curve and depth and found.rate is not None:
        chance = _chance(found.rate, depth)
        curve = [chance**place for place in range(1, depth + 1)]
    if not curve:
        return []
    kept = min(1.0, curve[-1] / curve[-2]) if len(curve) > 1 and curve[-2] > 0 else curve[-1]
    while len(curve) < min(_DEEPEST, 2 * max(1, len(found.by_position) or depth or 1)):
        curve.append(curve[-1] * kept)
    return curve


def _chance(rate: float, depth: int) -> float:
    """The chance a token, alike at all positions, that gives this rate of acceptance."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(middle**power for power in range(1, depth + 1)) / depth < rate else (low, middle)
    return high
