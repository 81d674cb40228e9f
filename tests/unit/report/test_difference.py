"""Two runs side by side."""

import json

from firsttoken.model.result import EngineRef, PhaseRow, RanksRow, Result, WeightsRow
from firsttoken.model.words import Phase, Verdict
from firsttoken.report.difference import Change, Side, compare, difference_document, difference_text, options
from firsttoken.report.document import to_json

YESTERDAY = Result(
    run="one",
    engine=EngineRef(name="vllm", version="0.31"),
    versions={"torch": "2.9"},
    command=("vllm", "serve", "m", "--tp", "2", "--eager", "--dtype=half"),
    world_size=2,
    verdict=Verdict.READY,
    phase=Phase.FIRST_TOKEN,
    phases=(
        PhaseRow(name=Phase.WEIGHTS, began_s=1.0, seconds=10.0, ranks_done=2),
        PhaseRow(name=Phase.COMPILE, began_s=11.0, seconds=20.0, ranks_done=2),
    ),
    weights=WeightsRow(shards=64, bytes_per_s=2.1e9),
)
TODAY = Result(
    run="two",
    engine=EngineRef(name="vllm", version="0.32"),
    versions={"torch": "2.9", "nccl": "2.28"},
    command=("vllm", "serve", "m", "--tp", "4", "--dtype=half", "--seed", "-1"),
    world_size=4,
    verdict=Verdict.HUNG,
    reason="rank 3 waits",
    phase=Phase.COMPILE,
    phases=(
        PhaseRow(name=Phase.WEIGHTS, began_s=1.0, seconds=30.0, ranks_done=4),
        PhaseRow(name=Phase.COMPILE, began_s=31.0, seconds=None, ranks_done=0),
    ),
    weights=WeightsRow(shards=64, bytes_per_s=0.7e9),
    ranks=RanksRow(behind=(3,)),
)
SPEC = {
    "environment": {"NCCL_P2P_DISABLE": "1", "HF_TOKEN": "****"},
    "machine": {"node": "a", "kernel": "6.1"},
    "cwd": "/srv",
    "firsttoken": "1",
}


def test_what_changed_stands_side_by_side() -> None:
    found = compare(Side(result=YESTERDAY, spec=SPEC), Side(result=TODAY, spec={**SPEC, "environment": {"HF_TOKEN": "****"}}))
    changes = {(c.section, c.name): (c.before, c.after) for c in found.changes}
    assert changes == {
        ("verdict", "verdict"): ("ready", "hung: rank 3 waits"),
        ("verdict", "phase"): ("first_token", "compile"),
        ("versions", "nccl"): (None, "2.28"),
        ("versions", "vllm"): ("0.31", "0.32"),
        ("command", "--tp"): ("2", "4"),
        ("command", "--eager"): ("", None),
        ("command", "--seed"): (None, "-1"),
        ("environment", "NCCL_P2P_DISABLE"): ("1", None),
        ("server", "ranks"): ("2", "4"),
        ("server", "ranks behind"): (None, "3"),
        ("weights", "rate"): ("2000 MB/s", "700 MB/s"),
    }
    assert [(row.name, row.before, row.after, row.ratio) for row in found.phases] == [
        ("weights", 10.0, 30.0, 3.0),
        ("compile", 20.0, None, None),
    ]
    assert found.changes[0].section == "verdict"
    assert found.section("machine") == ()


def test_it_reads_as_a_text_and_as_a_document() -> None:
    found = compare(Side(result=YESTERDAY, spec=SPEC), Side(result=TODAY, spec=SPEC))
    text = difference_text(found)
    assert "--eager  removed" in text
    assert "--tp     2 → 4" in text
    assert "10.0 s    30.0 s  3.0 times" in text
    assert "the same: environment, machine" in text
    told = json.loads(to_json(difference_document(found)))
    assert (told["kind"], told["before"], told["after"]) == ("difference", "one", "two")
    assert {"section": "command", "name": "--seed", "before": None, "after": "-1"} in told["changes"]


def test_what_was_not_recorded_is_said_and_not_taken_for_the_same() -> None:
    found = compare(Side(result=YESTERDAY, spec=SPEC), Side(result=YESTERDAY, spec={}))
    assert found.not_compared[:2] == (
        "environment: it was not recorded of the second run",
        "machine: it was not recorded of the second run",
    )
    assert "the same: command" in difference_text(found)


def test_a_run_is_no_different_from_itself() -> None:
    side = Side(result=YESTERDAY, spec=SPEC)
    found = compare(side, side)
    assert found.changes == ()
    assert "the same: versions, command, environment, machine" in difference_text(found)


def test_runs_of_which_nothing_is_known_can_be_compared() -> None:
    assert difference_text(compare(Side(result=Result(), spec={}), Side(result=Result(), spec={"environment": 3})))


def test_flags_are_read_as_they_were_written() -> None:
    assert options(("engine", "serve", "--a=1", "--sizes", "1", "2", "-x", "--a", "2", "--seed", "-1.5", "-")) == {
        "word 1": "engine", "word 2": "serve", "--a": "1 2", "--sizes": "1 2", "-x": "", "--seed": "-1.5 -",
    }  # fmt: skip


def test_a_change_without_a_value_is_a_switch() -> None:
    assert (
        Change(section="command", name="--x", before=None, after="")
        in compare(Side(result=Result(command=("e",)), spec={}), Side(result=Result(command=("e", "--x")), spec={})).changes
    )
