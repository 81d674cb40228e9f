"""`run --arm`: what is added to the server's environment, and that nothing is without it."""

import json

from cli_runs import Cli

SHOW = "echo $TORCH_FR_BUFFER_SIZE $PYTHONFAULTHANDLER $CUDA_ENABLE_USER_TRIGGERED_COREDUMP end"


def test_an_armed_server_has_what_was_said_and_another_has_nothing(cli: Cli) -> None:
    armed, bare = cli.start("run", "--arm", "--", "sh", "-c", SHOW), cli.start("run", "--", "sh", "-c", SHOW)
    said = armed.end()
    assert said.out == "2000 1 1 end\n"
    assert "firsttoken: armed: TORCH_FR_BUFFER_SIZE=2000" in said.err
    other = bare.end()
    assert other.out == "end\n"
    assert "armed:" not in other.err
    specs = [json.loads(file.read_text()) for file in (cli.home / "runs").glob("*/spec.json")]
    assert sorted(bool(spec["armed"]) for spec in specs) == [False, True]
    assert not any("TORCH_FR_BUFFER_SIZE" in spec["environment"] for spec in specs)  # the user has not set it
