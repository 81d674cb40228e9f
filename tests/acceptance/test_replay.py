"""What was recorded can be judged again: whole, cut off at any byte, and by whoever has only the folder."""

import json
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runs import Cli

from firsttoken.history.runs import RunFolder
from firsttoken.judge.outcome import result
from firsttoken.report.document import result_document, to_json
from firsttoken.session.follow import Follower
from firsttoken.session.replay import replay

ENGINE = (sys.executable, "-m", "firsttoken.rehearsal", "--ranks", "2", "--port", "0")
STARTS = {
    "ready": ENGINE,
    "failed": (*ENGINE, "--fault", "crash@compile"),
    "crashed": (*ENGINE, "--fault", "kill@weights"),
    "unserving": (*ENGINE, "--fault", "error@first_token"),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[RunFolder, dict[str, object]]]]:
    """Real runs of the embedded engine by their verdict, each with the document that was told when it ended."""
    cli = Cli(tmp_path_factory.mktemp("recorded") / "home")
    try:
        calls = {verdict: cli.start("run", "--json", "--until", "ready", "--", *argv) for verdict, argv in STARTS.items()}
        told = {verdict: call.end(120).json for verdict, call in calls.items()}
        yield {verdict: (RunFolder(Path(document["folder"])), document) for verdict, document in told.items()}
    finally:
        cli.end_all()


@pytest.fixture(params=STARTS)
def run(request: pytest.FixtureRequest, recorded: dict[str, tuple[RunFolder, dict[str, object]]]) -> tuple[RunFolder, dict[str, object]]:
    folder, document = recorded[request.param]
    assert document["verdict"] == request.param
    return folder, document


def test_folding_the_recorded_events_gives_the_recorded_verdicts(run: tuple[RunFolder, dict[str, object]]) -> None:
    folder, document = run
    again = replay(folder.events())
    assert len(again.recorded) >= 3
    assert again.recorded == tuple((change.verdict, change.phase) for change in again.changes)[: len(again.recorded)]
    assert document["verdict"] in {change.verdict for change in again.changes}


def test_whoever_has_only_the_folder_reads_the_same_result(run: tuple[RunFolder, dict[str, object]], tmp_path: Path) -> None:
    folder, _ = run
    copy = RunFolder(Path(shutil.copytree(folder.path, tmp_path / folder.name)))
    state = replay(folder.events()).state
    assert Follower(folder=copy).stored() == result(state, str(copy.path))
    assert to_json(folder.result()) == to_json(result_document(result(state, str(folder.path))))


def test_a_run_killed_at_any_byte_of_its_events_still_replays(run: tuple[RunFolder, dict[str, object]], tmp_path: Path) -> None:
    folder, _ = run
    raw = folder.events_file.read_bytes()
    whole = replay(folder.events())
    ends = [at + 1 for at, byte in enumerate(raw) if byte == 10]
    chosen = random.Random(20261129)
    cuts = {
        0,
        1,
        len(raw) - 1,
        *chosen.sample(range(len(raw)), 60),
        *(end + shift for end in chosen.sample(ends, 15) for shift in (-1, 0, 1)),
    }
    copy = RunFolder(tmp_path)
    for cut in sorted(cuts):
        copy.events_file.write_bytes(raw[:cut])
        part = replay(copy.events())
        assert part.changes == whole.changes[: len(part.changes)]
        assert part.same
        assert sum(end <= cut for end in ends) <= len(list(copy.events())) <= sum(end <= cut for end in ends) + 1
        json.loads(to_json(result_document(result(part.state, "folder"))))


def test_a_run_that_lost_bytes_in_the_middle_still_reads(run: tuple[RunFolder, dict[str, object]], tmp_path: Path) -> None:
    folder, _ = run
    raw = folder.events_file.read_bytes()
    chosen = random.Random(7)
    copy = RunFolder(tmp_path)
    for _ in range(20):
        start = chosen.randrange(len(raw))
        junk = bytes(chosen.randrange(256) for _ in range(chosen.randrange(40)))
        copy.events_file.write_bytes(raw[:start] + junk + raw[start + chosen.randrange(400) :])
        assert replay(copy.events()).changes
