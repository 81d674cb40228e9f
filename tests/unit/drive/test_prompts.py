"""Prompts: our own of several kinds, and the user's in several forms."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.drive.prompts import BadPrompts, draw, parse, shipped


def test_the_first_few_hold_some_of_every_kind() -> None:
    kinds = [prompt.name.split()[0] for prompt in shipped()]
    assert set(kinds[:4]) == {"code", "chat", "reasoning", "summarising"}
    assert len(shipped()) == 24
    assert all(100 < len(prompt.text) < 1200 for prompt in shipped())


def test_no_two_draws_are_the_same_text() -> None:
    texts = [draw(shipped(), number).text for number in range(200)]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (b'{"prompt": "a"}\n\n{"text": "b"}\n', ["a", "b"]),
        (b'{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}', ["u"]),
        (b'{"conversations": [{"from": "human", "value": "h"}]}', ["h"]),
        (b"one\nmore\n\n\ntwo\r\n", ["one\nmore", "two"]),
    ],
)
def test_the_users_prompts_are_read_in_several_forms(content: bytes, texts: list[str]) -> None:
    assert [prompt.text for prompt in parse(content)] == texts


@pytest.mark.parametrize(("content", "says"), [(b"", "no prompt"), (b'{"a": 1}', "line 1"), (b'{"prompt": "a"}\n{', "line 2")])
def test_what_holds_no_prompt_is_refused_by_line(content: bytes, says: str) -> None:
    with pytest.raises(BadPrompts, match=says):
        parse(content)


@given(st.binary(max_size=300))
def test_any_file_is_read_or_refused(content: bytes) -> None:
    with contextlib.suppress(BadPrompts):
        assert parse(content)
