"""What counts as sane output: gibberish does, one token for ever does not, and a doubt is None."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.observe.sanity import Generation, sane, sane_numbers


def said(*units: str, **more: object) -> Generation:
    return Generation(text="".join(units), units=units, tokens=len(units), **more)  # type: ignore[arg-type]  # only known fields are passed


VARIED = said(" zug", "ław", " 字", "quo", "(", " reb", "\n", "ist")


@pytest.mark.parametrize(
    "one",
    [
        said(*"!!!!!!!!"),
        said("the", *[" the"] * 7),
        said(*["\n"] * 8),
        said("!!!", "!!", "!!!"),
        Generation(text="the the the the the", tokens=5),
        Generation(text="thethethethethe"),
        Generation(text="!!!!!!!!", tokens=8),
        Generation(text="", tokens=8),
        said(*"\ufffd\ufffd\ufffd \x00\x01"),
        Generation(text="\ufffd\x02\ufffd\x03" * 5),
        said("fine", " words", " come", " back", logprobs=(-0.1, math.nan)),
        said("fine", " words", " come", " back", logprobs=(None,)),
        said("fine", " words", " come", " back", logprobs=(math.inf,)),
        said("fine", " words", " come", " back", logprobs=(-9999.0,)),
    ],
)
def test_broken_output_is_not_sane(one: Generation) -> None:
    assert sane([one]) is False


@pytest.mark.parametrize(
    "one",
    [
        VARIED,
        said(" Paris", ",", " a", " city", logprobs=(-0.1, -3.0, -12.5, 0.0)),
        said(" seven", ",", " eight", ",", " nine", ","),
        said("\ufffd", " some", " half", " characters"),
        Generation(text=" Paris, the capital of the world", tokens=8),
        Generation(text="1, 2, 3, 4, 5, 6"),
        said("ha", " ha", " ho", " ha"),
    ],
)
def test_varied_output_is_sane_however_odd(one: Generation) -> None:
    assert sane([one]) is True


@pytest.mark.parametrize(
    "one", [said(), said(" Paris"), said("", ""), said("!", "!"), Generation(text="", tokens=1), Generation(text="ok")]
)
def test_a_short_answer_is_a_doubt(one: Generation) -> None:
    assert sane([one]) is None


def test_both_answers_count() -> None:
    broken = said(*"!!!!!!!!")
    assert sane([]) is None
    assert sane([broken, broken]) is False
    assert sane([broken, said(" Paris")]) is False
    assert sane([VARIED, said(" Paris")]) is True
    assert sane([broken, VARIED]) is None
    assert sane([VARIED, said(" a", " b", " c", " d", logprobs=(math.nan,))]) is False


def test_vectors_are_sane_where_their_numbers_are_finite() -> None:
    assert sane_numbers([0.1, -0.2]) is True
    assert sane_numbers([0.0]) is True
    assert sane_numbers([]) is None
    assert sane_numbers([0.1, None]) is False
    assert sane_numbers([0.1, math.inf]) is False
    assert sane_numbers([0.0] * 768) is False


@given(st.lists(st.tuples(st.lists(st.text(max_size=6), max_size=10), st.none() | st.integers(0, 20))))
def test_any_texts_can_be_judged(drawn: list[tuple[list[str], int | None]]) -> None:
    assert sane(Generation(text="".join(units), units=tuple(units), tokens=tokens) for units, tokens in drawn) in (True, False, None)
