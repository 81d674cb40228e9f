"""A bar's own clock tells how long a phase takes where its lines have no stamps."""

import pytest
from attached_facts import facts

from firsttoken.explain.verdict import judge
from firsttoken.model.events import LogLine
from firsttoken.model.reading import Told, bar_clock
from firsttoken.model.result import PhaseRow
from firsttoken.model.words import Edge, Phase, Verdict


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1/8 [01:20<09:30, 81s/it]", 80.0), ("61/241 [1:02:03<2:00:00, 20.1s/it]", 3723.0), ("0/8 [00:00<?, ?it/s]", 0.0), ("no bar", None)],
)
def test_the_clock_of_a_bar_is_read(text: str, seconds: float | None) -> None:
    assert bar_clock(text) == seconds


def verdict(bar: str, *, ended: float | None = None, phase: Phase = Phase.GRAPH_CAPTURE) -> Verdict:
    line = LogLine(offset=0, length=1, text=bar, phase=phase, edge=Edge.INSIDE, milestone="bar")
    row = PhaseRow(name=Phase.GRAPH_CAPTURE, began_s=10.0, seconds=ended, ranks_done=0)
    return judge(facts(told=(Told(10.0, None, line),), rows=(row,), last_t=10.0)).verdict


def test_a_bar_that_has_run_past_the_budget_is_slow() -> None:
    assert verdict("Capturing: 5%| 3/67 [00:40<14:00]") is Verdict.STARTING
    assert verdict("Capturing: 20%| 13/67 [06:40<24:00]") is Verdict.SLOW


def test_a_bar_of_another_phase_and_one_of_a_phase_that_ended_say_nothing() -> None:
    assert verdict("Loading: 90%| 9/10 [06:40<00:40]", phase=Phase.WEIGHTS) is Verdict.STARTING
    assert verdict("Capturing: 100%| 67/67 [06:40<00:00]", ended=400.0) is Verdict.STARTING
