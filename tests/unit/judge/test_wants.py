"""Which evidence is asked for, when, and above all when not."""

from itertools import pairwise

import pytest
from story import ROOT, Pose, Story, collective, plan, polls, rank_pid

from firsttoken.judge.wants import AGAIN_AFTER, LOOK_AFTER, LOOK_SELDOM, look_every, wants
from firsttoken.model.events import HttpAnswer, StopAsked, Tick
from firsttoken.model.plan import Endpoint, Policy
from firsttoken.model.requests import AskForToken, AskHealth, LookClosely, Request
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
