"""Folding recorded events again: the verdicts of then, and what differs."""

import pytest
from story import Story

from firsttoken.model.events import Emptied, Event, Judged, Tick, UnknownEvent
from firsttoken.model.words import Phase, Verdict
from firsttoken.session.replay import replay


def recorded() -> list[Event]:
    """A start that stalls, goes on, and serves, with what its observer judged."""
    story = Story().launch().line(Phase.WEIGHTS).seconds(2, work=100_000).seconds(15).seconds(2, work=100_000)
    story.ready_line().listen().ask().answer().ask().answer()
    story.t += 50
    return with_verdicts(story.exit(code=0).tell(Emptied()).events)


def with_verdicts(events: list[Event]) -> list[Event]:
    """Each change as an observer posts it: a few events late."""
    changes = replay(events).changes
    told = [
        Event(
            seq=0,
            t=change.t,
            wall=0,
            node="node",
            body=Judged(verdict=Verdict(change.verdict), phase=Phase(change.phase), reason=change.reason),
        )
        for change in changes
    ]
    merged: list[Event] = []
    for event in events:
        while told and told[0].t < event.t:
            merged.append(told.pop(0))
        merged.append(event)
    return merged + told


def test_the_same_events_give_the_same_verdicts() -> None:
    again = replay(recorded())
    assert again.same
    assert [change.verdict for change in again.changes] == ["starting", "starting", "stalled", *["starting"] * 3, "ready"]
    assert again.recorded == tuple((change.verdict, change.phase) for change in again.changes)


def test_what_was_judged_otherwise_is_a_difference() -> None:
    other = [
        Event(seq=0, t=e.t, wall=0, node="n", body=Judged(verdict=Verdict.HUNG, phase=e.body.phase, reason=""))
        if isinstance(e.body, Judged)
        else e
        for e in recorded()
    ]
    assert not replay(other).same


def test_an_observer_that_was_killed_may_have_told_less() -> None:
    events = recorded()
    last = max(number for number, event in enumerate(events) if isinstance(event.body, Judged))
    assert replay(events[:last] + events[last + 1 :]).same


@pytest.mark.parametrize("odd", [Tick(), UnknownEvent(original="from-the-future", fields={"x": 1})])
def test_events_that_say_nothing_change_nothing(odd: object) -> None:
    events = recorded()
    strewn = [item for event in events for item in (event, Event(seq=0, t=event.t, wall=0, node="node", body=odd))]  # type: ignore[arg-type]  # fields by name
    assert replay(strewn).changes == replay(events).changes


def test_a_run_replays_up_to_any_of_its_events() -> None:
    events = recorded()
    whole = replay(events).changes
    for end in range(len(events) + 1):
        part = replay(events[:end]).changes
        assert part == whole[: len(part)]


def test_nothing_replays_to_nothing() -> None:
    empty = replay([])
    assert (empty.changes, empty.recorded, empty.version, empty.same) == ((), (), "", True)
