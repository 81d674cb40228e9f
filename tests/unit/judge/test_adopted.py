"""A server that somebody else started: it may be busy with the requests of others, and then none of ours is sent."""

from dataclasses import replace

from story import ROOT, Story, plan

from firsttoken.judge.wants import BUSY_EVERY, wants
from firsttoken.model.events import EngineCounters, HttpAnswer, Launched, Planned, Tick
from firsttoken.model.plan import Plan, Policy, Routes
from firsttoken.model.requests import AskCounters, AskForToken, Request
from firsttoken.model.words import ProbeKind, Verdict

METRICS = plan(routes=Routes(metrics="/metrics"))


def attached(known: Plan = METRICS) -> Story:
    """Found listening."""
    story = Story()
    story.tell(Planned(plan=known, policy=Policy())).tell(Launched(process=ROOT, argv=("serve",), adopted=True))
    return story.listen().seconds(4)


def told(tokens: float, running: float) -> EngineCounters:
    return EngineCounters(generation_tokens=tokens, running=running, waiting=0.0)


def asked(story: Story) -> tuple[Request, ...]:
    return tuple(request for request in wants(story.state, Policy()) if isinstance(request, AskCounters | AskForToken))


def test_its_counters_are_read_before_it_is_asked_and_an_idle_one_is_asked() -> None:
    story = attached()
    assert asked(story) == (AskCounters(),)
    assert asked(story.tell(told(7, running=0))) == (AskForToken(number=1),)


def test_a_busy_one_is_ready_by_the_tokens_that_it_makes_for_others_and_never_asked() -> None:
    story = attached().tell(told(7, running=3))
    assert asked(story) == ()
    story.t += BUSY_EVERY
    assert asked(story.tell(Tick())) == (AskCounters(),)
    story.tell(told(30, running=2))
    decision = story.state.decision
    assert (decision.verdict, asked(story)) == (Verdict.READY, ())
    assert "the requests of others" in decision.reason


def test_a_busy_one_that_makes_no_token_is_not_called_ready() -> None:
    story = attached()
    for _ in range(5):
        story.tell(told(7, running=3)).seconds(4)
    assert story.state.decision.verdict is not Verdict.READY
    assert AskForToken(number=1) not in asked(story)


def test_one_whose_counters_cannot_be_had_is_asked() -> None:
    gone = EngineCounters(error="/metrics: HTTP 404", available=False)
    assert asked(attached().tell(gone)) == (AskForToken(number=1),)
    late = EngineCounters(error="/metrics: no whole answer within 5 s")
    assert asked(attached().tell(late)) == (AskForToken(number=1),)
    assert asked(attached(replace(METRICS, routes=Routes()))) == (AskForToken(number=1),)


def test_one_wrong_answer_is_no_verdict_before_the_next_one() -> None:
    wrong = HttpAnswer(probe=ProbeKind.COMPLETION, url="http://127.0.0.1:8000/v1/completions", status=200, error="ended without a token")
    story = attached().tell(told(7, running=0)).ask().tell(wrong).seconds(7)
    assert story.state.decision.verdict is not Verdict.UNSERVING
    story.ask().tell(wrong).seconds(1)
    assert story.state.decision.verdict is Verdict.UNSERVING
    assert "ended without a token" in story.state.decision.reason
