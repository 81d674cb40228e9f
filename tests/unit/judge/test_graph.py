"""The wait-for graph: nodes from one look, edges from waits and collectives, cycles, and what tells most."""

import pytest
from story import ROOT, Pose, collective, key, rank_pid, thread, wait_for

from firsttoken.judge.closeup import Look
from firsttoken.judge.graph import Edge, Node, as_far, cycle, edges, gathered, label, node, order, telling
from firsttoken.model.events import Places
from firsttoken.model.process import Member, ProcessKey, RankTag
from firsttoken.model.stillness import ThreadPlace, Wait, WaitKind


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


@pytest.mark.parametrize("doing", ["collective", "rendezvous"])
@pytest.mark.parametrize(("kind", "seconds", "far"), [
    (WaitKind.SLEEP, 61.0, False), (WaitKind.SLEEP, 60.0, True), (WaitKind.SLEEP, None, True), (WaitKind.POLL, 600.0, True),
])  # fmt: skip
def test_code_below_a_collective_that_sleeps_for_minutes_waits_for_nobody(
    doing: str, kind: WaitKind, seconds: float | None, far: bool
) -> None:
    n = seen(key(200), Pose(doing=doing, where="all_reduce", waits=(wait_for(kind, timeout_s=seconds),)), 0)
    assert (n.doing, n.where) == ((doing, "all_reduce") if far else (None, "inner"))


def test_a_sleep_elsewhere_is_told_by_its_signature_however_long_it_lasts() -> None:
    n = seen(key(200), Pose(doing="sleep_retry", where="backoff", waits=(wait_for(WaitKind.SLEEP, timeout_s=600.0),)), 0)
    assert (n.doing, n.where) == ("sleep_retry", "backoff")


@pytest.mark.parametrize(("syscall", "main", "naps"), [
    ("nanosleep", False, True), ("clock_nanosleep", False, True), ("futex", False, False), ("nanosleep", True, False), (None, False, False),
])  # fmt: skip
def test_only_another_thread_that_sleeps_will_wake_the_process_up(syscall: str | None, main: bool, naps: bool) -> None:
    threads = (
        ThreadPlace(tid=200, main=True, syscall=syscall if main else "futex"),
        ThreadPlace(tid=201, syscall=None if main else syscall),
    )
    look = Look(round=1, at=1.0, places=Places(process=key(200), round=1, threads=threads))
    assert node(member(key(200)), 0, look, ROOT.pid).naps is naps
    assert not node(member(key(200)), 0, Look(round=1, at=1.0), ROOT.pid).naps


def test_what_other_threads_wait_for_and_do_is_told_apart_from_the_main_one() -> None:
    mine, hand = wait_for(WaitKind.FUTEX, "mine"), wait_for(WaitKind.SOCKET, "hand", tid=901)
    n = seen(key(200), Pose(doing="queue", waits=(mine, hand), threads=(thread(901, doing="network"), thread(902))), 0)
    assert [wait.what for wait in n.hands] == ["hand"]
    assert n.errands == {"network"}
    assert n.has_stack
    blind = seen(key(200), Pose(blind=True), 0)
    assert (blind.hands, blind.errands, blind.has_stack, blind.state) == ((), frozenset(), False, "?")


@pytest.mark.parametrize(("kind", "to", "inward"), [
    (WaitKind.FUTEX, None, True), (WaitKind.FUTEX, 200, True), (WaitKind.FUTEX, 201, False), (WaitKind.PIPE, 200, False),
])  # fmt: skip
def test_a_lock_in_its_own_memory_is_held_by_another_thread_of_it(kind: WaitKind, to: int | None, inward: bool) -> None:
    assert seen(key(200), waiting(kind, to), 0).inward is inward
    assert not seen(key(200), Pose(), 0).inward


def test_a_file_that_another_thread_hangs_at_is_told_with_that_threads_place() -> None:
    waits = (wait_for(WaitKind.FUTEX, "a lock in its own memory"), wait_for(WaitKind.FIFO, "/f", nobody=True, tid=901))
    n = seen(key(200), Pose(where="result", waits=waits, threads=(thread(901, where="read shard"),)), 0)
    assert (n.where, n.wait is not None and n.wait.what) == ("read shard", "/f")
    socket = (waits[0], wait_for(WaitKind.SOCKET, "far", tid=901))
    assert seen(key(200), Pose(where="result", waits=socket, threads=(thread(901, where="recv"),)), 0).where == "result"


def test_ranks_that_are_done_with_their_command_are_gathered_unless_all_are() -> None:
    def who(*doing: str | None, state: str = "S") -> set[int]:
        return set(gathered({rank: seen(key(200 + rank), Pose(doing=one, state=state), rank) for rank, one in enumerate(doing)}))

    assert who("queue", None, "idle") == {0, 2}
    assert who("queue", "idle") == set()
    assert who(None, None) == set()
    assert who("queue", None, state="T") == set()
    assert who("queue", "rendezvous") == {1}


def test_of_two_groups_of_the_same_size_the_same_is_always_taken() -> None:
    told = {0: collective("a"), 1: collective("b")}
    back = dict(reversed(told.items()))
    groups = [set(gathered({rank: seen(key(200 + rank), pose, rank) for rank, pose in each.items()})) for each in (told, back)]
    assert groups[0] == groups[1]


@pytest.mark.parametrize(("others", "far"), [(2, {2, 3}), (1, set()), (3, set())])
def test_another_collective_that_gathered_as_many_is_as_far_and_a_smaller_one_is_not(others: int, far: set[int]) -> None:
    together = {rank: seen(key(200 + rank), collective("a"), rank) for rank in (0, 1)}
    late = {2 + n: seen(key(202 + n), collective("b"), 2 + n) for n in range(others)}
    assert as_far(late, together) == far
    stopped = {rank: seen(key(200 + rank), collective("b", state="T"), rank) for rank in late}
    assert as_far(stopped, together) == frozenset()
    elsewhere = {rank: seen(key(200 + rank), Pose(doing="compile", where="b"), rank) for rank in late}
    assert as_far(elsewhere, together) == frozenset()


def test_a_process_that_took_the_pid_of_the_one_waited_for_is_not_it() -> None:
    successor = {200: Pose(waits=(wait_for(WaitKind.PIPE, "it", ProcessKey("node", 201, 999)),)), 201: Pose()}
    (edge,) = edges(nodes(successor))
    assert edge.to is None
    assert edge.outside is not None


def test_a_cycle_is_told_from_its_lowest_rank_on_whoever_was_looked_at_first() -> None:
    ring = {202: waiting(WaitKind.PIPE, 200), 201: waiting(WaitKind.PIPE, 202), 200: waiting(WaitKind.PIPE, 201)}
    for told in (ring, dict(reversed(ring.items()))):
        assert [edge.waiter.rank for edge in cycle(edges(nodes(told)))] == [0, 1, 2]
    unranked = {300: waiting(WaitKind.PIPE, 201), 201: waiting(WaitKind.PIPE, 300)}
    assert [edge.waiter.rank for edge in cycle(edges(nodes(unranked, {201: 1})))] == [1, None]


def test_processes_are_ordered_by_rank_then_by_pid_those_without_a_rank_last() -> None:
    told = [seen(key(300), Pose()), seen(key(205), Pose(), 0), seen(key(204), Pose(), 1), seen(key(299), Pose())]
    assert [n.process.pid for n in sorted(told, key=order)] == [205, 204, 299, 300]
