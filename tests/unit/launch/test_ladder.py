"""The ladder decides; time is an argument."""

from hypothesis import given
from hypothesis import strategies as st

from firsttoken.launch.ladder import Ladder, Rung
from firsttoken.launch.spec import LadderWaits

WAITS = LadderWaits(interrupt=0, terminate=10, leftovers=5)


def played(ladder: Ladder, until: float) -> list[tuple[float, Rung]]:
    found: list[tuple[float, Rung]] = []
    while ladder.next_at is not None and ladder.next_at <= until:
        at = ladder.next_at
        while (rung := ladder.due(at)) is not None:
            found.append((at, rung))
    return found


def test_before_ready_terminate_then_kill_until_nothing_is_left() -> None:
    ladder = Ladder(0, ready=False, force=False, terminates=1, waits=WAITS)
    steps = played(ladder, 12)
    assert steps[:2] == [(0, Rung.TERMINATE), (10, Rung.KILL)]
    assert {rung for _, rung in steps[1:]} == {Rung.KILL}
    assert len(steps) > 3


def test_an_engine_that_swallows_the_first_terminate_gets_two() -> None:
    steps = played(Ladder(0, ready=False, force=False, terminates=2, waits=WAITS), 20)
    assert steps == [(0, Rung.TERMINATE), (10, Rung.TERMINATE), (20, Rung.KILL)]


def test_an_interrupt_comes_first_where_it_is_asked_for() -> None:
    steps = played(Ladder(0, ready=False, force=False, terminates=1, waits=LadderWaits(interrupt=3, terminate=4)), 7)
    assert steps == [(0, Rung.INTERRUPT), (3, Rung.TERMINATE), (7, Rung.KILL)]


def test_after_ready_one_signal_and_then_nothing_by_itself() -> None:
    ladder = Ladder(0, ready=True, force=False, terminates=2, waits=WAITS)
    assert played(ladder, 1e9) == [(0, Rung.FORWARD)]
    assert ladder.next_at is None
    ladder.ask_again(50, force=False, terminates=2)
    assert played(ladder, 1e9) == [(50, Rung.FORWARD)]


def test_force_after_ready_starts_the_whole_ladder() -> None:
    ladder = Ladder(0, ready=True, force=False, terminates=1, waits=WAITS)
    played(ladder, 5)
    ladder.ask_again(5, force=True, terminates=1)
    assert played(ladder, 15) == [(5, Rung.TERMINATE), (15, Rung.KILL)]


def test_force_while_it_runs_goes_on_to_the_next_rung() -> None:
    ladder = Ladder(0, ready=False, force=False, terminates=2, waits=WAITS)
    ladder.due(0)
    ladder.ask_again(1, force=True, terminates=2)
    assert played(ladder, 11) == [(1, Rung.TERMINATE), (11, Rung.KILL)]


def test_what_a_drained_server_leaves_gets_a_moment_and_then_a_short_ladder() -> None:
    ladder = Ladder(0, ready=True, force=False, terminates=1, waits=WAITS)
    played(ladder, 0)
    ladder.root_ended(100)
    assert played(ladder, 130.5) == [(100.5, Rung.TERMINATE), (130.5, Rung.KILL)]


def test_what_a_root_that_ended_before_ready_leaves_waits_less() -> None:
    ladder = Ladder(0, ready=False, force=False, terminates=1, waits=WAITS)
    ladder.due(0)
    ladder.root_ended(1)
    assert played(ladder, 6.5) == [(1.5, Rung.TERMINATE), (6.5, Rung.KILL)]


@given(
    st.booleans(),
    st.booleans(),
    st.integers(1, 4),
    st.lists(st.tuples(st.floats(0, 100), st.sampled_from(["ask", "force", "root"])), max_size=6),
)
def test_a_drain_never_kills_unless_forced_or_the_root_has_ended(
    ready: bool, force: bool, terminates: int, happens: list[tuple[float, str]]
) -> None:
    ladder = Ladder(0, ready=ready, force=force, terminates=terminates, waits=WAITS)
    may_kill = force or not ready
    for at, what in sorted(happens):
        assert may_kill or Rung.KILL not in [rung for _, rung in played(ladder, at)]
        if what == "root":
            ladder.root_ended(at)
        else:
            ladder.ask_again(at, force=what == "force", terminates=terminates)
        may_kill = may_kill or what != "ask"
    assert may_kill == (Rung.KILL in [rung for _, rung in played(ladder, 1000)])
