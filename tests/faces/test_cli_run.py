"""`firsttoken run`: statuses, documents and streams, in the foreground and up to a decision."""

import json
import os
import socket
import sys
from contextlib import closing

from cli_runs import FAKE, RESULT, Call, Cli, marked, until

INNER = {
    "engine": {"name", "version"},
    "ranks": {"behind", "groups"},
    "weights": {"shards_done", "shards", "bytes", "seconds", "bytes_per_s", "source"},
    "endpoint": {"url", "model"},
    "exit": {"code", "signal"},
}
ROWS = {
    "phases": {"name", "began_s", "seconds", "ranks_done"},
    "members": {"process", "title", "rank", "dp", "tp", "pp", "ep"},
    "requests": {"kind", "status", "first_token_s", "text", "sane"},
}


def test_the_status_in_the_foreground_is_the_servers_own(cli: Cli) -> None:
    ends = {"exit 0": 0, "exit 3": 3, "kill -9 $$": 128 + 9, "kill -15 $$": 128 + 15}
    calls = {code: cli.start("run", "--", "sh", "-c", f"echo here I am; {script}") for script, code in ends.items()}
    for code, call in calls.items():
        said = call.end()
        assert said.code == code, said
        assert said.out == "here I am\n"
        assert "its last line: here I am" in said.err or code == 0


def test_json_is_one_document_with_every_key_and_the_servers_output_goes_to_stderr(cli: Cli) -> None:
    said = cli("run", "--json", "--until", "ready", "--", sys.executable, "-m", "firsttoken.rehearsal", "--ranks", "2", "--port", "0")
    assert said.code == 0, said
    told = said.json
    assert told.keys() >= RESULT
    for name, keys in INNER.items():
        assert told[name].keys() >= keys, name
    for name, keys in ROWS.items():
        assert told[name], name
        assert all(row.keys() >= keys for row in told[name]), name
    assert (told["schema"], told["kind"], told["verdict"], told["role"]) == ("firsttoken/1", "result", "ready", "serves")
    assert told["engine"]["name"] == "rehearsal"
    assert told["world_size"] == 2
    assert [row["name"] for row in told["phases"]][-1] == "first_token"
    assert all(request["text"] for request in told["requests"][-2:])
    assert len(told["requests"]) == 2
    assert "The rehearsal server is ready to serve." in said.err
    assert not marked(told["run"])


def test_events_are_json_lines_on_stdout_and_the_servers_output_goes_to_stderr(cli: Cli) -> None:
    said = cli("run", "--events", "--", "sh", "-c", "echo here I am; exit 4")
    assert said.code == 4
    events = [json.loads(line) for line in said.out.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert {"launched", "plan", "exited", "emptied", "judged"} <= {event["kind"] for event in events}
    assert "here I am" in said.err


def test_until_ready_ends_with_the_status_of_the_decision_and_takes_the_server_along(cli: Cli) -> None:
    ends = {
        0: ("ready", ()),
        69: ("failed", ("--until", "exit:0")),
        71: ("unserving", ("--status", "500")),
        76: ("unknown", ("--status", "401")),
    }
    calls = {code: cli.start("run", "--json", "--until", "ready", *FAKE, *arguments) for code, (_, arguments) in ends.items()}
    for code, call in calls.items():
        said = call.end()
        assert said.code == code, said
        assert said.json["verdict"] == ends[code][0]
        assert not marked(said.json["run"])
        assert not any(step.startswith(("firsttoken stop", "firsttoken wait")) for step in said.json["next"])


def test_until_ready_gives_up_when_its_time_is_over(cli: Cli) -> None:
    said = cli("run", "--json", "--until", "ready", "--max-wait", "1", *FAKE, "--until", "never", "--deaf", "0")
    assert said.code == 124
    assert said.json["verdict"] == "starting"
    assert not marked(said.json["run"])


def test_a_taken_port_is_a_failure_with_the_engines_own_words(cli: Cli) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        engine = (sys.executable, "-m", "firsttoken.rehearsal", "--port", port)
        said = cli("run", "--json", "--until", "ready", "--", *engine)
    assert said.code == 69, said
    assert said.json["verdict"] == "failed"
    assert f"cannot listen on 127.0.0.1:{port}" in " ".join([said.json["reason"], *said.json["proof"]])


def test_a_reader_of_stdout_that_goes_away_does_not_end_the_server(cli: Cli) -> None:
    def read_a_little(*options: str) -> Call:
        read, write = os.pipe()
        call = cli.start("run", *options, *FAKE, stdout=write)
        os.close(write)
        assert os.read(read, 10)
        os.close(read)
        return call

    output, events = read_a_little(), read_a_little("--events")
    for call in (output, events):
        call.said("a second request was answered too")
        assert cli("stop", call.run).code == 0
        said = call.end()
        assert said.code == 0
        assert "BrokenPipe" not in said.err
    assert "READY: " in output.both


def test_closed_streams_do_not_keep_a_server_from_running(cli: Cli) -> None:
    run = "firsttoken run --json -- sh -c 'echo text; exit 3'"
    without_errors, without_all, without_answers = cli.shells(f"{run} 2>&-", f"{run} <&- >&- 2>&-", f"{run} >&-")
    assert (without_errors.code, without_all.code, without_answers.code) == (3, 3, 3)
    assert without_errors.json["exit"] == {"code": 3, "signal": None}
    assert "text" in without_answers.err


def test_a_reader_that_does_not_read_keeps_nobody_from_ending(cli: Cli) -> None:
    read, write = os.pipe()
    storm = "yes this line fills every buffer that nobody empties | head -c 3000000; exec sleep 300"
    call = cli.start("run", "--", "sh", "-c", storm, stdout=write)
    os.close(write)
    run = call.run
    until(lambda: len(cli.log(run)) >= 3_000_000)
    call.process.terminate()
    until(lambda: not marked(run))
    os.close(read)
    assert call.end().code == 128 + 15


def test_quiet_keeps_the_output_for_logs(cli: Cli) -> None:
    said = cli("run", "--quiet", "--", "sh", "-c", "echo only in the log")
    assert said.out == ""
    assert cli("logs").out == "only in the log\n"


def test_the_server_gets_our_stdin_where_asked(cli: Cli) -> None:
    asked, not_asked = cli.shells("echo some words | firsttoken run --stdin -- cat", "echo some words | firsttoken run -- cat")
    assert asked.out == "some words\n"
    assert not_asked.out == ""


def test_nothing_but_the_mark_comes_into_the_servers_environment(cli: Cli) -> None:
    script = "import json, os; print(json.dumps(dict(os.environ)))"
    marked_one = cli.start("run", "--", sys.executable, "-c", script)
    bare = cli.start("run", "--no-mark", "--", sys.executable, "-c", script)
    ours = cli.environment()
    for call, added in ((marked_one, {"FIRSTTOKEN_RUN": marked_one.run}), (bare, {})):
        theirs = json.loads(call.end().out)
        theirs.pop("LC_CTYPE", None)  # the server's own Python may add it
        assert theirs == {**ours, **added}


def test_a_server_without_a_probe_is_never_called_ready(cli: Cli) -> None:
    said = cli("run", "--until", "ready", "--no-probe", "--json", *FAKE)
    assert (said.code, said.json["verdict"], said.json["requests"]) == (76, "unknown", [])
    assert said.json["claims_ready"] is True


def test_what_is_secret_in_the_command_is_masked_wherever_it_is_told(cli: Cli) -> None:
    secret = "hf_" + "a1b2c3d4" * 4
    said = cli("run", "--json", "--", "sh", "-c", "exit 0", "sh", "--api-key", secret)
    assert secret not in said.out + said.err
    [folder] = (cli.home / "runs").iterdir()
    for file in folder.rglob("*"):
        assert file.is_dir() or secret.encode() not in file.read_bytes(), file
    assert [file.stat().st_mode & 0o077 for file in (folder, *folder.rglob("*"))] == [0] * (1 + len(list(folder.rglob("*"))))
