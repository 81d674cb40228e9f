"""From costs and acceptance to the answer: each reason where it is the reason."""

from collections.abc import Sequence

import pytest
from made_stretches import blocks, stretch

from firsttoken.drive.counters import Counts
from firsttoken.drive.opinion import opinion, tuned
from firsttoken.drive.weigh import Pair, candidates, level, predicted
from firsttoken.model.speculation import Level, Opinion, Ratio, Sampling, Tried


def measured(step_ms: float, draft_ms: float, curve: Sequence[float], *, users: int = 1, noise: float = 0.005) -> Level:
    found = level(users, blocks(step_ms / 1000, draft_ms / 1000, curve, users=users, noise=noise), draft_tokens=None)
    assert found is not None
    return found


def said(*levels: Level, copies: bool = False) -> Opinion:
    return opinion(levels, draft_tokens=None, copies=copies)


def test_a_bad_drafter_is_turned_off_with_the_acceptance_from_which_it_would_pay() -> None:
    found = measured(8.25, 3.25, [0.33, 0.09, 0.03])
    assert found.speedup.value == pytest.approx(1.45 * 8.25 / 18, rel=0.03)
    assert found.speedup.high < 1
    assert found.acceptance.rate == pytest.approx(0.15, abs=0.01)
    assert found.costs is not None
    assert found.costs.break_even == pytest.approx(0.394, abs=0.03)
    answer = said(found)
    assert (answer.pays, answer.cause) == (False, "acceptance-too-low")
    assert "turn it off" in answer.suggestion
    assert "times as fast (95 % interval" in answer.reason


def test_a_good_drafter_is_kept() -> None:
    answer = said(measured(8.25, 3.25, [0.9, 0.85, 0.8]))
    assert (answer.pays, answer.cause) == (True, "pays")
    assert answer.suggestion.startswith("keep it")


def test_a_drafter_of_which_nothing_is_accepted_does_not_fit_and_the_checks_are_named() -> None:
    answer = said(measured(8, 3, [0.0, 0.0, 0.0]))
    assert (answer.pays, answer.cause) == (False, "drafter-does-not-fit")
    for check in ("hidden states", "vocabulary", "layers"):
        assert check in answer.suggestion


def test_good_at_the_first_position_and_then_falling_asks_for_fewer_draft_tokens() -> None:
    found = measured(10, 3, [0.85, 0.3, 0.1, 0.03, 0.01])
    answer = said(found)
    assert (answer.pays, answer.cause, answer.draft_tokens) == (False, "too-many-draft-tokens", 1)
    promised = predicted(found, 5)
    assert promised[1] == pytest.approx(1.85 / 1.3, rel=0.05)
    assert max(promised, key=lambda number: promised[number]) == 1


def test_a_drafter_as_slow_as_the_target_does_not_pay_though_all_is_accepted() -> None:
    answer = said(measured(10, 10.5, [1.0, 1.0, 1.0]))
    assert (answer.pays, answer.cause) == (False, "drafter-too-slow")
    assert "10.5 ms" in answer.reason


def test_a_drafter_that_copies_is_never_said_to_misfit() -> None:
    answer = said(measured(10, 1, [0.02, 0.01, 0.0]), copies=True)
    assert (answer.pays, answer.cause) == (False, "nothing-to-copy")


def test_no_difference_is_no_gain() -> None:
    answer = said(measured(10, 4.4, [0.66, 0.44, 0.22], noise=0.001))
    assert (answer.pays, answer.cause) == (False, "equal")


def test_noise_that_hides_the_sign_asks_for_more_blocks() -> None:
    answer = said(measured(10, 4.1, [0.66, 0.44, 0.22], noise=0.2))
    assert (answer.pays, answer.cause) == (None, "undecided")
    assert answer.more_blocks
    assert f"--blocks {8 + answer.more_blocks}" in answer.suggestion


def test_a_batch_that_fills_the_machine_is_told_with_the_number_of_users_up_to_which_it_pays() -> None:
    answer = said(measured(8, 2, [0.8, 0.6, 0.4]), measured(9, 3, [0.8, 0.6, 0.4], users=4), measured(16, 18, [0.8, 0.6, 0.4], users=16))
    assert (answer.pays, answer.cause) == (None, "full-batch")
    assert "up to 4 users" in answer.suggestion


def test_numbers_to_try_begin_with_the_most_promising_and_leave_out_the_present_one() -> None:
    assert candidates([measured(10, 3, [0.85, 0.3, 0.1, 0.03, 0.01])], None)[0] == 1
    deeper = candidates([measured(10, 0.5, [0.98, 0.96, 0.94])], None)
    assert deeper[0] > 3
    assert 3 not in deeper


def test_what_was_tried_decides_over_what_was_promised() -> None:
    main = measured(10, 3, [0.85, 0.3, 0.1, 0.03, 0.01])
    before = said(main)
    better = Tried(draft_tokens=2, ratio=Ratio(value=1.4, low=1.3, high=1.5, blocks=8), acceptance=0.5)
    worse = Tried(draft_tokens=1, ratio=Ratio(value=0.9, low=0.8, high=0.95, blocks=8), acceptance=0.8)
    assert tuned(before, [main], [worse, better]).suggestion.startswith("use 2 draft tokens: 1.40 times as fast")
    assert tuned(before, [main], [worse]).suggestion.startswith("turn it off")
    assert tuned(before, [main], []) == before


def test_too_few_blocks_give_no_level() -> None:
    assert level(1, blocks(0.01, 0.001, [0.5], number=3), draft_tokens=None) is None


def test_a_drafter_that_drafts_now_and_then_is_weighed_by_all_steps_and_promised_nothing() -> None:
    now_and_then = Counts(drafts=5, drafted=15, accepted=10, by_position=(5, 3, 2))
    pairs = Pair(baseline=stretch(0.01), speculative=stretch(0.0095, counts=now_and_then))
    found = level(1, [(pairs, pairs)] * 8, draft_tokens=3)
    assert found is not None
    assert found.costs is not None
    assert found.costs.drafted == pytest.approx(15 / 50)
    assert found.costs.round_s == pytest.approx(0.0095 * 60 / 50)
    assert predicted(found, 3) == {}
    assert candidates([found], 3) == []


def test_greedy_and_sampled_answers_that_say_the_opposite_are_told_apart() -> None:
    made = [
        tuple(
            Pair(baseline=stretch(0.01, sampling=kind), speculative=stretch(step, sampling=kind))
            for kind, step in ((Sampling.GREEDY, 0.005), (Sampling.SAMPLED, 0.012))
        )
        for _ in range(8)
    ]
    found = level(1, made, draft_tokens=3)
    assert found is not None
    answer = said(found)
    assert (answer.pays, answer.cause) == (None, "depends-on-sampling")
    assert "keep it for greedy answers" in answer.suggestion


def test_a_server_that_drafts_nothing_is_not_judged_by_its_speed() -> None:
    pairs = Pair(baseline=stretch(0.01), speculative=stretch(0.011, counts=Counts(drafts=0, drafted=0, accepted=0)))
    found = level(1, [(pairs, pairs)] * 8, draft_tokens=3)
    assert found is not None
    assert (said(found).pays, said(found).cause) == (None, "nothing-drafted")
    assert said(found, copies=True).pays is False


def test_nothing_measured_is_no_answer() -> None:
    assert (said().pays, said().cause) == (None, "not-measured")


def test_an_undecided_first_level_is_not_decided_by_another_one() -> None:
    unsure = measured(10, 4.1, [0.66, 0.44, 0.22], noise=0.2)
    assert said(unsure, measured(8, 2, [0.8, 0.6, 0.4], users=4)).cause == "undecided"
