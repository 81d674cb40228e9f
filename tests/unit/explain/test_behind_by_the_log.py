"""Who is behind within one phase, by what ranks have said in it and others have not."""

from attached_facts import TWO, facts

from firsttoken.explain.behind import behind
from firsttoken.model.events import LogLine
from firsttoken.model.plan import Plan, Sizes
from firsttoken.model.reading import Told
from firsttoken.model.words import Edge, Phase, Verdict

FOUR = Plan(engine="engine", sizes=Sizes(tp=4, world=4, ranks_here=4))
WEIGHTS = Phase.WEIGHTS


def said(rank: int, text: str, edge: Edge = Edge.BEGIN, *, phase: Phase = WEIGHTS, scope: str = "rank") -> Told:
    return Told(1.0, rank, LogLine(offset=0, length=1, text=text, phase=phase, edge=edge, milestone="m", scope=scope))


def named(*told: Told, verdict: Verdict = Verdict.STALLED, plan: Plan = FOUR, log: str = "x\n") -> tuple[int, ...]:
    return behind(facts(plan=plan, phase=WEIGHTS, told=told, log=log), verdict)


BEGUN = tuple(said(rank, f"begin {rank}") for rank in range(4))


def test_ranks_without_an_end_are_waited_for_by_those_that_have_one() -> None:
    told = (*BEGUN, said(0, "end", Edge.END))
    assert named(*told) == (1, 2, 3)
    assert named(*told, verdict=Verdict.SLOW) == (1, 2, 3)


def test_a_start_that_goes_on_names_nobody_yet() -> None:
    assert named(*BEGUN, said(0, "end", Edge.END), verdict=Verdict.STARTING) == ()


def test_nobody_is_named_where_none_or_all_have_ended() -> None:
    assert named(*BEGUN) == ()
    assert named(*BEGUN, *(said(rank, "end", Edge.END) for rank in range(4))) == ()


def test_an_end_that_one_rank_says_for_all_names_nobody() -> None:
    assert named(*BEGUN, said(0, "end", Edge.END, scope="one")) == ()


def test_folded_lines_hide_who_has_spoken() -> None:
    assert named(*BEGUN, said(0, "end", Edge.END), log="(Worker pid=1) end [repeated 3x across cluster]\n") == ()


def test_the_few_that_have_not_said_what_most_have_are_behind() -> None:
    told = (*BEGUN, *(said(rank, f"tuning begins on {rank}", Edge.INSIDE) for rank in (0, 1, 2)))
    assert named(*told) == (3,)
    assert named(*told, verdict=Verdict.SLOW) == ()


def test_half_of_the_ranks_are_not_most_of_them() -> None:
    assert named(*BEGUN, *(said(rank, "tuning", Edge.INSIDE) for rank in (0, 1))) == ()
    pair = (said(0, "begin"), said(1, "begin"), said(0, "tuning", Edge.INSIDE))
    assert named(*pair, plan=TWO) == ()


def test_what_was_said_in_another_phase_does_not_count() -> None:
    earlier = (said(rank, "tuning", Edge.INSIDE, phase=Phase.CONFIG) for rank in (0, 1, 2))
    assert named(*BEGUN, *earlier) == ()


def _error(of: int | None, text: str, error: str = "python-error", **values: float) -> Told:
    return Told(2.0, of, LogLine(offset=0, length=1, text=text, error=error, fatal=True, values=values))


def test_of_those_that_wait_in_vain_the_one_that_does_not_is_behind() -> None:
    vain = tuple(
        line for rank in (0, 2, 3) for line in (_error(rank, "Scheduler hit an exception"), _error(None, "Timed out waiting 7200000ms"))
    )
    assert named(*BEGUN, *vain, verdict=Verdict.FAILED) == (1,)
    assert named(*BEGUN, *vain[:4], verdict=Verdict.FAILED) == ()


def test_a_rank_that_its_own_watchdog_aborts_is_not_behind() -> None:
    died = _error(2, "signaled to shutdown with signal 6", "child-signal", rank=2.0, signal=6.0)
    assert named(*BEGUN, died, verdict=Verdict.CRASHED) == (2,)
    assert named(*BEGUN, _error(2, "collective operation timeout"), died, verdict=Verdict.CRASHED) == ()
