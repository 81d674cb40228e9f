"""`isolate` from the command line: real launches, few and cheap ones."""

import asyncio
import contextlib
import json
import os
import shlex
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_runs import FAKE, Cli, until
from click.testing import CliRunner

from firsttoken.faces.cli.main import cli as group
from firsttoken.history.runs import RunFolder
from firsttoken.launch.cleanup import find_left
from firsttoken.model.plan import Policy
from firsttoken.session.isolating.trial import run_trial
from firsttoken.session.launch import Asked
from firsttoken.session.planning import OBSERVER, plan_of

BROKEN = (
    "env", "OTHER=1", "BREAK=1", "sh", "-c", f'[ -z "$BREAK" ] || {{ echo "RuntimeError: broken"; exit 3; }}; exec {shlex.join(FAKE)}'
)  # fmt: skip
"""A server that fails with one of two variables."""

ENGINE = (sys.executable, "-m", "firsttoken.rehearsal")
KEYS = {
    "schema", "kind", "baseline", "minimal_failing", "minimal_fix", "trials", "launches", "seconds", "posterior", "reproduce",
}  # fmt: skip


def left(cli: Cli) -> list[str]:
    runs = cli.home / "runs"
    return [folder.name for folder in (runs.iterdir() if runs.is_dir() else ()) if find_left(folder)]


def ledger(cli: Cli) -> list[dict[str, Any]]:
    files = list((cli.home / "isolations").glob("*/ledger.jsonl")) if (cli.home / "isolations").is_dir() else []
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.mark.timeout(300)
def test_graphs_at_fault_are_found_on_the_embedded_engine_and_nothing_is_left(cli: Cli) -> None:
    command = (*ENGINE, "--port", "0", "--shards", "1", "--shard-mb", "0.01", "--fault", "crash@compile", "--fault-when", "graphs")
    said = cli("isolate", "--json", "--keep", "--shards", "--keep", "--shard-mb", "--try", "--no-graphs", "--", *command, seconds=280)
    assert said.code == 0, said
    assert said.json.keys() >= KEYS
    assert [one["label"] for one in said.json["minimal_failing"]] == ["graphs"]
    assert said.json["baseline"]["signature"]["phase"] == "compile"
    assert "ready" in {one["verdict"] for one in said.json["trials"]}
    assert left(cli) == []


@pytest.mark.timeout(300)
def test_two_at_once_and_a_trial_that_stands_like_the_baseline_need_not_be_waited_out(cli: Cli) -> None:
    """Nothing proves that what waits for an address hangs: what the answer rests on is given all our patience, what searches is not."""
    fault = ("--fault", "connect@compile", "--fault-when", "graphs")
    command = (*ENGINE, "--port", "0", "--shards", "1", "--shard-mb", "0.01", "--graphs", "--draft-quality", "0.6", *fault)
    said = cli("isolate", "--json", "--parallel", "2", "--max-waiting", "30", "--", *command, seconds=280)
    assert said.code == 0, said
    assert [one["label"] for one in said.json["minimal_failing"]] == ["graphs (--graphs)"]
    trials = said.json["trials"]
    first, place, *others = sorted(trials, key=lambda one: one["number"])
    assert (first["place"], first["until"], place["place"], place["purpose"]) == (
        0,
        "decided",
        1,
        "does it fail alike on these GPUs and this port?",
    )
    same = [(one["purpose"], one["until"]) for one in others if one["outcome"] == "same"]
    assert set(same) == {("which settings are at fault?", "alike"), ("does the minimal failing configuration fail again?", "decided")}, (
        trials
    )
    assert len({one["place"] for one in others}) == 2, trials
    assert left(cli) == []


@pytest.mark.timeout(300)
def test_killed_and_given_again_it_goes_on_where_it_was_and_nothing_is_left_running(cli: Cli) -> None:
    """SIGKILL while the barest command, which does not fail, is up or on its way."""
    call = cli.start("isolate", "--json", "--keep", "OTHER", "--", *BROKEN)
    until(lambda: any(row["kind"] == "launch" and row["number"] == 2 for row in ledger(cli)))
    call.process.send_signal(signal.SIGKILL)
    call.process.wait()
    until(lambda: not left(cli))
    said = cli("isolate", "--json", "--keep", "OTHER", "--", *BROKEN, seconds=240)
    assert said.code == 0, said
    assert [one["label"] for one in said.json["minimal_failing"]] == ["BREAK=1"]
    assert said.json["reproduce"].startswith("env OTHER=1 BREAK=1 sh -c")
    assert sum(row["kind"] == "trial" and row["trial"]["purpose"] == "does the command fail again?" for row in ledger(cli)) == 1
    assert len({one["number"] for one in said.json["trials"]}) == len(said.json["trials"])
    assert left(cli) == []


@pytest.mark.timeout(120)
def test_what_was_seen_on_other_gpus_is_another_search(cli: Cli) -> None:
    call = ("isolate", "--budget", "1", "--", *BROKEN)
    for gpus, again in (("0,1", False), ("2,3", False), ("2,3", True)):
        said = cli(*call, env={"CUDA_VISIBLE_DEVICES": gpus}, seconds=60)
        assert ("going on with" in said.err) is again, said


def test_a_trial_that_cannot_be_written_down_is_over_before_its_error_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTTOKEN_HOME", str(tmp_path))
    begun = []

    def full(folder: RunFolder) -> None:
        begun.append(folder)
        raise OSError("the disk is full")

    argv = ("sleep", "60")
    asked = Asked(argv=argv, plan=plan_of(argv), policy=Policy(), observer=OBSERVER, on_observer_death="stop")
    with pytest.raises(OSError, match="full"):
        asyncio.run(
            run_trial(
                asked,
                beyond=None,
                alike=None,
                seconds=60.0,
                started=full,
                interrupted=lambda: False,
                watch=lambda _: contextlib.nullcontext(),
            )
        )
    assert len(begun) == 1
    assert not find_left(begun[0].path)


def test_a_port_that_somebody_listens_on_is_refused_before_anything_is_launched(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        said = cli("isolate", "--", "firsttoken", "rehearse", "--graphs", "--port", port)
    assert said.code == 3
    assert f"(pid {os.getpid()}) listens there" in said.err
    assert not (cli.home / "runs").exists()


def test_a_program_that_is_not_there_ends_as_in_a_shell(cli: Cli) -> None:
    said = cli("isolate", "--json", "--", "no-such-folder/vllm", "serve", "m", "--enforce-eager", "--port", "1")
    assert (said.code, said.json["state"], said.json["launches"]) == (127, "refused", 0)


def dry(*arguments: str) -> str:
    said = CliRunner().invoke(group, ["isolate", "--dry-run", *arguments], prog_name="firsttoken")
    assert said.exit_code == 0, said.output
    return said.output


def test_a_dry_run_shows_settings_plan_and_price(snapshot: Any) -> None:
    said = dry("--", "firsttoken", "rehearse", "--ranks", "8", "--graphs", "--speculative", "draft", "--draft-quality", "0.7")
    assert [line for line in said.splitlines() if "remedy" not in line] == snapshot


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "firsttoken isolate -- vllm serve MODEL"),
        (("--parallel", "0", "--", "firsttoken", "rehearse", "--graphs"), "--parallel 0 leaves no launch"),
        (("--parallel", "2", "--", "sh", "-c", "vllm serve m"), "--parallel 2: only a command whose flags can be seen"),
        (("--max-cost", "3", "--", "x"), "--max-cost needs --price"),
        (("--max-time", "soon", "--", "x"), "90s, 15m or 2h"),
        (("--", "true"), "there is nothing to change"),
        (("--budget", "0", "--", "firsttoken", "rehearse", "--graphs"), "--budget 0 leaves no launch"),
        (("--dry-run", "--keep", "--grahps", "--", "firsttoken", "rehearse", "--graphs"), "--keep --grahps: the command has no such"),
        (("--dry-run", "--try", "graphs", "--", "firsttoken", "rehearse", "--graphs"), "--try graphs: the command has no such"),
        (("--dry-run", "--try-env", "NO_SUCH", "--", "firsttoken", "rehearse", "--graphs"), "--try-env NO_SUCH: the command has no such"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(arguments: tuple[str, ...], says: str) -> None:
    said = CliRunner().invoke(group, ["isolate", *arguments], prog_name="firsttoken")
    assert said.exit_code != 0
    assert says in said.output + str(said.exception)
