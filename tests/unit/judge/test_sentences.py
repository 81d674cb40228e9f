"""What a blocked process waits for, as a sentence."""

import pytest
from story import Pose, key, rank_pid, wait_for

from firsttoken.judge.closeup import Look
from firsttoken.judge.graph import Edge, Node, edges, node
from firsttoken.judge.sentences import as_well, list_ranks, waits_for
from firsttoken.model.process import Member
from firsttoken.model.stillness import Wait, WaitKind


def seen(pid: int, wait: Wait | None, rank: int | None) -> Node:
    pose = Pose(where="here", waits=(wait,) if wait is not None else ())
    look = Look(round=1, at=1.0, places=pose.places(key(pid), 1), stacks=pose.stack(key(pid), 1))
    return node(Member(process=key(pid), parent=1, title="helper"), rank, look, None)


def edge(wait: Wait, pid: int = 201, rank: int | None = 1) -> Edge:
    (found,) = edges({pid: seen(pid, wait, rank)})
    return found


def said(wait: Wait) -> str:
    found = edge(wait)
    return waits_for(found.waiter, found)


@pytest.mark.parametrize(("ranks", "told"), [
    ((3,), "rank 3"), ((0, 1), "ranks 0, 1"), ((0, 1, 2), "ranks 0 to 2"), ((4, 5, 6, 7), "ranks 4 to 7"), ((0, 2, 3), "ranks 0, 2, 3"),
    ((0, 1, 3), "ranks 0, 1, 3"),
])  # fmt: skip
def test_ranks_in_a_row_are_told_by_the_first_and_the_last(ranks: tuple[int, ...], told: str) -> None:
    assert list_ranks(ranks) == told


def test_a_lock_is_told_with_its_holder_with_its_absence_or_with_neither() -> None:
    assert (
        said(wait_for(WaitKind.FILE_LOCK, "/l", key(9)))
        == "rank 1 (pid 201) waits for the file lock /l, held by pid 9 (process 9) (in here)"
    )
    assert said(wait_for(WaitKind.FILE_LOCK, "/l")) == "rank 1 (pid 201) waits for the file lock /l (in here)"
    left = said(wait_for(WaitKind.FILE_LOCK, "/l", nobody=True))
    assert left == "rank 1 (pid 201) waits for the file lock /l, which nobody holds any more: it was left behind (in here)"


def test_other_waits_name_who_is_at_the_other_end_and_never_the_waiter_itself() -> None:
    assert said(wait_for(WaitKind.PIPE, "pipe:[1]", key(9))) == "rank 1 (pid 201) waits for the pipe pipe:[1], pid 9 (process 9) (in here)"
    fifo = said(wait_for(WaitKind.FIFO, "/f", nobody=True))
    assert fifo == "rank 1 (pid 201) waits for the FIFO /f, and nobody has its other end (in here)"
    own = Wait(waiter=key(201), tid=201, kind=WaitKind.PIPE, what="pipe:[1]", to=key(201), to_title="me")
    n = seen(201, own, 1)
    assert (
        waits_for(n, Edge(waiter=n, kind=WaitKind.PIPE, what="pipe:[1]", outside=own))
        == "rank 1 (pid 201) waits for the pipe pipe:[1] (in here)"
    )
    assert said(wait_for(WaitKind.FUTEX, "a lock")) == "rank 1 (pid 201) waits for a lock (in here)"


def test_a_wait_for_a_process_of_the_run_needs_no_title() -> None:
    both = {201: seen(201, wait_for(WaitKind.FILE_LOCK, "/l", key(rank_pid(2))), 1), 202: seen(202, None, 2)}
    (found,) = edges(both)
    assert waits_for(found.waiter, found) == "rank 1 (pid 201) waits for the file lock /l (in here)"


def test_other_ranks_that_wait_for_the_very_same_are_told_and_no_others() -> None:
    def end(rank: int | None, pid: int, wait: Wait) -> tuple[Node, Node, Edge | None]:
        found = edge(wait, pid, rank)
        return found.waiter, found.waiter, found

    fifo = wait_for(WaitKind.FIFO, "/f", nobody=True)
    told = end(0, 200, fifo)
    others = [
        end(1, 201, wait_for(WaitKind.FIFO, "/g", nobody=True)),
        end(2, 202, wait_for(WaitKind.PIPE, "/f", nobody=True)),
        end(None, 300, fifo),
    ]
    lone = seen(207, None, 7)
    on = told[2]
    assert on is not None
    assert as_well(told[0], on, [told, *others, (lone, lone, None)]) == ""
    assert as_well(told[0], on, [told, *others, end(3, 203, fifo)]) == "; so does rank 3"
    assert as_well(told[0], on, [told, end(5, 205, fifo), *others, end(3, 203, fifo)]) == "; so do ranks 3, 5"
