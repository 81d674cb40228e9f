"""Markdown for an engine's tracker: complete, and hostile text stays text."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_runs import HOSTILE, hung, record, served

from firsttoken.report.markdown import code, fence, markdown, plain
from firsttoken.report.report_text import report_text
from firsttoken.session.report import report_of


def of(folder: Path, story: object, log: bytes = b"one\ntwo\n", **spec: object) -> str:
    run = record(folder / "run", story, log, **spec)  # type: ignore[arg-type]  # a story
    return markdown(report_of(run, str(run.path), here=False))


def test_an_issue_has_what_a_maintainer_asks_for(tmp_path: Path) -> None:
    text = of(tmp_path, hung(), environment={"NCCL_DEBUG": "INFO x", "PATH": "/bin"})
    for title in ("Describe the bug", "Reproduction", "Environment", "Stacks, merged over all ranks", "What was tried"):
        assert f"### {title}" in text
    assert "**hung in graph_capture**" in text
    assert "```sh\nNCCL_DEBUG='INFO x' \\\nengine serve\n```" in text
    assert "| weights |" in text
    assert "ranks 0, 1, 3 (pids 200, 201, 203)" in text
    assert "/bin" not in text


def test_a_healthy_start_is_told_without_a_cause(tmp_path: Path) -> None:
    text = of(tmp_path, served())
    assert "**ready**" in text
    assert "Causes considered" not in text


def test_hostile_text_is_only_in_fences_and_code_or_escaped(tmp_path: Path) -> None:
    text = of(tmp_path, hung(f"{HOSTILE} ").error(HOSTILE, fatal=False), HOSTILE.encode("utf8", "replace") * 3, previous={"text": HOSTILE})
    outside = re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "", text)
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", outside)
    assert "<script" not in outside.replace("\\<", "")
    assert "@a" not in outside
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)


@given(st.text(max_size=60))
def test_a_code_span_ends_where_it_is_meant_to(text: str) -> None:
    shown = code(text)
    if shown:
        ticks = re.match("`+", shown)
        assert ticks is not None
        assert shown.endswith(ticks[0])
        assert ticks[0] not in shown[len(ticks[0]) : -len(ticks[0])].strip(" ") or "`" not in text
        assert "\n" not in shown
        assert "|" not in shown


@given(st.lists(st.text(max_size=30), max_size=5))
def test_a_fence_is_longer_than_any_in_it(lines: list[str]) -> None:
    shown = fence(lines, "text")
    assert shown[0] == f"{shown[-1]}text"
    assert all(shown[-1] not in line for line in shown[1:-1])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("- a list", "\\- a list"),
        ("1. a list", "1\\. a list"),
        ("@somebody and #12", "@<!-- -->somebody and \\#<!-- -->12"),
        ("<b> [x](y) `c` a|b", "\\<b\\> \\[x\\](y) \\`c\\` a\\|b"),
        ("two\nlines", "two lines"),
    ],
)
def test_markup_in_a_sentence_is_escaped(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_the_text_report_cannot_steer_a_terminal(tmp_path: Path) -> None:
    run = record(tmp_path / "run", hung(f"{HOSTILE} "), HOSTILE.encode("utf8", "replace"))
    text = report_text(report_of(run, str(run.path), here=False))
    assert text.startswith("HUNG: ")
    assert "the last lines of the log" in text
    assert all(char.isprintable() or char == "\n" for char in text)
