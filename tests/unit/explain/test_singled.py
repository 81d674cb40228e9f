"""The ranks that a cause singles out: each predicate where it names somebody, and where it must not."""

import pytest
from attached_facts import error, facts, milestone, process

from firsttoken.explain.singled import singled_out
from firsttoken.model.attached import Attached
from firsttoken.model.plan import Plan, Sizes
from firsttoken.model.words import Edge, Phase

TWO_NODES = Plan(engine="engine", sizes=Sizes(tp=4, world=4, ranks_here=2, nodes=2, node_rank=1))
RANKS = {11: 0, 12: 1}


@pytest.mark.parametrize(
    ("first", "second", "ranks"),
    [
        ("hrtimer_nanosleep", None, (0,)),
        (None, "hrtimer_nanosleep", (1,)),
        ("hrtimer_nanosleep", "hrtimer_nanosleep", None),
        (None, None, None),
    ],
)
def test_those_that_sleep_and_retry_are_singled_out_beside_others(
    first: str | None, second: str | None, ranks: tuple[int, ...] | None
) -> None:
    both = (process(11, wchan=first), process(12, wchan=second))
    assert singled_out("lock_waiters", facts(Attached(log=b"", processes=both), rank_of=RANKS)) == ranks


@pytest.mark.parametrize(("state", "ranks"), [("T", (1,)), ("t", (1,)), ("S", None)])
def test_the_stopped_rank_is_singled_out(state: str, ranks: tuple[int, ...] | None) -> None:
    both = (process(11), process(12, state))
    assert singled_out("stopped", facts(Attached(log=b"", processes=both), rank_of=RANKS)) == ranks


def test_on_two_nodes_the_ranks_of_the_other_one_are_missing_and_on_one_node_nobody_is() -> None:
    assert singled_out("missing", facts(plan=TWO_NODES)) == (0, 1)
    assert singled_out("missing", facts()) is None


def test_the_first_warning_of_the_library_names_its_rank() -> None:
    assert singled_out("first_line", facts(Attached(log=b"h:1:2 [1] x.cc:8 NCCL WARN Error\nh:1:2 [0] NCCL WARN Error\n"))) == (1,)
    assert singled_out("first_line", facts()) is None


def test_who_has_not_loaded_is_told_once_somebody_has() -> None:
    one = milestone(Phase.WEIGHTS, Edge.END, rank=0)
    assert singled_out("not_loaded", facts(told=(one,))) == (1,)
    assert singled_out("not_loaded", facts(told=(one, milestone(Phase.WEIGHTS, Edge.END, rank=1)))) is None
    assert singled_out("not_loaded", facts()) is None


def test_the_leader_was_at_work_where_only_the_others_timed_out() -> None:
    late = error("timeout", "collective-timeout", rank=1)
    assert singled_out("at_work", facts(told=(late, milestone(Phase.WEIGHTS, rank=0)))) == (0,)
    assert singled_out("at_work", facts(told=(late, error("timeout", "collective-timeout", rank=0)))) is None


def test_the_first_child_was_never_born_only_where_there_are_two() -> None:
    assert singled_out("never_born", facts()) == (1,)
    assert singled_out("never_born", facts(plan=TWO_NODES)) is None
    assert singled_out("nobody", facts()) == ()
