"""The attempt before this one: which run that is, and what its record shows of its end."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from firsttoken.history.attempts import RECENT, Attempt, latest, post_mortem
from firsttoken.history.runs import RunFolder, create, runs
from firsttoken.model.codec import encode
from firsttoken.model.events import Body, Emptied, Event, Exited, LaunchFailed, OomKill, StopAsked, Tick
from firsttoken.model.process import ProcessKey

NOW = datetime(2026, 11, 29, 18, 11, 45, tzinfo=UTC)
COMMAND = ["engine", "serve"]
ROOT = ProcessKey("a", 100, 1)
LEFT = Attempt(run="r", attempt=1, seconds=599.4, phase="weights", served=False, stop_by=None, exit=None, oom=False, ended=False)


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTTOKEN_HOME", str(tmp_path / "home"))


def recorded(*bodies: Body, command: list[str] = COMMAND, wall: float = 1e9, hour: int = 18, **spec: object) -> RunFolder:
    folder = create("engine", NOW.replace(hour=hour))
    folder.write_json("spec.json", {"command": command, **spec})
    folder.write_json("result.json", {"verdict": "starting", "phase": "weights"})
    lines = [encode(Event(seq=i, t=599.4, wall=wall, node="a", body=body)) for i, body in enumerate(bodies, start=1)]
    folder.events_file.write_bytes(b'{"torn": ' + b"\n" + b"".join(lines))
    return folder


def found(now: float = 1e9 + 5) -> Attempt | None:
    last = latest(runs(), COMMAND, "a", now)
    return last[1] if last is not None else None


def test_the_latest_run_of_the_same_command_is_the_attempt_before() -> None:
    recorded(Tick(), hour=17)
    mine = recorded(Tick(), attempt=3, hour=18)
    recorded(Tick(), command=["other"], hour=19)
    before = found()
    assert before is not None
    assert (before.run, before.attempt, before.phase, before.seconds, before.ended) == (mine.name, 3, "weights", 599.4, False)


def test_a_run_of_long_ago_of_another_node_or_that_somebody_attached_to_is_no_attempt() -> None:
    recorded(Tick())
    assert found(1e9 + RECENT + 1) is None
    assert latest(runs(), COMMAND, "b", 1e9) is None
    runs()[0].write_json("attached.json", {"run": "x"})
    assert found() is None


def test_a_folder_in_which_nothing_stands_is_no_attempt() -> None:
    create("engine", NOW).write_json("spec.json", {"command": COMMAND})
    assert found() is None


def test_its_record_tells_how_it_ended() -> None:
    recorded(StopAsked(by="signal SIGTERM"), OomKill(source="cgroup"), Exited(process=ROOT, signal=9, root=True), Emptied())
    before = found()
    assert before is not None
    assert (before.stop_by, before.oom, before.exit, before.ended) == ("signal SIGTERM", True, 9, True)


def test_a_command_that_could_not_be_started_did_not_break_off() -> None:
    recorded(LaunchFailed(error="not found"))
    before = found()
    assert before is not None
    assert post_mortem(before) is None


@pytest.mark.parametrize(
    ("before", "said"),
    [
        (LEFT, "broke off without a last word after 599 s in weights"),
        (replace(LEFT, ended=True, exit=9), "was killed by SIGKILL after 599 s in weights: looks like an OOM kill or a start-up probe"),
        (replace(LEFT, ended=True, exit=137), "was killed by SIGKILL after 599 s in weights"),
        (replace(LEFT, ended=True, exit=9, oom=True), "was killed by the kernel's OOM killer after 599 s in weights"),
        (replace(LEFT, ended=True, exit=9, served=True), "looks like an OOM kill or a liveness probe"),
        (
            replace(LEFT, ended=True, exit=15, stop_by="signal SIGTERM"),
            "was told to end by SIGTERM after 599 s in weights: looks like a start-up",
        ),
    ],
)
def test_an_attempt_that_was_killed_is_told_by_the_next(before: Attempt, said: str) -> None:
    told = post_mortem(before)
    assert told is not None
    assert said in told.text
    assert told.text.startswith("the previous attempt (r) ")
    assert told.attempt == 2


@pytest.mark.parametrize(
    "before",
    [
        replace(LEFT, ended=True, exit=1),
        replace(LEFT, ended=True, exit=9, stop_by="stop"),
        replace(LEFT, ended=True, exit=15, stop_by="signal SIGINT"),
        replace(LEFT, ended=True, exit=0, stop_by="signal SIGTERM", served=True),
        replace(LEFT, stop_by="stop"),
    ],
)
def test_one_that_ended_by_itself_or_by_its_user_needs_no_post_mortem(before: Attempt) -> None:
    assert post_mortem(before) is None
