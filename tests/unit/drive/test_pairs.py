"""The factor between two servers and its interval."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.drive.pairs import FEWEST, log_ratio, more_blocks, ratio


def noisy(true: float, blocks: int, noise: float, seed: int) -> list[float]:
    dice = random.Random(seed)
    return [math.log(true) + dice.gauss(0, noise) for _ in range(blocks)]


def test_the_interval_holds_the_true_factor_in_about_95_of_100_runs() -> None:
    covered = 0
    for seed in range(150):
        found = ratio(noisy(0.66, 8, 0.04, seed), seed=seed, draws=300)
        assert found is not None
        covered += found.low <= 0.66 <= found.high
    assert covered >= 137


def test_a_quarter_of_spoilt_blocks_does_not_turn_the_answer() -> None:
    found = ratio([*noisy(0.66, 6, 0.01, 1), 0.7, 0.9])
    assert found is not None
    assert found.value < 0.8
    assert found.low < 0.67


def test_the_same_values_and_seed_give_the_same_interval_and_too_few_give_none() -> None:
    values = noisy(1.2, 8, 0.05, 3)
    assert ratio(values, seed=5) == ratio(values, seed=5)
    assert ratio(values[: FEWEST - 1]) is None


def test_how_many_more_blocks_are_needed_grows_with_the_noise() -> None:
    narrow, wide = (ratio(noisy(1.05, 8, noise, 1)) for noise in (0.02, 0.2))
    assert narrow is not None
    assert wide is not None
    assert (more_blocks(wide) or 0) > (more_blocks(narrow) or 0)
    nothing = ratio([0.1, -0.1, 0.1, -0.1])
    assert nothing is not None
    assert more_blocks(nothing) is None


@given(st.lists(st.floats(-3, 3), min_size=FEWEST, max_size=12))
def test_the_interval_always_holds_the_estimate(values: list[float]) -> None:
    found = ratio(values, draws=50)
    assert found is not None
    assert found.low <= found.value <= found.high


@pytest.mark.parametrize(("one", "other"), [(None, 1.0), (1.0, None), (0.0, 1.0), (1.0, -1.0)])
def test_what_is_not_positive_has_no_ratio(one: float | None, other: float | None) -> None:
    assert log_ratio(one, other) is None
