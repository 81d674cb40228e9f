"""The demo: its own judgement, and the story as it is played."""

import os
from dataclasses import replace

import pytest
from cli_runs import RESULT, Cli, marked

from firsttoken.faces.cli.demo import misses_of_the_hang, misses_of_the_start
from firsttoken.model.result import RanksRow, RequestRow, Result
from firsttoken.model.words import Verdict

HUNG = Result(verdict=Verdict.HUNG, ranks=RanksRow(behind=(5,)))
READY = Result(verdict=Verdict.READY, requests=(RequestRow(kind="completion", status=200, first_token_s=0.1, text=" la", sane=True),))


def test_a_hang_whose_rank_is_named_is_as_told() -> None:
    assert misses_of_the_hang(HUNG, 5) == []


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (replace(HUNG, verdict=Verdict.STALLED), "came out as stalled"),
        (replace(HUNG, ranks=RanksRow(behind=(4,))), "said to be behind: 4"),
        (replace(HUNG, ranks=RanksRow(behind=(4, 5))), "said to be behind: 4-5"),
        (replace(HUNG, ranks=RanksRow()), "said to be behind: none"),
    ],
)
def test_a_hang_that_is_told_otherwise_is_a_miss(result: Result, said: str) -> None:
    (missed,) = misses_of_the_hang(result, 5)
    assert said in missed


def test_a_start_is_as_told_with_a_token_and_not_without() -> None:
    assert misses_of_the_start(READY) == []
    assert misses_of_the_start(replace(READY, requests=()))
    assert misses_of_the_start(replace(READY, verdict=Verdict.UNSERVING))


def test_the_demo_comes_out_as_told(cli: Cli) -> None:
    said = cli("demo", "--json", "--rank", "2")
    assert said.code == 0, said.err
    told = said.json
    assert (told["schema"], told["kind"], told["as_told"], told["missed"]) == ("firsttoken/1", "demo", True, [])
    hung, ready = told["results"]
    assert hung.keys() >= RESULT
    assert (hung["verdict"], hung["ranks"]["behind"]) == ("hung", [2])
    assert ready["verdict"] == "ready"
    assert "--fault" in told["commands"][0]
    assert told["commands"][0][: len(told["commands"][1])] == told["commands"][1]
    assert told["seconds"] < 40 or os.getloadavg()[0] > 2 * (os.cpu_count() or 1)  # the machine may have had better to do
    assert not marked(hung["run"])
    assert not marked(ready["run"])
