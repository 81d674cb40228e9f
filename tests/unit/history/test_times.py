"""What earlier runs tell about how long a phase takes here."""

import json
from dataclasses import replace
from pathlib import Path

from firsttoken.history.runs import RunFolder
from firsttoken.history.times import mean_phases, with_quiet
from firsttoken.model.plan import Budget, Plan, Sizes
from firsttoken.model.words import Phase

PLAN = Plan(command=("engine", "serve", "a/model"), engine="engine", model="a/model", sizes=Sizes(tp=2, world=2))


def ran(root: Path, name: str, **changes: object) -> RunFolder:
    folder = root / name
    folder.mkdir()
    usual = {
        "verdict": "ready",
        "engine": {"name": "engine"},
        "command": ["engine", "serve", "a/model"],
        "world_size": 2,
        "phases": [{"name": "weights", "seconds": 10.0}, {"name": "first_token", "seconds": None}],
    }
    (folder / "result.json").write_text(json.dumps({**usual, **changes}))
    return RunFolder(folder)


def test_the_mean_is_over_ready_runs_of_the_same_engine_model_and_sizes(tmp_path: Path) -> None:
    folders = [
        ran(tmp_path, "a"),
        ran(tmp_path, "b", phases=[{"name": "weights", "seconds": 20}]),
        ran(tmp_path, "failed", verdict="failed", phases=[{"name": "weights", "seconds": 900}]),
        ran(tmp_path, "other-model", command=["engine", "serve", "b/model"], phases=[{"name": "weights", "seconds": 900}]),
        ran(tmp_path, "other-size", world_size=8, phases=[{"name": "weights", "seconds": 900}]),
    ]
    assert mean_phases(PLAN, folders) == {Phase.WEIGHTS: 15.0}


def test_the_longest_quiet_of_ready_runs_is_told_with_the_budgets(tmp_path: Path) -> None:
    def quiet(seconds: object, verdict: str = "ready") -> dict[str, object]:
        return {"verdict": verdict, "phases": [{"name": "weights", "seconds": 10, "quiet_s": seconds}]}

    folders = [
        ran(tmp_path, str(n), **changes) for n, changes in enumerate((quiet(3.0), quiet(7.5), quiet(None), quiet("x"), quiet(90, "failed")))
    ]
    plan = replace(PLAN, budgets=(Budget(phase=Phase.WEIGHTS, seconds=60, source="profile"),))
    assert [budget.quiet_s for budget in with_quiet(plan, folders).budgets] == [7.5]
    assert with_quiet(plan, []) == plan


def test_an_unknown_engine_is_like_no_other(tmp_path: Path) -> None:
    assert mean_phases(Plan(command=("x",)), [ran(tmp_path, "a", engine={"name": None})]) == {}


def test_results_that_are_none_teach_nothing(tmp_path: Path) -> None:
    strange = [
        {"phases": "weights"},
        {"phases": ["weights", {"name": []}, {"name": "no-phase", "seconds": 1}, {"name": "weights", "seconds": "long"}]},
        {"engine": "engine"},
        {"command": None},
        {"phases": {"weights": 3}},
    ]
    assert mean_phases(PLAN, [ran(tmp_path, str(number), **changes) for number, changes in enumerate(strange)]) == {}
