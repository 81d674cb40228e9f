"""A command as it was pasted."""

from hypothesis import given
from hypothesis import strategies as st

from firsttoken.survey.command_text import read_command


def test_assignments_before_the_command_are_its_environment() -> None:
    argv, env = read_command("A=1 B='x y' serve --model m\n")
    assert argv == ("serve", "--model", "m")
    assert env == {"A": "1", "B": "x y"}


def test_continued_lines_prompts_and_comments_are_understood() -> None:
    argv, _ = read_command("# how I start it\n$ serve \\\n  --port 1\n")
    assert argv == ("serve", "--port", "1")


def test_an_open_quote_still_gives_words() -> None:
    assert read_command('serve --config \'{"a": 1}')[0][:2] == ("serve", "--config")


@given(st.text(max_size=500))
def test_no_text_makes_it_raise(text: str) -> None:
    read_command(text)
