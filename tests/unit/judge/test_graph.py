"""The wait-for graph: nodes from one look, edges from waits and collectives, cycles, and what tells most."""

import pytest
from story import ROOT, Pose, collective, key, rank_pid, wait_for

from firsttoken.judge.closeup import Look
from firsttoken.judge.graph import Edge, Node, cycle, edges, gathered, label, node, telling
from firsttoken.model.process import Member, ProcessKey, RankTag
from firsttoken.model.stillness import Wait, WaitKind


def member(process: ProcessKey, title: str = "engine::rank", rank: int | None = None) -> Member:
    return Member(process=process, parent=1, title=title, tag=RankTag(rank=rank) if rank is not None else None)


def seen(process: ProcessKey, pose: Pose, rank: int | None = None, title: str = "engine::rank") -> Node:
    look = Look(round=1, at=1.0, places=pose.places(process, 1), stacks=pose.stack(process, 1))
    return node(member(process, title, rank), rank, look, ROOT.pid)


def nodes(told: dict[int, Pose], ranks: dict[int, int] | None = None) -> dict[int, Node]:
    numbers = ranks if ranks is not None else {pid: pid - rank_pid(0) for pid in told}
    return {pid: seen(key(pid), pose, numbers.get(pid)) for pid, pose in told.items()}


def waiting(kind: WaitKind, to: int | None, what: str = "it") -> Pose:
    return Pose(waits=(wait_for(kind, what, key(to) if to is not None else None),))


def test_a_node_tells_where_it_stands_and_what_it_waits_for() -> None:
    n = seen(key(200), collective("barrier"), 0)
    assert (n.rank, n.state, n.busy, n.doing, n.where) == (0, "S", False, "collective", "barrier")
    assert n.wait is not None
    assert n.wait.kind is WaitKind.FUTEX


def test_a_main_thread_that_runs_makes_the_node_busy() -> None:
    assert seen(key(200), Pose(state="R"), 0).busy


def test_without_a_stack_the_place_in_the_kernel_tells_where() -> None:
    assert seen(key(200), Pose(stacks=False, wchan="pipe_read"), 0).where == "pipe_read"
    assert seen(key(200), Pose(blind=True), 0).where == "?"


@pytest.mark.parametrize("first", [True, False])
def test_of_several_waits_the_one_that_tells_most_counts(first: bool) -> None:
    waits = (wait_for(WaitKind.POLL, "events"), wait_for(WaitKind.FILE_LOCK, "/lock", key(4242)))
    n = seen(key(200), Pose(waits=waits if first else waits[::-1]), 0)
    assert n.wait is not None
    assert n.wait.kind is WaitKind.FILE_LOCK
    assert [wait.kind for wait in n.others] == [WaitKind.POLL]


@pytest.mark.parametrize(
    ("pid", "title", "rank", "told"),
    [
        (200, "engine::rank", 3, "rank 3 (pid 200)"),
        (ROOT.pid, "python -m engine", None, f"the main process (pid {ROOT.pid})"),
        (300, "/usr/bin/ninja -j 8", None, "ninja (pid 300)"),
        (300, "", None, " (pid 300)"),
    ],
)
def test_a_label_names_ranks_the_main_process_and_others_by_their_program(pid: int, title: str, rank: int | None, told: str) -> None:
    assert label(member(key(pid), title), rank, ROOT.pid) == told


def test_the_largest_group_in_one_collective_is_gathered() -> None:
    told = {0: collective("all_reduce"), 1: collective("all_reduce"), 2: collective("barrier"), 3: Pose()}
    assert set(gathered({rank: seen(key(200 + rank), pose, rank) for rank, pose in told.items()})) == {0, 1}


def test_who_is_in_a_collective_is_further_than_who_is_in_a_rendezvous() -> None:
    told = {0: Pose(doing="rendezvous"), 1: Pose(doing="rendezvous"), 2: collective()}
    assert set(gathered({rank: seen(key(200 + rank), pose, rank) for rank, pose in told.items()})) == {2}


def test_where_there_is_no_collective_those_in_a_rendezvous_are_gathered() -> None:
    told = {0: Pose(doing="rendezvous"), 1: Pose(doing="rendezvous"), 2: Pose()}
    assert set(gathered({rank: seen(key(200 + rank), pose, rank) for rank, pose in told.items()})) == {0, 1}


@pytest.mark.parametrize("state", ["T", "t"])
def test_a_stopped_rank_is_not_gathered(state: str) -> None:
    assert gathered({0: seen(key(200), collective(state=state), 0)}) == {}


def test_ranks_in_a_collective_wait_for_each_rank_that_is_not_in_it() -> None:
    found = edges(nodes({200: collective(), 201: collective(), 202: Pose(), 203: Pose()}))
    told = {(edge.waiter.rank, edge.to.rank) for edge in found if edge.to is not None and edge.kind == WaitKind.COLLECTIVE}
    assert told == {(0, 2), (0, 3), (1, 2), (1, 3)}
    assert len(found) == 4, "the lock by which it waits for them is no second reason"


def test_where_all_are_in_the_collective_the_kernels_edges_are_told() -> None:
    found = edges(nodes({200: collective(), 201: collective()}))
    assert {edge.kind for edge in found} == {WaitKind.FUTEX}


def test_an_edge_to_a_process_that_was_looked_at_names_it_and_any_other_is_outside() -> None:
    found = edges(nodes({200: waiting(WaitKind.FILE_LOCK, 201), 201: waiting(WaitKind.FILE_LOCK, 4242)}))
    inside, outside = found
    assert inside.to is not None
    assert (inside.to.process, inside.outside) == (key(201), None)
    assert outside.to is None
    assert outside.outside is not None
    assert outside.outside.to == key(4242)


def test_a_wait_for_itself_leads_nowhere() -> None:
    (edge,) = edges(nodes({200: waiting(WaitKind.FUTEX, 200)}))
    assert edge.to is None


def test_who_waits_for_nothing_has_no_edge() -> None:
    assert edges(nodes({200: Pose()})) == ()


@pytest.mark.parametrize("kind", [WaitKind.FILE_LOCK, WaitKind.FUTEX, WaitKind.PIPE, WaitKind.SOCKET, WaitKind.CHILD])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_ring_of_waits_is_a_cycle(kind: WaitKind, size: int) -> None:
    ring = {200 + i: waiting(kind, 200 + (i + 1) % size) for i in range(size)}
    found = cycle(edges(nodes(ring)))
    assert {edge.waiter.rank for edge in found} == set(range(size))
    assert all(a.to is not None and a.to.process == b.waiter.process for a, b in zip(found, (*found[1:], found[0]), strict=True))


def test_what_leads_into_a_cycle_is_no_part_of_it() -> None:
    ring = {200: waiting(WaitKind.PIPE, 201), 201: waiting(WaitKind.FILE_LOCK, 202), 202: waiting(WaitKind.FILE_LOCK, 201)}
    assert {edge.waiter.rank for edge in cycle(edges(nodes(ring)))} == {1, 2}


@pytest.mark.parametrize("kind", [WaitKind.POLL, WaitKind.SLEEP, WaitKind.SIGNAL])
def test_waits_that_hold_nothing_close_no_cycle(kind: WaitKind) -> None:
    assert cycle(edges(nodes({200: waiting(kind, 201), 201: waiting(kind, 200)}))) == ()


def test_an_edge_of_a_collective_closes_no_cycle() -> None:
    """A rank that computes in one subgroup while another waits for it in a second is no deadlock of locks."""
    assert cycle(edges(nodes({200: collective(), 201: collective(), 202: waiting(WaitKind.SOCKET, 200)}))) == ()


def test_a_chain_is_no_cycle() -> None:
    assert cycle(edges(nodes({200: waiting(WaitKind.FILE_LOCK, 201), 201: waiting(WaitKind.FILE_LOCK, 202), 202: Pose()}))) == ()


def test_a_stop_tells_more_than_a_lock_a_lock_more_than_a_poll_and_all_more_than_nothing() -> None:
    (lock,) = edges(nodes({200: waiting(WaitKind.FILE_LOCK, 4242)}))
    (poll,) = edges(nodes({200: waiting(WaitKind.POLL, None)}))
    (stop,) = edges(nodes({200: waiting(WaitKind.STOPPED, None)}))
    (signal,) = edges(nodes({200: waiting(WaitKind.SIGNAL, None)}))
    told = [telling(edge) for edge in (stop, lock, poll, signal, None)]
    assert told == sorted(told)
    assert len(set(told)) == 5


def kinds() -> list[Wait]:
    return [wait_for(kind) for kind in WaitKind]


def test_every_kind_of_wait_has_its_place() -> None:
    for wait in kinds():
        (edge,) = edges(nodes({200: Pose(waits=(wait,))}))
        assert isinstance(edge, Edge)
        assert telling(edge) < telling(None)
