from hypothesis import given, settings
from hypothesis import strategies as st

from intervals import median_interval, order


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(min_value=-1e6, max_value=1e6), min_size=1, max_size=30), st.integers(0, 5))
def test_the_interval_holds_the_median_and_lies_within_the_values(values: list[float], seed: int) -> None:
    found = median_interval(values, seed=seed, draws=200)
    assert found is not None
    assert min(values) <= found.low <= found.high <= max(values)
    assert found == median_interval(values, seed=seed, draws=200)


def test_many_alike_values_give_a_narrow_interval_around_their_median() -> None:
    found = median_interval([1.0 + number / 1000 for number in range(21)])
    assert found is not None
    assert found.low <= found.median == 1.01 <= found.high
    assert found.high - found.low < 0.012


def test_nothing_has_no_interval() -> None:
    assert median_interval([]) is None


def test_pairs_run_a_b_b_a() -> None:
    runs = [with_us for pair in range(4) for with_us in order(pair)]
    assert runs == [False, True, True, False] * 2
