"""A first token that takes its time: what stood before the request, and what is merely starved, is no sign that none will come."""

from story import ROOT, Pose, Story, collective, rank_pid, wait_for

from firsttoken.model.stillness import WaitKind
from firsttoken.model.words import Verdict

IDLE = Pose(doing="queue", where="get", waits=(wait_for(WaitKind.FUTEX, "a lock in its own memory", ROOT),))


def idle_server() -> Story:
    """It says that it is ready, and has stood in wait for requests, well looked at."""
    story = Story().crew(2).listen().ready_line()
    return story.watch(12, {ROOT.pid: IDLE, rank_pid(0): collective("broadcast"), rank_pid(1): IDLE})


def test_a_look_from_before_the_request_proves_nothing_about_it() -> None:
    story = idle_server().ask().seconds(8)
    assert story.state.decision.verdict is not Verdict.UNSERVING, story.state.decision.reason


def test_what_is_runnable_is_not_idle_however_little_of_a_core_it_gets() -> None:
    starved, idle = idle_server(), idle_server()
    starved.sample = starved.sample._replace(state="R")
    for story in (starved, idle):
        story.ask().seconds(20, ticks=10)
    assert idle.state.decision.verdict is Verdict.UNSERVING
    assert starved.state.decision.verdict is not Verdict.UNSERVING, starved.state.decision.reason
