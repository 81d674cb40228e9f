"""`firsttoken check` and what `run` looks at beside a start: statuses, one document, and a start that goes on."""

import os
import socket
import sys
from pathlib import Path

import pytest
from cli_runs import FAKE, Cli, until
from model_folders import LLAMA, write_model


def test_the_status_tells_what_was_found_and_json_is_one_document(cli: Cli, tmp_path: Path) -> None:
    model = write_model(tmp_path / "m")
    (model / "tokenizer.json").unlink()
    said = cli("check", "--json", "--quick", "--", "vllm", "serve", str(model))
    assert said.code == 78
    told = said.json
    assert (told["schema"], told["kind"], told["engine"]) == ("firsttoken/1", "checks", "vllm")
    missing = next(one for one in told["checks"] if one["id"] == "tokenizer-missing")
    assert missing["result"] == "fail"
    assert set(missing) == {"id", "part", "result", "fact", "remedy", "price"}
    assert told["memory"]["weights_by_rank"]


def test_a_clean_command_ends_with_zero_or_one_and_reads_well(cli: Cli, tmp_path: Path) -> None:
    model = write_model(tmp_path / "m")
    said = cli("check", "--quick", "--gpu-memory", "80", "--", "vllm", "serve", str(model), "--max-model-len", "1024", "--port", "0")
    assert said.code in (0, 1)
    assert "KV cache" in said.out
    assert said.out.splitlines()[-1].startswith(("nothing is in the way", "the start may work"))


def test_usage_errors_say_what_to_write(cli: Cli) -> None:
    assert "firsttoken check -- vllm serve" in cli("check").err
    assert cli("check", "--gpu", "nine", "--", "vllm", "serve", "m").code == 2
    assert cli("check", "--gpu-memory", "much", "--", "vllm", "serve", "m").code == 2


@pytest.fixture
def wrong(tmp_path: Path) -> tuple[str, ...]:
    """A launch that works, told as one that cannot: the fake server goes on whatever its flags say."""
    model = write_model(tmp_path / "m", {**LLAMA, "num_attention_heads": 6, "num_key_value_heads": 6})
    script = tmp_path / "vllm"
    script.write_text(f"#!/bin/sh\nexec {' '.join(FAKE)} --port 0\n")
    script.chmod(0o755)
    return (str(script), "serve", str(model), "-tp", "4", "--port", "0")


def test_a_fail_is_shown_and_recorded_and_the_launch_goes_on(cli: Cli, wrong: tuple[str, ...]) -> None:
    call = cli.start("run", "--quiet", "--", *wrong)
    run = call.run
    (event,) = until(lambda: cli.events(run, "checked"))
    assert any((one["id"], one["result"]) == ("tp-not-divisible", "fail") for one in event["checks"])
    call.said("check fail tp-not-divisible: 6 attention heads do not divide by 4")
    told = until(lambda: cli("status", run, "--json").json["checks"])
    assert [one["id"] for one in told if one["result"] == "fail"] == ["tp-not-divisible"]
    assert call.process.poll() is None


def test_no_check_looks_at_nothing(cli: Cli, wrong: tuple[str, ...]) -> None:
    call = cli.start("run", "--quiet", "--no-check", "--detach", "--max-wait", "2", "--", *wrong)
    call.end()
    assert not cli.events(call.run, "checked")


def test_the_servers_own_port_is_not_taken_for_somebody_elses(cli: Cli) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = str(one.getsockname()[1])
    call = cli.start("run", "--quiet", "--", "firsttoken", "rehearse", "--port", port, env={"PATH": _path()})
    (event,) = until(lambda: cli.events(call.run, "checked"))
    assert next(check["result"] for check in event["checks"] if check["id"] == "port-in-use") == "pass"


def _path() -> str:
    return f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def test_who_holds_the_port_is_told_again_when_the_server_has_ended_for_it(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = str(one.getsockname()[1])
        ran = cli("run", "--until", "ready", "--quiet", "--json", "--", sys.executable, "-m", "firsttoken", "rehearse", "--port", port)
        assert ran.json["verdict"] == "failed"
        finding = cli("explain", "--json").json["findings"][0]
    assert finding["cause"] == "port-in-use"
    assert f"port {port} (HTTP) is held by" in finding["evidence"][0]
    assert f"(pid {os.getpid()})" in finding["evidence"][0]
    assert finding["remedy"] == "another port, or end that process"
