"""Anchors: what a line must hold for a regex to match it. Too few words are slow, a wrong one loses lines."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.observe.log_anchors import anchor


@pytest.mark.parametrize(
    ("pattern", "words", "parts"),
    [
        (r"Loading weights took (?P<seconds>[\d.]+) seconds", {"weights"}, {"Loading weights took "}),
        (r"^Killed$", {"Killed"}, {"Killed"}),
        (r"Init (?:torch distributed|parallel) begin\.", {"distributed", "parallel"}, {"torch distributed", "parallel"}),
        (r"a|b", set(), set()),
        (r"(?:maybe this )?", set(), set()),
        (r"Err(?:or)? here", set(), {" here"}),
        (r"\bgraphs? of", set(), {"graph"}),
        (r"size=(?P<n>\d+)x", set(), {"size="}),
        (r" size=(?P<n>\d+)x", {"size"}, {" size="}),
        (r"[abc]word\b", set(), {"word"}),
        (r"(?i:loud)", set(), set()),
        (r"(?!no) yes ", {"yes"}, {" yes "}),
        (r"a{2,}ble table (?:x){0,3}", {"table"}, {"ble table "}),
        (r"this_that \w+", {"that"}, {"this_that "}),
    ],
)
def test_what_must_occur(pattern: str, words: set[str], parts: set[str]) -> None:
    found = anchor(pattern)
    assert (found.words, found.parts) == (words, parts)


PIECES = st.sampled_from(
    [
        "load",
        "weights",
        " ",
        ".",
        r"\d+",
        r"\w",
        r"\.",
        "(?:a|b)",
        "(?P<{}>x|yy)",
        "o?",
        " *",
        "[a-z]",
        r"\b",
        "(?:one two|three)",
        ": ",
        "z{2}",
    ]
)


@given(st.lists(PIECES, min_size=1, max_size=6), st.text(alphabet="load weightsxyonetwhrabz.:1 ", max_size=60))
def test_a_line_without_its_anchor_never_matches(pieces: list[str], line: str) -> None:
    pattern = "".join(piece.format(f"g{index}") if "{}" in piece else piece for index, piece in enumerate(pieces))
    found = anchor(pattern)
    if re.search(pattern, line):
        words = set(re.findall("[A-Za-z]+", line))
        assert not found.words or found.words & words, pattern
        assert not found.parts or any(part in line for part in found.parts), pattern


@given(st.text(max_size=40))
def test_reading_takes_any_text(pattern: str) -> None:
    anchor(pattern)
