"""Who waits for whom as a drawing: ranks that wait alike together, the waited-for to the right, a cycle as a cycle."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from firsttoken.model.result import MemberRow, RankGroup, RanksRow, Result
from firsttoken.report.drawing import waits
from firsttoken.report.wait_graph import graph


def wait(begin: int, to: dict[str, Any] | None, kind: str = "collective", what: str = "all_reduce") -> dict[str, Any]:
    return {"from": {"rank": begin}, "kind": kind, "what": what, "to": to}


def member(rank: int) -> MemberRow:
    return MemberRow(process={"node": "n", "pid": 200 + rank, "start": 1}, title=f"engine::rank{rank}", rank=rank)


def test_ranks_that_wait_alike_are_one_node_and_the_blocker_is_marked() -> None:
    told = Result(
        waits=(*(wait(rank, {"rank": 3}) for rank in (0, 1, 2)), wait(3, {"pid": 9, "title": "other job"}, "file_lock", "/cache/lock")),
        members=tuple(member(rank) for rank in range(4)),
        ranks=RanksRow(behind=(3,), groups=(RankGroup(ranks=(0, 1, 2), where="all_reduce"), RankGroup(ranks=(3,), where="flock"))),
        root_blocker={"process": {"node": "n", "pid": 9, "start": 1}, "title": "other job", "in_run": False},
    )
    found = graph(told)
    assert [(node.name, node.detail, node.column, node.blocker) for node in found.nodes] == [
        ("ranks 0-2", "all_reduce", 0, False),
        ("rank 3", "flock · pid 203", 1, False),
        ("pid 9", "other job", 2, True),
    ]
    assert [(arrow.begin, arrow.end, arrow.text, arrow.back) for arrow in found.arrows] == [
        (0, 1, "collective", False),
        (1, 2, "file lock", False),
    ]


def test_a_cycle_stays_in_one_column() -> None:
    told = Result(waits=(wait(0, {"rank": 1}, "file_lock", "a"), wait(1, {"rank": 0}, "file_lock", "b")))
    found = graph(told)
    assert [node.column for node in found.nodes] == [0, 0]
    assert all(arrow.back for arrow in found.arrows)
    assert "path" in waits(found)


def test_where_nobody_is_named_the_thing_itself_is_waited_for() -> None:
    found = graph(Result(waits=(wait(1, None, "fifo", "/models/x"),)))
    assert [node.name for node in found.nodes] == ["rank 1", "/models/x"]
    assert graph(Result()).nodes == ()


ENDS = st.one_of(st.none(), st.fixed_dictionaries({"rank": st.integers(0, 5)}), st.fixed_dictionaries({"pid": st.integers(1, 5)}))


@given(st.lists(st.tuples(st.integers(0, 5), ENDS, st.sampled_from(["futex", "child", "<&\x1b"])), max_size=30))
def test_any_graph_is_laid_out_and_drawn(edges: list[tuple[int, dict[str, Any] | None, str]]) -> None:
    found = graph(Result(waits=tuple(wait(begin, to, kind, kind) for begin, to, kind in edges)))
    places = [(node.column, node.row) for node in found.nodes]
    assert len(places) == len(set(places))
    if found.nodes:
        assert "<&" not in waits(found)


def test_a_large_graph_is_cut_and_says_so() -> None:
    found = graph(Result(waits=tuple(wait(rank, {"rank": rank + 1}) for rank in range(200))))
    assert (len(found.nodes), found.left_out) == (24, 177)
