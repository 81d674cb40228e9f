"""Earlier answers about speculation are found by what they were about."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from firsttoken.history.speculations import folder, latest, save


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTTOKEN_HOME", str(tmp_path))


def day(number: int) -> datetime:
    return datetime(2026, 11, number, tzinfo=UTC)


def test_the_latest_of_the_same_command_is_found() -> None:
    for number, command, speedup in ((1, "a", 0.5), (2, "a", 0.7), (3, "b", 0.9)):
        save({"command": [command], "speedup": speedup, "measured": {"prompts": "ours"}}, day(number))
    keys = ("command", "measured.prompts")
    assert (latest({"command": ["a"], "measured": {"prompts": "ours"}}, keys) or {})["speedup"] == 0.7
    assert latest({"command": ["a"], "measured": {"prompts": "theirs"}}, keys) is None
    assert latest({"command": ["c"]}, ("command",)) is None


def test_answers_without_a_speed_up_and_damaged_files_are_passed_over() -> None:
    assert latest({}, ()) is None
    save({"command": ["a"], "speedup": 0.5}, day(1))
    save({"command": ["a"], "speedup": None}, day(2))
    (folder() / "20261130-000000-ffff.json").write_text(json.dumps([1])[:-1])
    assert (latest({"command": ["a"]}, ("command",)) or {})["speedup"] == 0.5


def test_they_are_for_their_owner_alone() -> None:
    file = save({"command": ["a"]}, day(1))
    assert file.stat().st_mode & 0o77 == 0
    assert folder().stat().st_mode & 0o77 == 0
