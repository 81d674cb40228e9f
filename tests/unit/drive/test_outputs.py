"""Lossless or not: ties, servers that do not repeat themselves, and real partings."""

import pytest

from firsttoken.drive.client import Reply
from firsttoken.drive.outputs import compare, explained, lossless, place
from firsttoken.model.speculation import Parting


def reply(text: str, prompt: str = "p") -> Reply:
    return Reply(prompt=prompt, text=text, tokens=len(text.split()), counted=True, events=1, asked=0.0, first=1.0, last=2.0)


def tokens(text: str, margin: float | None) -> list[tuple[str, float | None]]:
    return [(word + " ", margin) for word in text.split()]


def test_equal_outputs_are_lossless_and_nothing_compared_is_unknown() -> None:
    assert lossless(compare([(1, reply("a b"), reply("a b"))])) is True
    assert lossless(compare([])) is None


@pytest.mark.parametrize(("one", "other", "at"), [("abc", "abc", None), ("abc", "abd", 2), ("ab", "abc", 2), ("", "x", 0)])
def test_where_two_texts_part(one: str, other: str, at: int | None) -> None:
    assert place(one, other) == at


def test_the_earliest_partings_come_first() -> None:
    late, early = (reply("a b c d", "late"), reply("a b c x", "late")), (reply("a b c d", "early"), reply("x b c d", "early"))
    found = compare([(1, *late), (1, *early)])
    assert [one.prompt for one in found.parted] == ["early", "late"]
    assert found.agree == 0


@pytest.mark.parametrize(
    ("again", "why", "answer"),
    [
        (tokens("a b c d", 0.01), Parting.TIE, None),
        (tokens("a b c d", 3.0), Parting.CLEAR, False),
        (tokens("a b c d", None), Parting.UNTOLD, None),
        (tokens("a x c d", 3.0), Parting.UNSTABLE, None),
        (None, Parting.UNTOLD, None),
    ],
)
def test_a_parting_is_held_against_the_baseline_asked_once_more(
    again: list[tuple[str, float | None]] | None, why: Parting, answer: bool | None
) -> None:
    baseline, speculative = reply("a b c d "), reply("a b x y ")
    found = compare([(1, baseline, speculative)])
    told = explained(found.parted[0], baseline.text, again, 4)
    assert told.why is why
    assert lossless(compare([(1, baseline, speculative)])) is None
    assert lossless(type(found)(compared=1, agree=0, parted=(told,))) is answer
