"""`firsttoken speculate` as a user has it: with the embedded engine, in short forms of the measurement."""

import os
import signal
import sys

import pytest
from cli_runs import Cli, marked, until

PACES = [f"--pace={phase}=0.03" for phase in ("config", "weights", "post_load", "kv_cache", "compile", "graph_capture", "warmup")]
ENGINE = (sys.executable, "-m", "firsttoken.rehearsal", "--port", "0", "--shards", "2", "--shard-mb", "1", *PACES)
DRAFT = (*ENGINE, "--speculative", "draft", "--draft-quality", "0.15")
SHORT = ("--concurrency", "1", "--blocks", "4", "--output-tokens", "16")
SECONDS = 110.0
"""What no measurement in its short form needs on any machine."""
KEYS = {
    "schema", "kind", "at", "engine", "command", "baseline_command", "pays", "speedup", "interval", "acceptance", "acceptance_by_requests",
    "accepted_length", "acceptance_by_position", "drafted_tokens", "acceptance_source", "break_even_acceptance", "by_concurrency",
    "lossless",
    "outputs", "cause", "reason", "suggestion", "suggested_draft_tokens", "more_blocks", "tried", "measured", "earlier", "runs", "results",
    "seconds", "not_checked", "urls", "concurrency",
}  # fmt: skip


@pytest.fixture
def prompts(cli: Cli) -> tuple[str, ...]:
    """Short ones: reading long ones takes most of a short measurement."""
    file = cli.home.parent / "prompts"
    file.write_text("\n\n".join(f"What is {number} and {number}?" for number in range(20)))
    return ("--prompts", str(file))


def test_a_bad_drafter_is_turned_off_and_both_servers_are_stopped(cli: Cli, prompts: tuple[str, ...]) -> None:
    said = cli("speculate", *SHORT, *prompts, "--json", "--", *DRAFT, seconds=SECONDS)
    doc = said.json
    assert said.code == 0, said
    assert set(doc) == KEYS
    assert (doc["kind"], doc["engine"], doc["pays"], doc["lossless"]) == ("speculation", "rehearsal", False, True)
    assert doc["speedup"] < doc["interval"][1] < 1
    assert doc["acceptance"] == pytest.approx(0.15, abs=0.06)
    assert len(doc["acceptance_by_position"]) == 3
    assert "turn it off" in doc["suggestion"] or "try" in doc["suggestion"]
    for run in doc["runs"].values():
        assert cli("status", run, "--json").json["state"] == "ended"
        assert not marked(run)


def test_two_servers_at_addresses_are_compared_and_left_alone(cli: Cli, prompts: tuple[str, ...]) -> None:
    calls = [
        cli.start("run", "--detach", "--json", "--", *argv)
        for argv in (ENGINE, (*ENGINE, "--speculative", "draft", "--draft-quality", "1"))
    ]
    urls = [call.end(SECONDS).json["endpoint"]["url"] for call in calls]
    said = cli("speculate", "--baseline", urls[0], "--speculative", urls[1], *SHORT, *prompts, "--json", seconds=SECONDS)
    doc = said.json
    assert (doc["acceptance"], doc["lossless"], doc["runs"]) == (1.0, True, {"baseline": None, "speculative": None})
    assert doc["interval"][0] <= doc["speedup"] <= doc["interval"][1]
    assert doc["urls"] == {"baseline": urls[0], "speculative": urls[1]}
    for call in calls:
        assert cli("status", call.run, "--json").json["state"] == "running"


def test_a_server_that_breaks_by_speculation_is_told_with_its_verdict(cli: Cli) -> None:
    fault = ("--fault", "error@first_token", "--fault-when", 'speculative == "draft"')
    said = cli("speculate", *SHORT, "--json", "--", *DRAFT, *fault, seconds=SECONDS)
    doc = said.json
    assert said.code == 71, said
    assert (doc["pays"], doc["speedup"], doc["cause"]) == (None, None, "does-not-serve")
    assert doc["results"]["speculative"]["verdict"] == "unserving"
    assert "without it the same command serves" in doc["reason"]


def test_an_interrupt_stops_what_was_launched(cli: Cli) -> None:
    call = cli.start("speculate", "--concurrency", "1", "--", *DRAFT)
    call.said("firsttoken: baseline: run")
    runs = sorted(os.listdir(cli.home / "runs"))
    assert len(runs) == 2
    call.process.send_signal(signal.SIGINT)
    said = call.end(SECONDS)
    assert said.code == 130, said
    assert "stopping what was launched" in said.err
    for run in runs:
        until(lambda run=run: not marked(run))
        assert cli("status", run, "--json").json["state"] == "ended"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "there is nothing to compare"),
        (("--speculative", "http://localhost:1"), "there is nothing to compare"),
        (("--baseline", "http://localhost:1", "--speculative", "http://localhost:2", "--", *DRAFT), "give one of them"),
        (("--tune", "--baseline", "http://localhost:1", "--speculative", "http://localhost:2"), "--tune launches"),
        (("--baseline", "ftp://x", "--speculative", "http://localhost:2"), "no address of a server"),
        (("--concurrency", "0", "--", *DRAFT), "not a list of whole numbers"),
        (("--", *ENGINE), "without speculative decoding"),
        (("--", "some-server"), "no engine is recognised"),
        (("--prompts", "/nowhere", "--", *DRAFT), "No such file"),
    ],
)
def test_what_cannot_be_compared_is_refused(cli: Cli, arguments: tuple[str, ...], says: str) -> None:
    said = cli("speculate", *arguments)
    assert said.code == 2, said
    assert says in said.err
    assert not said.out
