"""The definitions of phases: earliest that some rank has not left, outer before inner, between two phases the earlier one."""

from dataclasses import replace

from story import Story, plan, ranks

from firsttoken.judge import phases
from firsttoken.model.events import LogLine
from firsttoken.model.plan import Sizes
from firsttoken.model.words import Edge, Phase


def phase(story: Story) -> Phase:
    return story.state.decision.phase


def seconds(story: Story) -> dict[Phase, float | None]:
    return {time.phase: time.seconds for time in phases.times(story.state.book, story.state.plan.sizes.ranks_here)}


def test_before_any_line_it_is_process_start() -> None:
    assert phase(Story().launch()) is Phase.PROCESS_START


def test_between_two_phases_the_earlier_one_counts() -> None:
    assert phase(Story().launch().line(Phase.WEIGHTS).line(Phase.WEIGHTS, Edge.END)) is Phase.WEIGHTS


def test_a_phase_without_an_end_line_ends_where_the_next_begins() -> None:
    story = Story().launch().line(Phase.CONFIG)
    story.t = 7
    story.line(Phase.DISTRIBUTED_INIT)
    assert phase(story) is Phase.DISTRIBUTED_INIT
    assert seconds(story)[Phase.CONFIG] == 7


def test_a_phase_inside_another_does_not_replace_it() -> None:
    story = Story().launch().line(Phase.GRAPH_CAPTURE).line(Phase.WARMUP)
    assert phase(story) is Phase.GRAPH_CAPTURE
    assert phase(story.line(Phase.GRAPH_CAPTURE, Edge.END)) is Phase.WARMUP


def test_the_rank_that_is_last_decides() -> None:
    story = Story().launch(ranks(2))
    for rank in (0, 1):
        story.line(Phase.WEIGHTS, rank=rank)
    story.line(Phase.WEIGHTS, Edge.END, rank=0).line(Phase.KV_CACHE, rank=0)
    assert phase(story) is Phase.WEIGHTS
    assert phases.behind(story.state.book, 2) == (1,)


def test_a_rank_that_never_logged_is_where_the_shared_lines_are() -> None:
    story = Story().launch(ranks(2)).line(Phase.CONFIG).line(Phase.DISTRIBUTED_INIT, rank=0)
    assert phase(story) is Phase.CONFIG
    assert phases.behind(story.state.book, 2) == (1,)


def test_an_end_that_one_rank_logs_for_all_ends_it_for_all() -> None:
    story = Story().launch(ranks(2))
    for rank in (0, 1):
        story.line(Phase.WEIGHTS, rank=rank)
    story.line(Phase.WEIGHTS, Edge.END).line(Phase.KV_CACHE)
    assert phase(story) is Phase.KV_CACHE


def test_a_missed_end_line_does_not_hold_the_phase_for_ever() -> None:
    story = Story().launch().line(Phase.WEIGHTS).line(Phase.KV_CACHE).line(Phase.WARMUP).listen()
    assert phase(story) is Phase.LISTENING


def test_seconds_run_from_the_first_begin_to_the_last_end() -> None:
    story = Story().launch(ranks(2))
    story.t = 10
    story.line(Phase.WEIGHTS, rank=0).line(Phase.WEIGHTS, rank=1)
    story.t = 30
    story.line(Phase.WEIGHTS, Edge.END, rank=0)
    assert seconds(story)[Phase.WEIGHTS] is None
    story.t = 32
    story.line(Phase.WEIGHTS, Edge.END, rank=1)
    assert seconds(story)[Phase.WEIGHTS] == 22


def test_the_order_is_the_profiles() -> None:
    order = (Phase.PROCESS_START, Phase.COMPILE, Phase.KV_CACHE, Phase.LISTENING, Phase.FIRST_TOKEN)
    story = Story().launch(plan(phases=order)).line(Phase.COMPILE).line(Phase.KV_CACHE)
    assert [time.phase for time in phases.times(story.state.book, 1)] == [Phase.PROCESS_START, Phase.COMPILE, Phase.KV_CACHE]


def test_a_followers_ranks_are_not_the_first_ones() -> None:
    """The second node of two: nobody waits here for ranks that log elsewhere."""
    story = Story().launch(plan(sizes=Sizes(tp=8, world=8, nodes=2, node_rank=1, ranks_here=4)))
    for rank in (4, 5, 6, 7):
        story.line(Phase.DISTRIBUTED_INIT, rank=rank).line(Phase.DISTRIBUTED_INIT, Edge.END, rank=rank).line(Phase.WEIGHTS, rank=rank)
    assert phase(story) is Phase.WEIGHTS
    assert phases.behind(story.state.book, 4) == ()
    for rank in (4, 5, 7):
        story.line(Phase.WEIGHTS, Edge.END, rank=rank).line(Phase.KV_CACHE, rank=rank)
    assert (phase(story), phases.behind(story.state.book, 4)) == (Phase.WEIGHTS, (6,))


def test_a_followers_rank_that_has_not_logged_yet_is_behind() -> None:
    story = Story().launch(plan(sizes=Sizes(tp=8, world=8, nodes=2, node_rank=1, ranks_here=4))).line(Phase.CONFIG)
    for rank in (5, 6, 7):
        story.line(Phase.DISTRIBUTED_INIT, rank=rank)
    assert phases.behind(story.state.book, 4) == (4,)


def test_a_listening_server_has_left_what_came_before() -> None:
    assert phase(Story().launch().line(Phase.GRAPH_CAPTURE).listen()) is Phase.LISTENING


def test_the_first_end_counts() -> None:
    story = Story().launch().line(Phase.WEIGHTS)
    for at in (10, 20):
        story.t = at
        story.line(Phase.WEIGHTS, Edge.END)
    assert seconds(story)[Phase.WEIGHTS] == 10


def test_one_later_phase_may_have_begun_inside_and_two_beyond_it_or_the_open_port_end_it() -> None:
    inside = Story().launch().line(Phase.DISTRIBUTED_INIT).line(Phase.DISTRIBUTED_INIT, Edge.END).line(Phase.WEIGHTS).line(Phase.KV_CACHE)
    assert phase(inside) is Phase.WEIGHTS
    assert phase(inside.line(Phase.GRAPH_CAPTURE)) is Phase.GRAPH_CAPTURE
    for late in (Phase.LISTENING, Phase.FIRST_TOKEN):
        assert phase(Story().launch().line(Phase.WEIGHTS).line(late)) is late
    for near in (Phase.POST_LOAD, Phase.KV_CACHE, Phase.WARMUP):
        assert phase(Story().launch().line(Phase.WEIGHTS).line(near)) is Phase.WEIGHTS


def test_the_neighbour_of_a_phase_does_not_end_it_however_many_follow_inside() -> None:
    story = Story().launch().line(Phase.WEIGHTS).line(Phase.POST_LOAD).line(Phase.KV_CACHE)
    assert phase(story) is Phase.WEIGHTS, "only one beyond the next"
    assert phase(story.line(Phase.COMPILE)) is not Phase.WEIGHTS


def test_what_began_before_a_phase_does_not_end_it() -> None:
    story = Story().launch()
    story.t = 5
    story.line(Phase.WARMUP)
    story.t = 9
    story.line(Phase.CONFIG)
    assert phase(story) is Phase.CONFIG
    assert seconds(story)[Phase.CONFIG] is None


def test_a_line_that_names_no_phase_or_no_edge_moves_nothing() -> None:
    book = Story().launch().line(Phase.CONFIG).state.book
    line = LogLine(offset=0, length=1, text="x", milestone="m", phase=Phase.WEIGHTS)
    assert phases.note(book, line, None, 9.0) == book
    assert phases.note(book, replace(line, phase=None, edge=Edge.BEGIN), None, 9.0) == book
    assert phases.note(book, replace(line, edge=Edge.BEGIN), None, 9.0) != book


def test_a_line_of_one_rank_for_all_speaks_for_all_though_it_names_the_rank() -> None:
    line = LogLine(offset=0, length=1, text="x", milestone="m", phase=Phase.WEIGHTS, edge=Edge.BEGIN)
    book = Story().launch(ranks(2)).state.book
    assert set(phases.rank_phases(phases.note(book, line, 1, 1.0), 2).values()) == {Phase.WEIGHTS}
    own = phases.rank_phases(phases.note(book, replace(line, scope="rank"), 1, 1.0), 2)
    assert own == {0: Phase.PROCESS_START, 1: Phase.WEIGHTS}


def test_of_a_phase_that_both_a_rank_and_all_logged_the_earlier_begin_and_the_ranks_own_end_count() -> None:
    story = Story().launch()
    for at, edge, rank in ((3, Edge.BEGIN, 0), (5, Edge.BEGIN, None), (8, Edge.END, None), (9, Edge.END, 0)):
        story.t = at
        story.line(Phase.WEIGHTS, edge, rank=rank)
    (time,) = [time for time in phases.times(story.state.book, 1) if time.phase is Phase.WEIGHTS]
    assert (time.began, time.seconds, time.ranks_done) == (3, 6, 1)


def test_an_end_without_its_begin_lasted_no_time() -> None:
    story = Story().launch()
    story.t = 7
    assert seconds(story.line(Phase.WEIGHTS, Edge.END))[Phase.WEIGHTS] == 0


def test_where_nothing_is_told_all_are_at_the_first_phase_and_nobody_is_behind() -> None:
    book = phases.PhaseBook()
    assert (phases.current(book, 2), phases.behind(book, 2), phases.times(book, 2)) == (Phase.PROCESS_START, (), ())
    assert set(phases.rank_phases(book, 0)) == {0}
