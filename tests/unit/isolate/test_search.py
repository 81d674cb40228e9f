"""The search against targets that are functions of a configuration: its answers are right, minimal, repeatable, and cheap."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.isolate.search import Answer, Ask, Problem, Tried, next_step, next_steps
from firsttoken.isolate.settings import weights
from firsttoken.model.isolation import Outcome, Purpose, Setting

SAME, PASSES, DIFFERENT = Outcome.SAME, Outcome.PASSES, Outcome.DIFFERENT
Target = Callable[[int], Outcome]


def search(problem: Problem, target: Target, most: int = 400) -> tuple[Answer, list[Tried], list[Purpose]]:
    tried: list[Tried] = []
    purposes: list[Purpose] = []
    while len(tried) < most:
        step = next_step(problem, tried)
        if isinstance(step, Answer):
            return step, tried, purposes
        tried.append(Tried(step.config, target(step.config)))
        purposes.append(step.purpose)
    raise AssertionError(f"no answer after {most} launches")


def needs(*sets: int) -> Target:
    """Fails where all of any one of these sets is kept."""
    return lambda config: SAME if any(one & ~config == 0 for one in sets) else PASSES


def even(count: int, **more: object) -> Problem:
    return Problem(weights=(1.0,) * count, **more)  # type: ignore[arg-type]  # fields by name


def test_the_first_two_questions_are_whether_it_fails_again_and_whether_the_barest_command_passes() -> None:
    _, _, purposes = search(even(12), needs(0b100))
    assert purposes[:2] == [Purpose.BASELINE, Purpose.BAREST]
    assert purposes[-2:] == [Purpose.FAILS_AGAIN, Purpose.FIX]


def test_the_story_of_the_graphs_takes_four_launches_and_two_to_verify() -> None:
    """Speculation, attention backend, graphs: it hangs with and without speculation, and passes without graphs."""
    graphs = 0b100
    problem = Problem(weights=(1.5, 1.0, 1.5), remedies=graphs)
    answer, tried, purposes = search(problem, needs(graphs))
    assert (answer.kind, answer.failing, answer.fix) == ("found", graphs, graphs)
    assert len(tried) <= 6, purposes


def test_the_story_takes_no_more_where_four_other_settings_stand_in_the_command_too() -> None:
    """Two of seven settings work in the failing phase; whichever it is."""
    suspects = [Setting(label=str(at), changes=(), suspicion=0.35 if at in (1, 2) else 0.0) for at in range(7)]
    answer, tried, purposes = search(Problem(weights=weights(suspects)), needs(0b10))
    assert (answer.kind, answer.failing, answer.fix) == ("found", 0b10, 0b10)
    assert len(tried) <= 6, purposes


def test_a_command_that_does_not_fail_again_is_launched_three_times_and_no_more() -> None:
    answer, tried, _ = search(even(5), lambda _: PASSES)
    assert (answer.kind, len(tried)) == ("not_reproduced", 3)


def test_a_barest_command_that_fails_too_means_that_no_setting_is_at_fault() -> None:
    answer, tried, _ = search(even(20), lambda _: SAME)
    assert (answer.kind, answer.failing, len(tried)) == ("elsewhere", 0, 2)


def test_of_two_causes_that_each_suffice_the_fix_changes_both() -> None:
    answer, _, _ = search(even(8), needs(0b1, 0b1000))
    assert answer.failing in (0b1, 0b1000)
    assert answer.fix == 0b1001


def test_more_culprits_than_hypotheses_hold_are_found_one_after_the_other() -> None:
    culprits = 0b1011_0110_1000_0001
    answer, tried, _ = search(even(16), needs(culprits))
    assert answer.failing == culprits
    assert len(tried) < 60


def test_a_suspect_that_is_right_is_found_at_once() -> None:
    problem = Problem(weights=(1.0,) * 9 + (19.0,) + (1.0,) * 10)
    _, _, purposes = search(problem, needs(1 << 9))
    assert purposes.count(Purpose.NARROW) == 1


def test_a_configuration_that_fails_in_another_way_is_not_asked_again_and_again() -> None:
    def target(config: int) -> Outcome:
        return DIFFERENT if config & 0b11 == 0b01 else needs(0b100)(config)

    answer, tried, _ = search(even(6), target)
    assert answer.failing == 0b100
    spoilt = [one.config for one in tried if one.outcome is DIFFERENT]
    assert max(map(spoilt.count, spoilt), default=0) <= 2


def test_where_all_goes_wrong_in_a_new_way_the_unchanged_command_is_launched_again_and_the_search_ends() -> None:
    launched = []

    def target(config: int) -> Outcome:
        launched.append(config)
        return DIFFERENT if len(launched) > 3 else needs(0b100)(config)

    answer, tried, _ = search(even(12), target)
    assert answer.kind == "changed"
    assert tried[-1].config == 0b1111_1111_1111
    assert len(tried) == 3 + 4 + 1


def test_where_the_barest_command_fails_otherwise_the_remedies_are_left_out() -> None:
    remedies = 0b1100

    def target(config: int) -> Outcome:
        return DIFFERENT if config & remedies == 0 else needs(0b1)(config)

    answer, tried, _ = search(even(4, remedies=remedies), target)
    assert [one.config for one in tried[1:3]] == [0, remedies]
    assert answer.fix == 0b1


@pytest.mark.parametrize(("rate", "told"), [(0.3, True), (0.7, True), (0.7, False)])
def test_an_intermittent_failure_is_found_with_as_many_repeats_as_it_takes(rate: float, told: bool) -> None:
    draw = random.Random(5)
    right = 0
    for _ in range(12):
        culprit = 1 << draw.randrange(8)

        def target(config: int, culprit: int = culprit) -> Outcome:
            return SAME if config & culprit and draw.random() < rate else PASSES

        answer, _, _ = search(even(8, intermittent=told, baselines=50), target)
        right += answer.failing == culprit
    assert right >= 11


def test_the_same_trials_give_the_same_step_so_that_a_search_can_be_taken_up_anywhere() -> None:
    _, tried, _ = search(even(10), needs(0b1_0001))
    again: list[Tried] = []
    for one in tried:
        step = next_step(even(10), again)
        assert isinstance(step, Ask)
        assert step.config == one.config
        again.append(one)


def test_the_mean_number_of_launches_is_that_of_prefix_bisection_or_less() -> None:
    """Figures of the plain method for one of 16; the whole table is bench/isolation.py."""
    searching = [Purpose.BAREST, Purpose.NARROW]
    counted = [sum(map(search(even(16), needs(1 << at))[2].count, searching)) for at in range(16)]
    assert sum(counted) / len(counted) <= 5.94


def test_a_prior_that_is_always_wrong_costs_two_launches_at_most() -> None:
    wrong = Problem(weights=(15.0,) + (1.0,) * 15)
    searching = [Purpose.BAREST, Purpose.NARROW]
    counted = [sum(map(search(wrong, needs(1 << at))[2].count, searching)) for at in range(1, 16)]
    assert sum(counted) / len(counted) <= 5.94 + 2


@st.composite
def tables(draw: st.DrawFn) -> tuple[int, list[bool]]:
    """Any function of up to five settings that fails where all are kept: not monotone, as a rule."""
    count = draw(st.integers(1, 5))
    return count, [*draw(st.lists(st.booleans(), min_size=2**count - 1, max_size=2**count - 1)), True]


@given(tables(), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_whatever_fails_the_answer_is_minimal_and_its_fix_passes(table: tuple[int, list[bool]], draw: random.Random) -> None:
    count, fails = table
    problem = Problem(weights=tuple(draw.choice((1.0, 4.0)) for _ in range(count)), remedies=draw.randrange(2**count))
    answer, _, _ = search(problem, lambda config: SAME if fails[config] else PASSES)
    assert answer.failing is not None
    assert fails[answer.failing]
    assert not any(fails[answer.failing & ~(1 << at)] for at in range(count) if answer.failing >> at & 1)
    if answer.kind == "found":
        assert answer.fix is not None
        kept = problem.full & ~answer.fix
        assert not fails[kept]
        assert all(fails[kept | 1 << at] for at in range(count) if answer.fix >> at & 1)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_outcomes_that_make_no_sense_end_the_search_all_the_same(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 5))
    table = data.draw(st.lists(st.sampled_from(Outcome), min_size=2**count, max_size=2**count))
    search(even(count), lambda config: table[config])


def at_once(problem: Problem, target: Target, width: int) -> tuple[Answer, list[Tried], int]:
    """The answer, all trials, and how often some were made at once."""
    tried: list[Tried] = []
    for rounds in range(200):
        steps = next_steps(problem, tried, width)
        if isinstance(steps, Answer):
            return steps, tried, rounds
        assert 0 < len(steps) <= width
        tried += [Tried(step.config, target(step.config)) for step in steps]
    raise AssertionError("no answer after 200 rounds")


def test_one_at_once_is_the_search_one_after_the_other() -> None:
    problem, target = even(14), needs(0b1_0000_0001)
    answer, tried, _ = search(problem, target)
    assert at_once(problem, target, 1)[:2] == (answer, tried)


def test_four_at_once_take_three_rounds_behind_the_baseline_for_one_culprit_of_sixteen() -> None:
    for culprit in range(16):
        answer, _, rounds = at_once(even(16), needs(1 << culprit), 4)
        assert (answer.kind, answer.failing, answer.fix) == ("found", 1 << culprit, 1 << culprit)
        assert rounds <= 5


def test_nothing_is_launched_beside_the_baseline() -> None:
    steps = next_steps(even(9), [], 8)
    assert isinstance(steps, tuple)
    assert [step.purpose for step in steps] == [Purpose.BASELINE]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_however_many_run_at_once_the_answer_is_minimal_and_its_fix_passes(data: st.DataObject) -> None:
    """One or two sets of settings, each of which suffices."""
    count = data.draw(st.integers(2, 9))
    culprits = [sum(1 << at for at in data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=3))) for _ in range(2)]
    target = needs(*culprits[: data.draw(st.integers(1, 2))])
    answer, _, _ = at_once(even(count), target, data.draw(st.integers(2, 6)))
    assert answer.kind == "found"
    assert answer.failing is not None
    assert answer.fix is not None
    assert target(answer.failing) is SAME
    assert all(target(answer.failing & ~(1 << at)) is PASSES for at in range(count) if answer.failing >> at & 1)
    assert target((1 << count) - 1 & ~answer.fix) is PASSES


def test_a_failure_that_comes_and_goes_is_found_with_several_at_once_too() -> None:
    draw = random.Random(5)
    problem = even(8, intermittent=True, baselines=20)
    answer, _, _ = at_once(problem, lambda config: SAME if config & 0b100 and draw.random() < 0.6 else PASSES, 4)
    assert answer.failing == 0b100
