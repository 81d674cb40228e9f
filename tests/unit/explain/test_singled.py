"""The ranks that a cause singles out: each predicate where it names somebody, and where it must not."""

import pytest
from attached_facts import error, facts, milestone, process, stack

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


@pytest.mark.parametrize(("state", "ranks"), [("T", (1,)), ("t", (1,)), ("Tl", (1,)), ("S", None)])
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


def test_who_waits_for_a_lock_by_its_stack_is_singled_out_too() -> None:
    locked = stack(12, "acquire", file="x/filelock/_api.py")
    assert singled_out("lock_waiters", facts(Attached(stacks=(stack(11, "all_reduce"), locked)), rank_of=RANKS)) == (1,)
    assert singled_out("lock_waiters", facts(Attached(stacks=(stack(11, "all_reduce"), locked)))) is None, "no ranks are known"


def test_a_stopped_process_without_a_rank_is_nobody() -> None:
    assert singled_out("stopped", facts(Attached(processes=(process(11), process(12, "T"))))) is None
    assert singled_out("stopped", facts(Attached(processes=(process(11, "T"), process(12, "T"))), rank_of=RANKS)) == (0, 1)


@pytest.mark.parametrize(("node", "others"), [(0, (2, 3)), (1, (0, 1))])
def test_the_other_nodes_are_those_whose_ranks_are_not_here(node: int, others: tuple[int, ...]) -> None:
    plan = Plan(engine="engine", sizes=Sizes(tp=4, world=4, ranks_here=2, nodes=2, node_rank=node))
    assert singled_out("other_nodes", facts(plan=plan)) == others
    assert singled_out("other_nodes", facts()) is None
    everything_here = Plan(engine="engine", sizes=Sizes(tp=2, world=2, ranks_here=2, nodes=2))
    assert singled_out("missing", facts(plan=everything_here)) is None


def test_a_load_that_has_only_begun_is_not_loaded() -> None:
    told = (milestone(Phase.WEIGHTS, Edge.END, rank=0), milestone(Phase.WEIGHTS, rank=1), milestone(Phase.KV_CACHE, Edge.END, rank=1))
    assert singled_out("not_loaded", facts(told=told)) == (1,)
    assert singled_out("not_loaded", facts(told=(milestone(Phase.WEIGHTS, Edge.END),))) is None


INIT = "h:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank {} nranks 2 cudaDev 0 - Init {}\n"


def test_who_has_not_completed_its_communicator_is_singled_out_once_others_have() -> None:
    begun = INIT.format(0, "START") + INIT.format(1, "START")
    assert singled_out("unfinished", facts(Attached(log=begun.encode()))) is None
    assert singled_out("unfinished", facts(Attached(log=(begun + INIT.format(0, "COMPLETE")).encode()))) == (1,)


def test_a_link_table_names_who_does_not_answer_before_the_communicator_does() -> None:
    table = "| 10.0.0.2(3) | 10.0.0.1(0) | Timeout |\n| 10.0.0.2(1) | 10.0.0.1(0) | time out |\n| 10.0.0.2(3) | x | timeout |\n"
    begun = INIT.format(0, "START") + INIT.format(1, "START") + INIT.format(0, "COMPLETE")
    assert singled_out("unfinished", facts(Attached(log=(begun + table).encode()))) == (1, 3)


def test_workers_of_one_address_that_fell_back_to_the_loopback_are_those_of_the_other_node() -> None:
    one = b"(W pid=7, ip=10.0.0.2) Gloo uses the loopback\n(W pid=8, ip=10.0.0.2) connectFullMesh failed\n"
    assert singled_out("loopback", facts(Attached(log=one), plan=TWO_NODES)) == (0, 1)
    assert singled_out("loopback", facts(Attached(log=one + b"(W pid=9, ip=10.0.0.3) loopback\n"), plan=TWO_NODES)) is None
    assert singled_out("loopback", facts(plan=TWO_NODES)) is None


def test_only_the_leader_can_have_been_at_work_and_only_where_somebody_timed_out() -> None:
    late = error("timeout", "collective-timeout", rank=0)
    assert singled_out("at_work", facts(told=(late, milestone(Phase.WEIGHTS, rank=1)))) is None
    assert singled_out("at_work", facts(told=(milestone(Phase.WEIGHTS, rank=0),))) is None
    other = error("timeout", "collective-timeout", rank=1)
    assert singled_out("at_work", facts(told=(other,), rank_of={11: 0})) == (0,), "seen in the list of processes"
    assert singled_out("at_work", facts(told=(other, error("boom", rank=0)))) == (0,), "an error of another kind is no time-out"


def test_ranks_without_a_card_of_their_number_are_named_where_others_have_one() -> None:
    missing = error("CUDA error: invalid device ordinal", "device-fault", rank=1)
    assert singled_out("without_card", facts(told=(missing, error("boom", rank=0)))) == (1,)
    assert singled_out("without_card", facts(told=(missing, missing._replace(rank=0)))) is None
    assert singled_out("without_card", facts(told=(missing._replace(rank=None),))) is None
    assert singled_out("without_card", facts(told=(error("boom", rank=1),))) is None
