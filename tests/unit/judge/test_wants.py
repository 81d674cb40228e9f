"""Which evidence is asked for, when, and above all when not."""

from dataclasses import replace
from itertools import pairwise

import pytest
from story import ROOT, Pose, Story, collective, plan, polls, rank_pid

from firsttoken.judge.wants import AGAIN_AFTER, LOOK_AFTER, LOOK_SELDOM, look_every, wants
from firsttoken.model.events import Emptied, EngineCounters, HttpAnswer, Launched, Planned, StopAsked, Tick
from firsttoken.model.plan import Endpoint, Policy, Routes
from firsttoken.model.requests import AskCounters, AskForToken, AskHealth, LookClosely, Request
from firsttoken.model.words import ProbeKind, Role

POSES = {ROOT.pid: polls(), rank_pid(0): collective(), rank_pid(1): Pose()}


def asked(story: Story, kind: type[Request]) -> list[Request]:
    return [request for request in wants(story.state, story.state.policy) if isinstance(request, kind)]


def test_nothing_is_looked_at_while_things_move() -> None:
    story = Story().crew(2)
    for work in (100_000, 9_000, 100_000):
        story.seconds(1, work=work)
        assert asked(story, LookClosely) == []


def test_the_first_look_comes_with_the_first_second_of_stillness() -> None:
    story = Story().crew(2)
    assert asked(story, LookClosely) == []
    assert story.seconds(1).state.motion.still >= LOOK_AFTER
    assert asked(story, LookClosely) == [LookClosely(number=1)]


def test_the_same_look_is_asked_for_until_it_comes() -> None:
    story = Story().crew(2).seconds(2)
    first = asked(story, LookClosely)
    assert asked(story.seconds(3), LookClosely) == first


def test_the_next_look_comes_with_the_next_sample_and_not_while_one_comes_in() -> None:
    story = Story().crew(2).seconds(2)
    story.t += 0.4
    story.tell(POSES[ROOT.pid].places(ROOT, 1))
    assert asked(story, LookClosely) == [], "it has begun"
    story.t -= 0.4
    assert asked(story.seconds(1), LookClosely) == [LookClosely(number=2)]


def test_many_processes_are_looked_at_less_often() -> None:
    assert look_every(5.0, 9) == 1.0
    assert look_every(5.0, 64) > 3.0


def test_looks_become_rarer_the_longer_it_stands() -> None:
    story, at = Story().crew(2), []
    for _ in range(100):
        story.seconds(1)
        if asked(story, LookClosely):
            at.append(story.state.motion.still)
            story.look(POSES)
    assert {b - a for a, b in pairwise(at) if b <= 12} == {1}
    assert {b - a for a, b in pairwise(at) if a >= 14 and b <= 60} == {2}
    assert {b - a for a, b in pairwise(at) if a >= 62} == {10}
    assert look_every(601.0, 9) == LOOK_SELDOM


def test_looks_go_on_being_numbered_after_something_moved() -> None:
    story = Story().crew(2).watch(5, POSES).seconds(2, work=100_000).seconds(2)
    assert asked(story, LookClosely) == [LookClosely(number=story.state.closeup.round + 1)]
    assert story.state.closeup.round >= 2


def test_nothing_is_looked_at_before_the_launch_nor_after_the_end_or_a_stop() -> None:
    assert asked(Story().seconds(30), LookClosely) == []
    assert asked(Story().crew(2).seconds(10).tell(StopAsked(by="stop")), LookClosely) == []
    assert asked(Story().crew(2).seconds(10).exit(code=1), LookClosely) == []


def test_a_server_that_has_shown_its_tokens_is_left_alone() -> None:
    story = Story().crew(2).listen().ready_line().ask().answer().ask().answer()
    for _ in range(60):
        assert wants(story.seconds(1).state, Policy()) == ()


def test_a_hang_behind_an_accepted_request_is_looked_at() -> None:
    assert asked(Story().crew(2).listen().ready_line().ask().seconds(5), LookClosely) == [LookClosely(number=1)]


def test_nothing_is_asked_twice_at_once() -> None:
    story = Story().crew(2).listen().ready_line()
    for _ in range(30):
        kinds = [type(request) for request in wants(story.seconds(1).state, Policy())]
        assert len(kinds) == len(set(kinds))
    story.ask()
    for _ in range(30):
        assert asked(story.seconds(1), AskForToken) == []


def test_a_second_token_is_wanted_after_the_first_and_no_third() -> None:
    story = Story().launch().listen().ready_line()
    assert asked(story, AskForToken) == [AskForToken(number=1)]
    story.ask().answer()
    assert asked(story, AskForToken) == [AskForToken(number=2)]
    assert asked(story.ask().answer(), AskForToken) == []


@pytest.mark.parametrize(("status", "error"), [(503, None), (None, "could not connect to http://x")])
def test_who_is_not_there_yet_is_asked_again_a_little_later(status: int | None, error: str | None) -> None:
    story = Story().launch().listen().ready_line().ask().answer(status, tokens=None, error=error)
    assert asked(story, AskForToken) == []
    story.t += AGAIN_AFTER - 0.1
    assert asked(story.tell(Tick()), AskForToken) == []
    story.t += 0.1
    assert asked(story.tell(Tick()), AskForToken) == [AskForToken(number=1)]


def test_after_two_errors_it_is_asked_no_more() -> None:
    story = Story().launch().listen().ready_line().ask().answer(500, tokens=None)
    assert asked(story.seconds(2, work=100_000), AskForToken) == [AskForToken(number=1)]
    assert asked(story.ask().answer(500, tokens=None).seconds(4, work=100_000), AskForToken) == []


@pytest.mark.parametrize("status", [401, 404, 422])
def test_who_refuses_is_asked_no_more(status: int) -> None:
    story = Story().launch().listen().ready_line().ask().answer(status, tokens=None).seconds(20, work=100_000)
    assert asked(story, AskForToken) == []


def test_a_port_of_somebody_else_is_not_asked() -> None:
    assert asked(Story().launch().listen(9999).ready_line().seconds(10), AskForToken) == []
    assert asked(Story().launch(plan(endpoint=Endpoint())).listen(8000).ready_line(), AskForToken) == []


def test_a_port_that_is_closed_again_is_not_asked() -> None:
    story = Story().launch().listen().ready_line().listen(9999)
    assert asked(story, AskForToken) == []


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE, Role.ROUTER])
def test_who_cannot_give_a_token_is_asked_for_its_health_again_and_again(role: Role) -> None:
    story = Story().launch(plan(role=role)).listen().ready_line()
    assert wants(story.state, Policy()) == (AskHealth(number=1),)
    story.tell(HttpAnswer(probe=ProbeKind.HEALTH, url="http://x/health", status=503))
    assert wants(story.state, Policy()) == (AskHealth(number=2),)


def test_without_a_probe_nothing_is_asked() -> None:
    story = Story().launch(policy=Policy(probe=False)).listen().ready_line()
    assert asked(story, AskForToken) == []


# the pace of questions


def test_a_server_that_is_not_there_yet_is_asked_again_after_two_seconds_and_any_other_at_once() -> None:
    def after(seconds: float, status: int | None, error: str | None = None) -> list[Request]:
        story = Story().launch().seconds(3, work=100_000).listen().ready_line().ask().answer(status, tokens=0, error=error)
        story.t += seconds
        return asked(story.tell(Tick()), AskForToken)

    assert after(1.9, 503) == []
    assert after(2.0, 503) == [AskForToken(number=1)]
    assert after(0.0, 404) == []
    assert after(1.9, None, "connect: refused") == []


def test_a_port_that_says_nothing_is_asked_after_three_seconds() -> None:
    story = Story().launch().seconds(5, work=100_000).listen()
    story.t += 2.9
    assert asked(story.tell(Tick()), AskForToken) == []
    story.t += 0.1
    assert asked(story.tell(Tick()), AskForToken) == [AskForToken(number=1)]


@pytest.mark.parametrize(("still", "every"), [
    (0.0, 1.0), (11.9, 1.0), (12.0, 2.0), (59.9, 2.0), (60.0, 10.0), (599.0, 10.0), (600.0, 60.0), (9999.0, 60.0),
])  # fmt: skip
def test_looks_become_rarer_in_steps(still: float, every: float) -> None:
    assert look_every(still, 1) == every
    assert look_every(still, 2000) == look_every(0.0, 2000) > 60.0, "many processes cost more than any pace"


@pytest.mark.parametrize(("later", "wanted"), [(0.4, False), (0.5, True)])
def test_a_look_is_wanted_half_a_second_before_its_time(later: float, wanted: bool) -> None:
    story = Story().crew(2).seconds(2).look(POSES)
    story.t += later
    assert bool(asked(story.tell(Tick()), LookClosely)) is wanted


def test_nothing_is_looked_at_once_the_start_has_failed_and_is_while_it_waits() -> None:
    assert asked(Story().crew(2).seconds(3), LookClosely) == [LookClosely(number=1)]
    assert asked(Story().crew(2).error("boom").seconds(3), LookClosely) == []
    refused = Story().crew(2).listen().ready_line().ask().answer(404, tokens=0).seconds(3)
    assert asked(refused, LookClosely) == []


def test_no_token_is_asked_for_once_the_end_was_asked_for_or_came() -> None:
    assert asked(Story().launch().listen().ready_line(), AskForToken) == [AskForToken(number=1)]
    assert asked(Story().launch().listen().ready_line().tell(StopAsked(by="stop")), AskForToken) == []
    assert asked(Story().launch().listen().ready_line().error("boom"), AskForToken) == []
    assert asked(Story().launch().listen().ready_line().exit(code=1), AskForToken) == []


def test_a_follower_is_asked_for_nothing() -> None:
    follower = Story().launch(plan(role=Role.FOLLOWER)).listen()
    follower.t = 9.0
    assert [type(one) for one in wants(follower.tell(Tick()).state, Policy()) if not isinstance(one, LookClosely)] == []


# the engine's own counters


METRICS = plan(routes=Routes(metrics="/metrics"))


def served(**changes: object) -> Story:
    story = Story().launch(replace(METRICS, **changes)).seconds(5, work=100_000).listen().ready_line()  # type: ignore[arg-type]  # fields by name
    return story.ask().answer().ask().answer()


def counters(story: Story, later: float, policy: Policy | None = None) -> bool:
    story.t += later
    return AskCounters() in wants(story.tell(Tick()).state, policy or Policy())


def test_counters_are_wanted_ten_seconds_after_ready_and_a_minute_after_a_failure() -> None:
    assert not counters(served(), 9.9)
    assert counters(served(), 10.0)
    failed = EngineCounters(error="late")
    assert not counters(served().tell(failed), 59.9)
    assert counters(served().tell(failed), 60.0)
    assert not counters(served().tell(EngineCounters(error="gone", available=False)), 600.0)


def test_counters_are_not_wanted_without_a_probe_a_page_or_a_server() -> None:
    assert not counters(served(), 10.0, Policy(probe=False))
    assert not counters(served(routes=Routes()), 10.0)
    assert not counters(served().tell(StopAsked(by="x")), 10.0)
    assert not counters(served().tell(Emptied()), 10.0)
    assert not counters(served().exit(code=0), 10.0)
    health_only = Story().launch(replace(METRICS, role=Role.ROUTER)).seconds(5, work=100_000).listen().ready_line()
    health_only.tell(HttpAnswer(probe=ProbeKind.HEALTH, url="http://x", status=200))
    assert health_only.state.ready_at == 5.0
    assert not counters(health_only, 10.0), "it has shown no token"


@pytest.mark.parametrize(("later", "wanted"), [(2.9, False), (3.0, True)])
def test_the_counters_of_a_busy_server_are_read_every_three_seconds_until_it_is_known(later: float, wanted: bool) -> None:
    story = Story()
    story.tell(Planned(plan=METRICS, policy=Policy())).tell(Launched(process=ROOT, argv=("serve",), adopted=True))
    story.listen().ready_line().tell(EngineCounters(generation_tokens=1.0, running=1.0))
    assert counters(story, later) is wanted
    assert asked(story, AskForToken) == []
