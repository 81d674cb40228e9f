"""What a user gets wrong, and the sentence that helps. Nothing here starts a server but where the start itself is refused."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from cli_runs import FAKE, FIRSTTOKEN, Cli
from click.testing import CliRunner, Result

from firsttoken.faces.cli.main import COMMANDS
from firsttoken.faces.cli.main import cli as group


def inside(home: Path, *arguments: str) -> Result:
    """The same command within this process, where nothing of a process matters."""
    return CliRunner().invoke(group, arguments, prog_name="firsttoken", env={"FIRSTTOKEN_HOME": str(home)})


def runs(cli: Cli, *names: str) -> None:
    """Folders of runs that never had a keeper."""
    for name in names:
        cli.folder(name).mkdir(parents=True)


def test_the_help_shows_every_command_and_fits_a_narrow_terminal(cli: Cli) -> None:
    said = cli("--help", env={"COLUMNS": "80"})
    assert said.code == 0
    commands = set(re.findall(r"^  (\w+)  ", said.out, re.M))
    assert commands >= {"run", "wait", "status", "logs", "stop", "cleanup", "replay", "history", "rehearse", "doctor"}
    assert all(len(line) <= 80 for line in said.out.splitlines())


def test_each_command_has_a_help_text_of_its_own() -> None:
    for command in COMMANDS:
        if command != "rehearse":
            said = inside(Path("nowhere"), command, "-h")
            assert said.exit_code == 0, (command, said.output)
            assert said.output.startswith(f"Usage: firsttoken {command} ")
            assert "x>=" not in said.output


def test_rehearse_hands_its_help_to_the_embedded_engine(cli: Cli) -> None:
    said = cli("rehearse", "--help")
    assert said.code == 0
    assert "--fault KIND@PHASE" in said.out


def test_a_run_without_a_command_says_where_to_put_it(cli: Cli) -> None:
    said = cli("run")
    assert said.code == 2
    assert "firsttoken run -- vllm serve MODEL" in said.err


def test_an_unknown_option_before_the_command_is_ours_and_is_refused(cli: Cli) -> None:
    said = cli("run", "--frobnicate", "--", "true")
    assert said.code == 2
    assert "--frobnicate" in said.err
    assert not (cli.home / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("run", "--json", "--events", "true"), "choose one"),
        (("run", "--max-wait", "5", "true"), "--detach or --until"),
        (("run", "--detach", "--max-wait", "soon", "true"), "'soon' is not a number of seconds"),
        (("wait", "--max-wait", "-1"), "'-1' is not a number of seconds"),
        (("run", "--api-key-env", "NO_SUCH_KEY", "true"), "NO_SUCH_KEY: that variable is not set"),
        (("history", "prune"), "--keep N"),
        (("vllm", "serve", "some/model"), "firsttoken run -- vllm serve some/model"),
    ],
)
def test_a_usage_error_is_a_sentence_and_status_2(arguments: tuple[str, ...], sentence: str) -> None:
    said = inside(Path("nowhere"), *arguments)
    assert said.exit_code == 2
    assert sentence in said.stderr
    assert said.stdout == ""


def test_a_command_that_does_not_exist_is_127_and_recorded(cli: Cli) -> None:
    said = cli("run", "--", "no-such-engine", "serve")
    assert said.code == 127
    assert "no-such-engine was not found" in said.err
    assert "check the name" in said.err
    told = cli("status", next((cli.home / "runs").iterdir()).name, "--json").json
    assert (told["verdict"], told["state"]) == ("failed", "ended")
    assert "no-such-engine was not found" in told["reason"]


def test_a_command_that_may_not_be_executed_is_126_and_told_in_the_document_too(cli: Cli, tmp_path: Path) -> None:
    script = tmp_path / "serve.sh"
    script.write_text("#!/bin/sh\n")
    said = cli("run", "--json", "--", str(script))
    assert said.code == 126
    assert "may not be executed" in said.err
    assert said.json["verdict"] == "failed"


def test_a_home_that_is_a_file_is_73_with_what_to_do(cli: Cli) -> None:
    cli.home.write_text("no folder")
    said = cli("run", "--", "true")
    assert said.code == 73
    assert "set FIRSTTOKEN_HOME to a folder that can be written" in said.err
    assert cli("status").code == 0
    assert cli("status", "anything").code == 2


def test_a_home_that_cannot_be_written_is_73_with_what_to_do(cli: Cli) -> None:
    cli.home.mkdir(mode=0o500)
    argv = FIRSTTOKEN
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root writes everywhere, and setpriv is not here to take that away")
        argv = ("setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override", *FIRSTTOKEN)
    said = cli("run", "--", "true", argv=argv)
    assert said.code == 73
    assert "Permission denied" in said.err
    assert "set FIRSTTOKEN_HOME" in said.err


def test_where_there_is_no_run_every_command_says_how_to_make_one(tmp_path: Path) -> None:
    for arguments in (("status", "some-run"), ("wait",), ("logs",), ("stop",), ("replay",)):
        said = inside(tmp_path, *arguments)
        assert said.exit_code == 2
        assert "there is no run yet" in said.stderr
        assert "firsttoken run -- COMMAND" in said.stderr
    assert "no runs yet" in inside(tmp_path, "status").stdout
    assert json.loads(inside(tmp_path, "status", "--json").stdout) == {"schema": "firsttoken/1", "kind": "runs", "runs": []}
    assert "nothing is left" in inside(tmp_path, "cleanup").stdout


def test_an_unknown_and_an_ambiguous_name_list_runs_to_choose_from(cli: Cli) -> None:
    runs(cli, "20260101-000000-vllm-aaaa", "20260102-000000-vllm-bbbb", "20260103-000000-sglang-cccc")
    unknown = cli("status", "llama")
    assert unknown.code == 2
    assert "no run is called 'llama'" in unknown.err
    assert "20260103-000000-sglang-cccc" in unknown.err
    several = inside(cli.home, "stop", "vllm")
    assert several.exit_code == 2
    assert "2 runs answer to 'vllm'" in several.stderr
    assert "sglang" not in several.stderr
    one = inside(cli.home, "status", "cccc", "--json")
    assert one.exit_code == 0
    assert json.loads(one.stdout)["run"] == "20260103-000000-sglang-cccc"
    assert json.loads(one.stdout)["verdict"] == "unknown"


def test_a_launch_that_was_broken_off_is_told_and_stopped_without_fuss(cli: Cli) -> None:
    runs(cli, "20260101-000000-vllm-aaaa")
    said = cli("stop")
    assert (said.code, said.out.strip()) == (0, "20260101-000000-vllm-aaaa: this run never started; nothing is left of it")
    assert cli("wait").code == 76
    assert cli("logs").out == ""


def test_a_reader_that_goes_away_is_no_error_to_tell(cli: Cli) -> None:
    runs(cli, *(f"20260101-0000{number:02}-vllm-aaaa" for number in range(60)))
    said = cli.shell("firsttoken status | head -1; firsttoken history --json | head -1; firsttoken run --help | true")
    assert said.out.splitlines()[0].startswith("20260101-000000-vllm-aaaa")
    assert said.err == ""


def test_no_locale_and_no_closed_stream_breaks_a_command(cli: Cli) -> None:
    runs(cli, "20260101-000000-vllm-aaaa")
    assert "wait for a run" in cli("--help", env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}).out
    closed = cli.shells("firsttoken status >&-", "firsttoken status 2>&- <&-", "firsttoken run 2>&-")
    assert [said.code for said in closed] == [0, 0, 2]


def test_arguments_that_are_no_text_are_launched_as_they_are(cli: Cli) -> None:
    said = cli.shell('firsttoken run -q -- sh -c \'test "$1" = "$(printf "\\377")" && exit 5\' sh $\'\\xff\'')
    assert said.code == 5, said


def test_the_separator_may_be_left_out_and_the_commands_options_are_its_own(cli: Cli) -> None:
    said = cli("run", "-q", *FAKE, "--port", "1", "--until", "exit:6")
    assert said.code == 6, said
