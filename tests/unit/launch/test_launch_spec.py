"""The specification survives its journey, and what is wrong with one is said."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.launch.spec import LadderWaits, LaunchSpec, SpecError, from_json

NAMES = st.binary(min_size=1, max_size=20).filter(lambda raw: b"\0" not in raw).map(os.fsdecode)


@given(st.lists(NAMES, min_size=1, max_size=4), st.dictionaries(NAMES, NAMES, max_size=3), st.booleans(), st.integers(0, 9))
def test_any_command_travels_unchanged(argv: list[str], env: dict[str, str], flag: bool, number: int) -> None:
    spec = LaunchSpec(
        run="r", node="n", argv=tuple(argv), shown_argv=("x",), env=env, mark=flag, terminates=number, waits=LadderWaits(terminate=number)
    )
    assert from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"run": "r", "node": "n", "shown_argv": ["a"]}', "has no argv"),
        (b'{"run": "r", "node": "n", "argv": [], "shown_argv": ["a"]}', "has no argv"),
        (b'{"run": 1}', "run of the launch specification has the wrong kind"),
        (b'{"terminates": true}', "terminates"),
        (b'{"argv": ["a\\u0000"]}', "NUL"),
        (b'{"colour": 1}', "unknown fields: colour"),
        (b'{"run": "r", "node": "n", "argv": ["a"], "shown_argv": ["a"], "on_observer_death": "cry"}', "neither keep nor stop"),
        (b'{"run": "r", "node": "n", "argv": ["a"], "shown_argv": ["a"], "waits": {"kill": 1}}', "waits"),
    ],
)
def test_what_is_wrong_is_said(raw: bytes, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        from_json(raw)


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else(raw: bytes) -> None:
    with pytest.raises(SpecError):
        from_json(raw)
