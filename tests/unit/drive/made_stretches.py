"""Stretches of load as a server with known costs would have given them: no clock, no noise but what is asked for."""

import math
import random
from collections.abc import Sequence

from firsttoken.drive.client import Reply
from firsttoken.drive.counters import Counts
from firsttoken.drive.load import Stretch
from firsttoken.drive.weigh import Block, Pair
from firsttoken.model.speculation import Sampling

TOKENS = 61
FIRST_S = 0.1


def stretch(step_s: float, *, sampling: Sampling = Sampling.GREEDY, counts: Counts | None = None, users: int = 1) -> Stretch:
    """`users` answers at the same time, of 61 tokens each, one every `step_s` seconds."""
    last = FIRST_S + step_s * (TOKENS - 1)
    reply = Reply(prompt="p", text="t", tokens=TOKENS, counted=True, events=TOKENS, asked=0.0, first=FIRST_S, last=last)
    return Stretch(sampling=sampling, replies=(reply,) * users, counts=counts)


def counts(curve: Sequence[float], rounds: int) -> Counts:
    """`curve`: share of rounds that are right up to each position."""
    by_position = tuple(rounds * value for value in curve)
    return Counts(drafts=rounds, drafted=rounds * len(curve), accepted=sum(by_position), by_position=by_position)


def blocks(step_s: float, draft_s: float, curve: Sequence[float], *, noise: float = 0.005, number: int = 8, users: int = 1) -> list[Block]:
    """A server whose step takes `step_s` and whose draft tokens take `draft_s` each."""
    dice = random.Random(1)
    a_round = 1 + sum(curve)
    round_s = step_s + draft_s * len(curve)
    counted = counts(curve, math.ceil((TOKENS - 1) / a_round) * users)
    return [
        tuple(
            Pair(
                baseline=stretch(step_s * (1 + dice.gauss(0, noise)), sampling=kind, users=users),
                speculative=stretch(round_s / a_round * (1 + dice.gauss(0, noise)), sampling=kind, users=users, counts=counted),
            )
            for kind in (Sampling.GREEDY, Sampling.SAMPLED)
        )
        for _ in range(number)
    ]
