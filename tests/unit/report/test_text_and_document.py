"""What people and programs read, from invented runs: a change here is a change of the contract."""

import json
import math
from dataclasses import replace

import pytest
from story import Story, plan
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.json import JSONSnapshotExtension

from firsttoken.judge.outcome import result
from firsttoken.model.events import Emptied, LogLine, MemberSeen, Memory, Missed, StopAsked, WeightProgress
from firsttoken.model.plan import Budget, Endpoint, Sizes, Timer
from firsttoken.model.process import Member, ProcessKey, RankTag
from firsttoken.model.result import Result
from firsttoken.model.words import Edge, Phase
from firsttoken.report.document import document, result_document, to_json
from firsttoken.report.text import change_line, summary

FOLDER = "/home/a/.local/state/firsttoken/runs/20260101-000000-engine-aaaa"


def told(story: Story) -> Result:
    """The result under a run's name, which an invented launch does not have."""
    return result(replace(story.state, run="20260101-000000-engine-aaaa"), FOLDER)


def begun() -> Story:
    """Two ranks, in the middle of their weights."""
    of = plan(
        command=("engine", "serve", "a/model", "--name", "two words"),
        endpoint=Endpoint(host="0.0.0.0", port=8000),
        model="a/model",
        sizes=Sizes(tp=2, world=2, ranks_here=2),
        budgets=(Budget(phase=Phase.WEIGHTS, seconds=30, source="profile"),),
        timers=(Timer(name="ready-timeout", seconds=600), Timer(name="watchdog", seconds=300, phases=(Phase.FIRST_TOKEN,))),
    )
    story = Story().launch(of)
    for rank in range(2):
        key = ProcessKey("node", 101 + rank, 5)
        story.tell(MemberSeen(member=Member(process=key, parent=100, title=f"engine::rank_TP{rank}", tag=RankTag(tp=rank))))
    story.seconds(2, work=100_000).line(Phase.CONFIG).seconds(1, work=100_000)
    story.line(Phase.WEIGHTS, rank=0).line(Phase.WEIGHTS, rank=1)
    story.tell(LogLine(offset=0, length=1, text="engine 1.2.3", values={"version": "1.2.3", "torch_version": "2.9.0"}))
    for done in (0, 2_000_000_000, 5_000_000_000):
        story.tell(WeightProgress(shards=8, shards_done=done // 1_000_000_000, bytes=8_000_000_000, bytes_done=done, how="offset"))
        story.seconds(2, work=900_000_000)
    return story.tell(Memory(unique=3_200_000_000, shared=8_000_000_000, page_cache=8_000_000_000))


def served() -> Story:
    story = begun().line(Phase.WEIGHTS, Edge.END, rank=0).line(Phase.WEIGHTS, Edge.END, rank=1)
    story.line(Phase.COMPILE, rank=0).line(Phase.COMPILE, rank=1).seconds(3, ticks=100, work=100_000)
    story.ready_line().listen().seconds(1, work=10_000).ask().answer().ask().answer()
    return story.tell(Missed(request="stacks", reason="ptrace is not permitted in this container"))


def died() -> Story:
    story = begun().error("RuntimeError: no kernel image is available for execution on the device")
    return story.exit(code=1).tell(Emptied())


def stood() -> Story:
    return begun().seconds(40)


def ended() -> Story:
    story = served()
    story.t += 100
    return story.tell(StopAsked(by="stop")).exit(code=0).tell(Emptied())


STORIES = pytest.mark.parametrize("story", [begun, served, died, stood, ended], ids=lambda story: story.__name__)


@STORIES
def test_the_summary_reads_well(story: object, snapshot: SnapshotAssertion) -> None:
    assert summary(told(story())) == snapshot  # type: ignore[operator]  # a document of any shape


@STORIES
def test_the_document_has_every_key(story: object, snapshot: SnapshotAssertion) -> None:
    written = json.loads(to_json(result_document(told(story()))))  # type: ignore[operator]  # a document of any shape
    assert written == snapshot(extension_class=JSONSnapshotExtension)


def test_a_change_is_one_line(snapshot: SnapshotAssertion) -> None:
    assert [change_line(told(story())) for story in (begun, served, died, stood, ended)] == snapshot


def test_a_result_of_nothing_can_be_told_too() -> None:
    assert "not recognised" in summary(Result())
    assert json.loads(to_json(result_document(Result())))["verdict"] == "unknown"
    assert change_line(Result()) == "    0.0 s  unknown    "


def test_numbers_that_json_does_not_have_become_null() -> None:
    written = json.loads(to_json(document("x", bad=[math.nan, math.inf, {"inner": -math.inf}], good=1.23456, whole=3)))
    assert written == {"schema": "firsttoken/1", "kind": "x", "bad": [None, None, {"inner": None}], "good": 1.235, "whole": 3}


def test_the_command_can_be_pasted_into_a_shell() -> None:
    assert "engine serve a/model --name 'two words'" in summary(told(begun()))
