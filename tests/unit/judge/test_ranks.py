"""World ranks from tags, and the rank that a line speaks for."""

import pytest

from firsttoken.judge.ranks import left_over, line_rank, world_rank
from firsttoken.model.events import LogLine
from firsttoken.model.plan import Sizes
from firsttoken.model.process import Member, ProcessKey, RankTag

TP4 = Sizes(tp=4, world=4, ranks_here=4)
TP2_PP2 = Sizes(tp=2, pp=2, world=4, ranks_here=4)
DP2_TP2 = Sizes(tp=2, dp=2, world=4, ranks_here=4)
ATTENTION_DP = Sizes(tp=4, dp=4, world=4, ranks_here=4)
DP4 = Sizes(tp=1, dp=4, world=4, ranks_here=4)
EP4 = Sizes(tp=4, ep=4, world=4, ranks_here=4)


@pytest.mark.parametrize(
    ("tag", "sizes", "rank"),
    [
        (None, TP4, None),
        (RankTag(name="EngineCore"), TP4, None),
        (RankTag(rank=7, tp=1), TP4, 7),
        (RankTag(rank=0, tp=3), TP4, 0),
        (RankTag(tp=3), TP4, 3),
        (RankTag(tp=0), TP4, 0),
        (RankTag(tp=1, pp=1), TP2_PP2, 3),
        (RankTag(tp=0, pp=1), TP2_PP2, 2),
        (RankTag(dp=1, tp=0), DP2_TP2, 2),
        (RankTag(dp=1, tp=1), DP2_TP2, 3),
        (RankTag(dp=3, tp=3), ATTENTION_DP, 3),
        (RankTag(dp=2), DP4, 2),
        (RankTag(dp=0), DP4, 0),
        (RankTag(dp=1), DP2_TP2, None),
        (RankTag(dp=1), Sizes(tp=2, pp=2, dp=2, world=8, ranks_here=8), None),
        (RankTag(dp=1, pp=1), Sizes(pp=2, dp=2, world=4, ranks_here=4), 3),
        (RankTag(tp=2, ep=2), EP4, 2),
        (RankTag(ep=2), EP4, 2),
    ],
)
def test_a_world_rank_is_counted_from_the_parallel_ones(tag: RankTag | None, sizes: Sizes, rank: int | None) -> None:
    assert world_rank(tag, sizes) == rank


@pytest.mark.parametrize(("sizes", "tags"), [
    (TP2_PP2, [RankTag(tp=t, pp=p) for p in range(2) for t in range(2)]),
    (DP2_TP2, [RankTag(tp=t, dp=d) for d in range(2) for t in range(2)]),
    (ATTENTION_DP, [RankTag(tp=t, dp=t) for t in range(4)]),
    (DP4, [RankTag(dp=d) for d in range(4)]),
    (Sizes(tp=2, pp=2, dp=2, world=8), [RankTag(tp=t, pp=p, dp=d) for d in range(2) for p in range(2) for t in range(2)]),
])  # fmt: skip
def test_every_rank_of_the_world_is_counted_once(sizes: Sizes, tags: list[RankTag]) -> None:
    assert [world_rank(tag, sizes) for tag in tags] == list(range(sizes.world))


def line(tag: RankTag | None = None, **values: str | float) -> LogLine:
    return LogLine(offset=0, length=1, text="x", tag=tag, values=values)


def members(pid: int, tag: RankTag | None) -> dict[int, Member]:
    return {pid: Member(process=ProcessKey("node", pid, 1), parent=1, title="t", tag=tag)}


def test_the_prefix_of_a_line_comes_before_what_its_message_names() -> None:
    assert line_rank(line(RankTag(tp=2), rank=1), {}, TP4) == 2


def test_a_rank_that_the_message_names_counts_where_the_prefix_names_none() -> None:
    assert line_rank(line(RankTag(pid=7), rank=1.0), members(7, RankTag(tp=3)), TP4) == 1
    assert line_rank(line(rank=3), {}, TP4) == 3


def test_else_the_title_of_the_process_that_wrote_it() -> None:
    assert line_rank(line(RankTag(pid=7)), members(7, RankTag(tp=3)), TP4) == 3
    assert line_rank(line(RankTag(pid=8)), members(7, RankTag(tp=3)), TP4) is None
    assert line_rank(line(RankTag(pid=7)), members(7, None), TP4) is None


def test_a_line_without_any_tag_is_nobodys() -> None:
    assert line_rank(line(), {}, TP4) is None
    assert line_rank(line(rank="three"), {}, TP4) is None


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_none_names_no_rank(odd: float) -> None:
    assert line_rank(line(rank=odd), {}, TP4) is None


def crew(*tags: RankTag | None) -> dict[int, Member]:
    """Pids from 10 on, started one after the other."""
    return {10 + i: Member(process=ProcessKey("node", 10 + i, 100 + i), parent=1, title="t", tag=tag) for i, tag in enumerate(tags)}


def test_who_has_not_told_its_rank_is_known_by_elimination() -> None:
    workers = crew(*[RankTag(name="Worker")] * 4, RankTag(name="EngineCore"), None)
    assert left_over(workers, TP4, {11: 1, 12: 2}) == {10: 0, 13: 3}
    assert left_over(workers, TP4, {10: 0, 11: 1, 12: 2}) == {13: 3}


def test_nothing_is_eliminated_where_nobody_told_or_not_all_are_there() -> None:
    assert left_over(crew(*[RankTag(name="Worker")] * 4), TP4, {}) == {}
    assert left_over(crew(*[RankTag(name="Worker")] * 3), TP4, {10: 0}) == {}
    assert left_over(crew(*[RankTag(name="Worker")] * 5), TP4, {10: 0}) == {}


def test_ranks_are_told_apart_by_the_order_of_starts_and_not_of_pids() -> None:
    def worker(pid: int, start: int) -> Member:
        return Member(process=ProcessKey("node", pid, start), parent=1, title="t", tag=RankTag(name="Worker"))

    wrapped = {pid: worker(pid, start) for pid, start in ((32_001, 1), (301, 2), (305, 3), (302, 4))}
    assert left_over(wrapped, TP4, {301: 1}) == {32_001: 0, 305: 2, 302: 3}


def test_processes_of_another_role_are_no_peers_and_ranks_that_these_told_are_taken() -> None:
    mixed = crew(*[RankTag(name="Worker")] * 4, RankTag(name="Engine"), RankTag(name="Engine"))
    assert left_over(mixed, TP4, {10: 0, 14: 1}) == {}, "one of the four has told, another role has taken a rank: it does not add up"
    assert left_over(mixed, TP4, {14: 1, 15: 2}) == {}
