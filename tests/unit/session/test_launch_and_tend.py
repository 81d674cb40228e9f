"""Launches that are refused leave a record; runs are told apart and ended by what their folders say."""

import asyncio
import os
import stat
import sys
from pathlib import Path

import pytest

from firsttoken.history.runs import RunFolder
from firsttoken.hosts.procfs import Procfs
from firsttoken.launch.cleanup import find_left, finish
from firsttoken.model.events import LaunchFailed, Planned
from firsttoken.model.plan import Plan, Policy
from firsttoken.session.follow import Follower
from firsttoken.session.launch import Asked, LaunchRefused, launch
from firsttoken.session.tend import cleanup, run_state, signal_server, stop


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTTOKEN_HOME", str(tmp_path))


def asked(*argv: str) -> Asked:
    return Asked(argv=argv, plan=Plan(command=argv), policy=Policy(), observer=(sys.executable, "-c", "pass"))


def test_a_refused_launch_can_be_judged_listed_and_stopped() -> None:
    with pytest.raises(LaunchRefused, match="no-such-engine was not found") as refused:
        launch(asked("no-such-engine"))
    folder = refused.value.folder
    assert refused.value.code == 127
    assert folder.spec()["command"] == ["no-such-engine"]
    assert any(isinstance(event.body, LaunchFailed) for event in folder.events())
    assert any(isinstance(event.body, Planned) for event in folder.events())
    assert run_state(folder) == "ended"
    told = Follower(folder=folder).stored()
    assert (told.verdict, told.command) == ("failed", ("no-such-engine",))
    assert asyncio.run(stop(folder, force=False, max_wait=5)).text == "this run has ended; nothing is left of it"


def test_a_home_that_cannot_be_made_is_an_error_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FIRSTTOKEN_HOME", str(tmp_path / "file"))
    with pytest.raises(OSError, match="file"):
        launch(asked("true"))


def test_a_run_goes_from_running_to_ended_and_its_folder_is_private() -> None:
    folder, keeper = launch(asked("sleep", "300"))
    try:
        assert run_state(folder) == "running"
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
        assert asyncio.run(cleanup(folder, dry_run=False)) == ((), ())
        stopped = asyncio.run(stop(folder, force=False, max_wait=30))
        assert (stopped.was, stopped.left, stopped.text) == ("running", (), "stopped")
        assert run_state(folder) == "ended"
    finally:
        keeper.release()
        finish(folder.path, seconds=5)
    assert not find_left(folder.path)


def test_without_its_keeper_a_run_is_left_and_takes_signals_and_cleanup() -> None:
    folder, keeper = launch(asked("sleep", "300"))
    try:
        os.kill(keeper.keeper.pid, 9)
        assert keeper.wait(10)
        assert run_state(folder) == "left"
        assert asyncio.run(cleanup(folder, dry_run=True)) == ((keeper.server.pid,), ())
        assert Procfs().alive(*keeper.server)
        assert signal_server(folder, 18)  # SIGCONT
        ended, left = asyncio.run(cleanup(folder, dry_run=False))
        assert (ended, left) == ((keeper.server.pid,), ())
        assert run_state(folder) == "ended"
        assert not signal_server(folder, 18)
    finally:
        keeper.release()
        finish(folder.path, seconds=5)
    assert not find_left(folder.path)


def test_a_folder_without_a_keeper_is_a_run_that_never_started(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert run_state(folder) == "none"
    assert asyncio.run(stop(folder, force=True, max_wait=5)).was == "none"


@pytest.mark.parametrize("keeper", [{"pid": "x"}, {"pid": 1}, {"pid": 1, "start": 0, "boot_id": "another"}, {"server": 5}])
def test_a_keeper_of_another_boot_or_none_at_all_is_never_taken_for_a_living_one(tmp_path: Path, keeper: dict[str, object]) -> None:
    folder = RunFolder(tmp_path)
    folder.write_json("keeper.json", keeper)
    assert run_state(folder) == "ended"
    assert not signal_server(folder, 18)
