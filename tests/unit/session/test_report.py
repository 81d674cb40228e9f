"""What a report gathers: lanes, turns, a picture of the last look, what was tried; and that all of it is masked."""

from pathlib import Path

import pytest
from recorded_runs import hung, record, served
from story import Story

from firsttoken.history.runs import RunFolder
from firsttoken.model.events import SignalSent, StopAsked
from firsttoken.model.words import Edge, Phase
from firsttoken.report.content import Report
from firsttoken.session.report import report_of


def of(run: RunFolder, *, here: bool = False) -> Report:
    return report_of(run, str(run.path), here=here)


def test_ranks_whose_phases_went_alike_are_one_lane(tmp_path: Path) -> None:
    story = Story().crew(4).line(Phase.DISTRIBUTED_INIT, Edge.END)
    for rank in range(4):
        story.line(Phase.WEIGHTS, rank=rank)
    story.seconds(4, work=1_000_000)
    for rank in (0, 1, 3):
        story.line(Phase.WEIGHTS, Edge.END, rank=rank)
    lanes = of(record(tmp_path / "run", story)).lanes
    assert [lane.ranks for lane in lanes] == [(0, 1, 3), (2,)]
    assert [stretch.end for stretch in lanes[1].stretches if stretch.phase == "weights"] == [None]


def test_the_picture_is_of_the_last_look_and_tells_who_waits(tmp_path: Path) -> None:
    report = of(record(tmp_path / "run", hung()))
    assert report.picture is not None
    assert report.pictured_at is not None
    assert [group.ranks for group in report.picture.groups if group.ranks] == [(0, 1, 3), (2,)]
    assert (report.result.verdict, report.turns[-1].verdict) == ("hung", "hung")


def test_a_server_that_served_for_days_shows_its_start(tmp_path: Path) -> None:
    story = served()
    story.t += 5 * 86400
    report = of(record(tmp_path / "run", story.seconds(2)))
    assert report.until < 60
    assert all(t <= report.until for one in report.curves for t, _ in one.points)


def test_what_was_tried_is_told_in_sentences(tmp_path: Path) -> None:
    story = hung().tell(
        StopAsked(by="signal SIGINT"), SignalSent(signal=15, pid=1, why="ladder"), SignalSent(signal=9, pid=1, why="ladder")
    )
    tried = of(record(tmp_path / "run", story, previous={"run": "x", "text": "the previous attempt (x) was killed"})).tried
    assert tried[0] == "the previous attempt (x) was killed"
    assert any("stacks of all processes were read" in text for text in tried)
    assert "signals sent to it: SIGTERM, SIGKILL" in tried


def test_other_starts_of_the_day_are_told_with_what_differed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTTOKEN_HOME", str(tmp_path))
    own = record(tmp_path / "runs" / "20261129-120000-engine-aaaa", served())
    for name, verdict, command in (
        ("20261129-110000-engine-bbbb", "hung", ["engine", "serve", "--eager", "--tp", "8"]),
        ("20261129-113000-engine-cccc", "starting", ["engine", "serve"]),
        ("20261120-110000-engine-dddd", "hung", ["engine", "serve"]),
    ):
        other = record(tmp_path / "runs" / name, Story())
        other.write_json("result.json", {"verdict": verdict, "phase": "compile", "engine": {"name": "engine"}, "command": command})
    told = [text for text in of(own, here=True).tried if "another start" in text]
    assert told == ["another start (20261129-110000-engine-bbbb: hung in compile): --eager, --tp 8"]


def test_a_report_is_masked_whatever_the_record_shows(tmp_path: Path) -> None:
    log = b"args: {'api_key': 's3cret-one'}\nX=s3cret-one\n"
    run = record(tmp_path / "run", hung("engine s3cret-one "), log, environment={"A": "b s3cret-one"}, previous={"text": "s3cret-one"})
    assert "s3cret" not in repr(of(run))


def test_a_folder_with_nothing_in_it_gives_a_report_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    report = of(RunFolder(tmp_path / "run"))
    assert (report.lanes[0].stretches, report.curves, report.picture, report.log) == ((), (), None, ())
