"""What waits for somebody outside stirs at each new attempt, and is not told as going on for that."""

from dataclasses import replace

from firsttoken.judge.advance import advance, initial
from firsttoken.judge.state import Decision, State
from firsttoken.model.events import Event, Tick
from firsttoken.model.words import Phase, Verdict

WAITS = Decision(verdict=Verdict.WAITING, phase=Phase.PROCESS_START, reason="rank 0 tries to connect to 10.0.0.2:29500")


def waiting(still: float, now: float = 100.0) -> State:
    """A server that was found waiting and has just moved, `still` seconds ago."""
    state = initial()
    return replace(state, now=now, decision=WAITS, motion=replace(state.motion, still=still, signals=("log",), moved_at=now))


def verdicts(state: State, *times: float) -> list[Verdict]:
    found = []
    for seq, t in enumerate(times):
        state = advance(state, Event(seq=seq, t=t, wall=t, node="n", body=Tick()))
        found.append(state.decision.verdict)
    return found


def test_a_stir_is_no_progress_until_it_lasts() -> None:
    assert verdicts(waiting(still=0.0), 100.1, 102.9, 103.2) == [Verdict.WAITING, Verdict.WAITING, Verdict.STARTING]


def test_what_rests_again_has_time_to_be_proven_anew() -> None:
    assert verdicts(waiting(still=1.5), 100.1, 104.0, 111.0, 113.0) == [*[Verdict.WAITING] * 3, Verdict.STARTING]


def test_a_phase_that_ends_ends_the_waiting_at_once() -> None:
    elsewhere = replace(waiting(still=0.0), decision=replace(WAITS, phase=Phase.WEIGHTS))
    assert verdicts(elsewhere, 100.1) == [Verdict.STARTING]


def test_a_hang_that_moves_was_none() -> None:
    hung = replace(waiting(still=0.0), decision=replace(WAITS, verdict=Verdict.HUNG))
    assert verdicts(hung, 100.1) == [Verdict.STARTING]
