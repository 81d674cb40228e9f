"""The shell's Tab key: the scripts, and what they are told."""

import shutil
import subprocess

import pytest
from cli_runs import Cli, Ready


def completed(cli: Cli, line: str) -> list[str]:
    """What a bash with our script is offered at the end of the line."""
    words = line.split(" ")
    said = cli(env={"_FIRSTTOKEN_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)})
    assert said.code == 0, said
    return [entry.partition(",")[2] for entry in said.out.splitlines() if entry]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_the_shell_can_read(cli: Cli, shell: str) -> None:
    said = cli("completion", shell)
    assert said.code == 0
    assert "_FIRSTTOKEN_COMPLETE" in said.out
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=said.out, text=True, check=True, timeout=20)


def test_another_shell_is_a_usage_error(cli: Cli) -> None:
    assert cli("completion", "tcsh").code == 2


def test_commands_and_options_are_offered(cli: Cli) -> None:
    assert {"status", "stop"} <= set(completed(cli, "firsttoken st"))
    assert completed(cli, "firsttoken wait --max-wai") == ["--max-wait", "--max-waiting"]
    assert completed(cli, "firsttoken no-such-command x") == []


def test_runs_are_offered_by_their_beginning_or_any_part(ready: Ready) -> None:
    assert completed(ready.cli, f"firsttoken status {ready.run[:6]}") == [ready.run]
    assert completed(ready.cli, f"firsttoken cleanup {ready.run[-4:]}") == [ready.run]
    assert completed(ready.cli, "firsttoken logs zzz") == []


def test_behind_the_dashes_the_shell_completes_files(cli: Cli) -> None:
    said = cli(env={"_FIRSTTOKEN_COMPLETE": "bash_complete", "COMP_WORDS": "firsttoken run -- vllm serve mod", "COMP_CWORD": "5"})
    assert said.out.splitlines() == ["file,mod"]
