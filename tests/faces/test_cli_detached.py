"""Runs that nobody sits beside: wait, status, logs, stop, cleanup, history, replay, doctor."""

import json
import time

from cli_runs import FAKE, RESULT, Cli, Ready, lives, marked, until

STARTING = (*FAKE, "--until", "never")


def test_detach_returns_at_the_decision_and_the_server_goes_on(ready: Ready) -> None:
    assert ready.launched.out == ""
    assert "READY: a real token came" in ready.launched.err
    assert f"firsttoken stop {ready.run}" in ready.launched.err
    assert lives(ready.cli.keeper(ready.run)["server"]["pid"])


def test_waiting_for_a_run_that_is_ready_does_not_wait(ready: Ready) -> None:
    def seconds(command: str) -> float:
        began = time.monotonic()
        assert ready.cli(command, ready.run).code == 0
        return time.monotonic() - began

    seconds("wait")
    assert min(seconds("wait") for _ in range(3)) < seconds("status") + 5


def test_wait_answers_in_words_and_in_one_document(ready: Ready) -> None:
    words, document = ready.cli.start("wait"), ready.cli.start("wait", "--json", "--max-wait", "0")
    assert words.end().out.startswith("READY: ")
    told = document.end()
    assert told.code == 0
    assert told.json.keys() >= RESULT
    assert (told.json["run"], told.json["verdict"]) == (ready.run, "ready")
    assert told.json["next"] == [f"firsttoken stop {ready.run}"]


def test_wait_returns_when_its_time_is_over_with_the_state_so_far_and_what_to_do_next(cli: Cli) -> None:
    launched = cli.start("run", "--detach", "--json", "--max-wait", "0", *STARTING).end()
    assert launched.code == 124
    run = launched.json["run"]
    said = cli("wait", run, "--max-wait", "1", "--json")
    assert said.code == 124
    assert said.json["verdict"] == "starting"
    assert said.json["elapsed_s"] >= 1
    assert f"firsttoken wait {run} --max-wait 50" in said.json["next"]
    assert "no" not in said.err

    stopped = cli("stop", run)
    assert stopped.code == 0
    assert not marked(run)
    after = cli("wait", run, "--json")
    assert (after.code, after.json["state"]) == (76, "ended")


def test_status_tells_a_run_and_all_runs(ready: Ready) -> None:
    one, other, all_, listed = [
        ready.cli.start("status", *arguments) for arguments in ((ready.run,), (ready.run[-4:], "--json"), (), ("--json",))
    ]
    assert "state     running" in one.end().out
    told = other.end().json
    assert told.keys() >= RESULT | {"state"}
    assert (told["verdict"], told["state"]) == ("ready", "running")
    assert ready.run in all_.end().out
    document = listed.end().json
    assert (document["schema"], document["kind"]) == ("firsttoken/1", "runs")
    [row] = document["runs"]
    assert (row["run"], row["state"], row["verdict"]) == (ready.run, "running", "ready")


def test_a_run_is_found_by_its_folder_too(ready: Ready) -> None:
    assert ready.cli("status", str(ready.cli.folder(ready.run)), "--json").json["run"] == ready.run


def test_logs_are_the_raw_bytes_whole_or_their_end(ready: Ready) -> None:
    whole, last, none = [ready.cli.start("logs", ready.run, *arguments) for arguments in ((), ("--tail", "3"), ("-n", "0"))]
    lines = whole.end().out.splitlines()
    assert lines[:3] == ["one", "two", "three"]
    assert last.end().out.splitlines() == lines[-3:]
    assert none.end().out == ""


def test_logs_follow_until_the_run_ends(cli: Cli, tmp_path: object) -> None:
    call = cli.start("run", "--detach", *STARTING, "--start", "one\ntwo")
    following = cli.start("logs", call.run, "-f", "--tail", "1")
    following.said("two")
    cli("stop", call.run)
    said = following.end()
    assert said.code == 0
    assert said.out == "two\nGOT SIGTERM\n"
    call.end()


def test_stop_ends_a_ready_run_and_says_so_again_when_asked_again(cli: Cli) -> None:
    call = cli.start("run", "--detach", *FAKE)
    run = call.run
    assert call.end().code == 0
    first, second = cli.start("stop", run), cli.start("stop", run)
    assert (first.end().code, second.end().code) == (0, 0)
    assert not marked(run)
    again = cli("stop", run)
    assert (again.code, again.out) == (0, f"{run}: this run has ended; nothing is left of it\n")
    assert cli("stop", "--json").json == {
        "schema": "firsttoken/1", "kind": "stopped", "run": run, "was": "ended", "ended": [], "left": [],
    }  # fmt: skip
    assert cli.log(run).count("GOT SIGTERM") == 1
    told = cli("status", run, "--json").json
    assert (told["verdict"], told["state"], told["exit"]) == ("ready", "ended", {"code": 0, "signal": None})


def test_stop_gives_up_on_a_server_that_drains_and_force_ends_it(cli: Cli) -> None:
    call = cli.start("run", "--detach", *FAKE, "--deaf", "1")
    run = call.run
    assert call.end().code == 0
    said = cli("stop", "--max-wait", "1")
    assert said.code == 75
    assert f"firsttoken stop --force {run}" in said.err
    server = cli.keeper(run)["server"]["pid"]
    assert lives(server)
    until(lambda: "GOT SIGTERM" in cli.log(run))
    forced = cli("stop", "--force", "--json")
    assert (forced.code, forced.json["was"], forced.json["left"]) == (0, "running", [])
    assert server in forced.json["ended"]
    assert not marked(run)


def test_replay_gives_the_recorded_verdicts(ready: Ready) -> None:
    words, document = ready.cli.start("replay", "--check"), ready.cli.start("replay", "--check", "--json")
    said = words.end()
    assert said.code == 0
    assert [line.split()[2] for line in said.out.splitlines()][-1] == "ready"
    told = document.end()
    assert told.code == 0
    assert told.json["verdict"] == "ready"
    assert "starting" in told.err


def test_replay_shows_where_todays_judge_differs(cli: Cli) -> None:
    said = cli("run", "--json", "-q", "--", "sh", "-c", "exit 3")
    events = cli.folder(said.json["run"]) / "events.jsonl"
    events.write_bytes(events.read_bytes().replace(b'"verdict":"failed"', b'"verdict":"hung"'))
    assert cli("replay").code == 0
    checked = cli("replay", "--check")
    assert checked.code == 1
    assert "recorded by version" in checked.err
    assert "hung in process_start" in checked.err


def test_prune_keeps_what_it_was_told_to_keep_and_whatever_lives(cli: Cli) -> None:
    living = cli.start("run", "--detach", "--max-wait", "0", *STARTING)
    assert living.end().code == 124
    for _ in range(2):
        assert cli("run", "--", "no-such-engine").code == 127
    old, new = sorted(path.name for path in (cli.home / "runs").iterdir() if path.name != living.run)
    dry = cli("history", "prune", "--keep", "1", "--dry-run")
    assert f"would delete {old}" in dry.out
    assert cli.folder(old).exists()
    said = cli("history", "prune", "--keep", "1", "--json").json
    assert (said["runs"], said["dry_run"]) == ([old], False)
    assert {path.name for path in (cli.home / "runs").iterdir()} == {living.run, new}
    assert "0 runs" in cli("history", "prune", "--keep", "9").out
    assert [row["run"] for row in cli("history", "--last", "1", "--json").json["runs"]] == [new]
    assert living.run in cli("history").out


def test_doctor_tells_what_can_be_seen_here(cli: Cli) -> None:
    words, document = cli.start("doctor"), cli.start("doctor", "--json")
    told = document.end().json
    assert (told["schema"], told["kind"]) == ("firsttoken/1", "doctor")
    assert {row["id"] for row in told["checks"]} >= {"python", "kernel", "runs-folder", "proc", "cgroup", "ptrace", "py-spy", "gpu"}
    assert all(row["result"] in ("pass", "warn", "fail", "not_checked") for row in told["checks"])
    assert all(row["remedy"] for row in told["checks"] if row["result"] == "fail")
    assert "runs-folder" in words.end().out


def test_doctor_fails_where_runs_cannot_be_kept(cli: Cli) -> None:
    cli.home.write_text("no folder")
    said = cli("doctor", "--json")
    assert said.code == 1
    [row] = [row for row in json.loads(said.out)["checks"] if row["result"] == "fail"]
    assert row["id"] == "runs-folder"
    assert "FIRSTTOKEN_HOME" in row["remedy"]
