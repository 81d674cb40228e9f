"""The fold, event by event: what each leaves in the state, what is kept and for how long, and what changes nothing."""

import signal
from dataclasses import replace

import pytest
from story import ROOT, Story, key, plan, rank_pid, ranks

from firsttoken.judge import phases
from firsttoken.judge.advance import serves_here
from firsttoken.judge.state import State
from firsttoken.model.events import (
    EngineCounters,
    Exited,
    Gap,
    HttpAnswer,
    HttpAsked,
    Launched,
    Listening,
    LogActivity,
    LogLine,
    MemberGone,
    MemberSeen,
    Missed,
    OomKill,
    Planned,
    SignalSent,
    StopAsked,
    WeightProgress,
)
from firsttoken.model.plan import Endpoint, Plan, Policy, Sizes
from firsttoken.model.process import ListenSocket, Member, ProcessKey, RankTag
from firsttoken.model.words import Edge, Phase, ProbeKind, Verdict


def line(text: str = "x", phase: Phase | None = None, edge: Edge | None = None, **values: str | float) -> LogLine:
    return LogLine(offset=0, length=1, text=text, phase=phase, edge=edge, milestone="m" if phase else None, values=values)


def seconds(story: Story, phase: Phase) -> list[float | None]:
    return [time.seconds for time in phases.times(story.state.book, story.state.plan.sizes.ranks_here) if time.phase is phase]


def test_the_launch_is_dated_by_its_own_clock_whenever_it_is_told() -> None:
    story = Story()
    story.t = 7.0
    assert story.launch().state.launched_wall == 1e9


def test_time_never_goes_back() -> None:
    story = Story().launch().seconds(5, work=100_000)
    story.t = 2.0
    assert story.tell(line()).state.now == 5.0


def test_what_is_kept_of_a_long_run_is_bounded_the_first_errors_and_the_last_of_the_rest() -> None:
    story = Story().launch().tell(*[replace(line(f"e{n}"), error="e") for n in range(60)])
    assert [one.text for one in story.state.errors] == [f"e{n}" for n in range(50)]
    story.tell(*[SignalSent(signal=n, pid=1, why="x") for n in range(30)])
    assert story.state.signals_sent == tuple(range(9, 30))
    story.tell(*[Gap(what="log", amount=n, reason="full") for n in range(30)])
    assert story.state.missed[0] == "log: 9 lost, full"
    assert len(story.state.missed) == 21
    story.tell(*[Exited(process=key(1000 + n), code=0) for n in range(250)])
    assert len(story.state.exits) == 201


def test_what_was_missed_is_told_once() -> None:
    story = Story().launch().tell(Missed(request="a", reason="b"), Missed(request="a", reason="b"), Missed(request="a", reason="c"))
    assert story.state.missed == ("a: b", "a: c")


def test_an_oom_kill_is_told_by_its_text_or_by_the_pid() -> None:
    assert Story().tell(OomKill(source="kmsg", pid=7, text="killed 7"), OomKill(source="cgroup", pid=7)).state.oom == (
        "kmsg: killed 7",
        "cgroup: 7",
    )


def test_only_a_line_that_says_something_new_is_motion() -> None:
    story = Story().launch().seconds(4)
    still = story.state.motion.still
    story.tell(LogActivity(bytes=9, lines=9, fresh=0, offset=0, last="again"))
    assert (story.state.motion.still, story.state.last_line, story.state.last_line_at) == (still, "", None)
    story.tell(LogActivity(bytes=9, lines=9, fresh=1, offset=0, last="new"))
    assert (story.state.motion.still, story.state.last_line, story.state.last_line_at) == (0.0, "new", 4.0)
    story.tell(LogActivity(bytes=9, lines=9, fresh=1, offset=0))
    assert story.state.last_line == "new"


def test_a_process_that_is_born_or_gone_is_motion_and_one_that_only_changes_its_title_is_not() -> None:
    story = Story().launch().member(300).seconds(4)
    still = story.state.motion.still
    assert still > 0
    member = story.state.members[300]
    assert story.tell(MemberSeen(member=replace(member, title="other"))).state.motion.still == still
    assert story.state.members[300].title == "other"
    story.tell(MemberGone(process=ProcessKey("node", 300, 999)))
    assert 300 in story.state.members, "its successor with the same pid"
    assert story.tell(MemberGone(process=member.process)).state.motion.still == 0.0
    assert 300 not in story.state.members


def test_a_milestone_is_dated_when_its_bytes_came_though_the_observer_came_later() -> None:
    story = Story().launch().line(Phase.WEIGHTS)
    story.t = 30.0
    assert seconds(story.tell(replace(line(phase=Phase.WEIGHTS, edge=Edge.END), read_at=12.0)), Phase.WEIGHTS) == [12.0]
    story = Story().launch().line(Phase.WEIGHTS)
    story.t = 30.0
    assert seconds(story.tell(replace(line(phase=Phase.WEIGHTS, edge=Edge.END), read_at=99.0)), Phase.WEIGHTS) == [30.0], (
        "never in the future"
    )


def test_the_first_token_comes_with_a_token_and_not_with_a_health_page() -> None:
    story = Story().launch().listen().ready_line().ask()
    story.t = 3.0
    story.tell(HttpAsked(probe=ProbeKind.HEALTH, url="http://x"), HttpAnswer(probe=ProbeKind.HEALTH, url="http://x", status=200))
    assert seconds(story, Phase.FIRST_TOKEN) == [None]
    story.answer(500, tokens=0)
    assert seconds(story, Phase.FIRST_TOKEN) == [None]
    assert seconds(story.ask().answer(), Phase.FIRST_TOKEN) == [3.0]
    health_only = Story().launch().listen().tell(HttpAsked(probe=ProbeKind.HEALTH, url="http://x"))
    assert seconds(health_only, Phase.FIRST_TOKEN) == []


def test_tokens_for_others_are_the_first_token_of_a_server_that_somebody_else_started() -> None:
    def told(adopted: bool) -> Story:
        story = Story().tell(Planned(plan=plan(), policy=Policy()), Launched(process=ROOT, argv=("x",), adopted=adopted)).listen()
        return story.tell(*[EngineCounters(generation_tokens=tokens, running=1.0) for tokens in (1.0, 2.0)])

    assert seconds(told(True), Phase.FIRST_TOKEN) == [0.0]
    assert seconds(told(False), Phase.FIRST_TOKEN) == []


def test_the_first_to_ask_for_the_end_is_named() -> None:
    story = Story().launch().tell(StopAsked(by="stop"), StopAsked(by="SIGINT"))
    assert story.state.stop_by == "stop"


# what a start teaches


def quiet(story: Story) -> dict[Phase, float]:
    return dict(story.state.quiet)


def test_the_longest_stillness_of_a_phase_is_kept() -> None:
    story = Story().launch().seconds(5).seconds(1, work=100_000).seconds(3)
    assert quiet(story) == {Phase.PROCESS_START: 4.0}
    story.line(Phase.WEIGHTS).seconds(1, work=100_000).seconds(2)
    assert quiet(story) == {Phase.PROCESS_START: 4.0, Phase.WEIGHTS: 2.0}


@pytest.mark.parametrize(("ticks", "told"), [(49, {Phase.PROCESS_START: 3.0}), (50, {})])
def test_half_a_core_is_no_quiet(ticks: int, told: dict[Phase, float]) -> None:
    assert quiet(Story().launch().seconds(4, ticks=ticks)) == told


def test_a_stopped_process_is_no_quiet() -> None:
    story = Story().launch()
    story.sample = story.sample._replace(state="T")
    assert quiet(story.seconds(5)) == {}


# dead ranks


def killed(story: Story, pid: int, **changes: object) -> list[int | None]:
    story.tell(replace(Exited(process=key(pid), signal=signal.SIGKILL), **changes))  # type: ignore[arg-type]  # fields by name
    return [death.rank for death in story.state.rank_deaths]


def test_only_a_process_of_the_engine_that_a_signal_ended_is_a_dead_rank() -> None:
    assert killed(Story().crew(2), rank_pid(1)) == [1]
    assert killed(Story().crew(2), rank_pid(1), signal=None, code=1) == []
    assert killed(Story().crew(2).member(300), 300) == [], "a helper"
    assert killed(Story().crew(2), rank_pid(1), root=True) == []
    assert killed(Story().crew(2), rank_pid(1), process=ProcessKey("node", rank_pid(1), 999)) == [], "its pid was taken anew"
    assert killed(Story().crew(2).tell(StopAsked(by="stop")), rank_pid(1)) == []
    assert killed(Story().crew(2).tell(SignalSent(signal=signal.SIGKILL, pid=1, why="x")), rank_pid(1)) == []
    assert killed(Story().crew(2).tell(SignalSent(signal=signal.SIGTERM, pid=1, why="x")), rank_pid(1)) == [1]


def told_late(*before: object, rank: int = 1) -> Story:
    story = Story().launch(ranks(2)).tell(*before)  # type: ignore[arg-type]  # events
    return story.tell(replace(line(phase=Phase.DISTRIBUTED_INIT, edge=Edge.BEGIN, pid=300.0), scope="rank", tag=RankTag(rank=rank)))


def test_a_line_that_is_read_after_the_death_of_who_wrote_it_names_the_dead_rank() -> None:
    dead = Exited(process=key(300), signal=signal.SIGKILL)
    (death,) = told_late(dead).state.rank_deaths
    assert (death.rank, death.pid, death.signal) == (1, 300, signal.SIGKILL)
    assert told_late(replace(dead, process=key(301))).state.rank_deaths == ()
    assert told_late(replace(dead, signal=None, code=1)).state.rank_deaths == ()
    assert told_late(replace(dead, root=True)).state.rank_deaths == ()
    assert told_late(dead, StopAsked(by="stop")).state.rank_deaths == ()
    assert told_late(dead, SignalSent(signal=signal.SIGKILL, pid=300, why="x")).state.rank_deaths == ()
    assert told_late().state.told_ranks == {300: 1}


def test_two_ranks_that_died_early_are_both_told_and_each_only_once() -> None:
    story = Story().launch(ranks(2)).tell(*[Exited(process=key(pid), signal=signal.SIGKILL) for pid in (300, 301)])
    for pid, rank in ((300, 0), (301, 1), (300, 0), (301, 0)):
        story.tell(replace(line(phase=Phase.DISTRIBUTED_INIT, edge=Edge.BEGIN, pid=float(pid)), scope="rank", tag=RankTag(rank=rank)))
    assert [(death.pid, death.rank) for death in story.state.rank_deaths] == [(300, 0), (301, 1)]


def test_a_line_whose_prefix_names_the_process_needs_no_pid_in_its_text() -> None:
    story = Story().launch(ranks(2))
    story.tell(replace(line(phase=Phase.DISTRIBUTED_INIT, edge=Edge.BEGIN, pid=7.0), scope="rank", tag=RankTag(rank=1, pid=300)))
    assert story.state.told_ranks == {300: 1}
    story.tell(replace(line(phase=Phase.DISTRIBUTED_INIT, edge=Edge.BEGIN, pid="nan"), scope="rank", tag=RankTag(rank=0)))
    story.tell(replace(line(phase=Phase.DISTRIBUTED_INIT, edge=Edge.BEGIN, pid=float("nan")), scope="rank", tag=RankTag(rank=0)))
    story.tell(line(phase=Phase.DISTRIBUTED_INIT, edge=Edge.BEGIN, pid=8.0))
    assert story.state.told_ranks == {300: 1}


# bars and figures


def test_the_bar_of_a_draft_model_does_not_replace_that_of_the_model() -> None:
    story = Story().launch()
    for shards, shown in ((4.0, 4.0), (2.0, 4.0), (8.0, 8.0)):
        story.tell(line(shards=shards, shards_done=1.0))
        assert story.state.bar is not None
        assert story.state.bar.values["shards"] == shown
    story.tell(line(shards=8.0, shards_done=5.0), line(shards="many"), line(seconds=3.0))
    assert story.state.bar is not None
    assert story.state.bar.values["shards_done"] == 5.0, "the same bar moves on"


def test_the_longest_load_that_the_engine_told_counts_and_a_bars_clock_does_not() -> None:
    def told(*values: tuple[Phase, Edge, dict[str, str | float]]) -> float | None:
        return Story().launch().tell(*[line(phase=phase, edge=edge, **each) for phase, edge, each in values]).state.weights_told  # type: ignore[arg-type]  # by name

    assert told((Phase.WEIGHTS, Edge.END, {"seconds": 9.0}), (Phase.WEIGHTS, Edge.END, {"seconds": 2.0})) == 9.0
    assert told((Phase.WEIGHTS, Edge.END, {"seconds": 2.0}), (Phase.WEIGHTS, Edge.INSIDE, {"seconds": 9.0})) == 9.0
    assert told((Phase.WEIGHTS, Edge.BEGIN, {"seconds": 9.0})) is None
    assert told((Phase.COMPILE, Edge.END, {"seconds": 9.0})) is None
    assert told((Phase.WEIGHTS, Edge.INSIDE, {"seconds": 9.0, "shards": 4.0})) is None
    assert told((Phase.WEIGHTS, Edge.END, {"seconds": "nine"})) is None


def test_values_of_lines_are_facts_of_the_run_but_the_rank_is_the_lines_own() -> None:
    assert Story().launch().tell(line(version="1.0", rank=3.0), line(version="1.1")).state.facts == {"version": "1.1"}


def test_points_of_the_load_are_kept_for_half_a_minute() -> None:
    story = Story().launch()
    for t in (0.0, 10.0, 30.0, 41.0):
        story.t = t
        story.tell(WeightProgress(shards=1, shards_done=0, bytes=100, bytes_done=int(t)))
    assert story.state.weights_at == ((30.0, 30), (41.0, 41))
    story = Story().launch()
    for t in (0.0, 30.0):
        story.t = t
        story.tell(WeightProgress(shards=1, shards_done=0, bytes=100, bytes_done=int(t)))
    assert len(story.state.weights_at) == 2


def test_only_weights_that_grow_are_motion() -> None:
    story = Story().launch().seconds(3).tell(WeightProgress(shards=1, shards_done=0, bytes=100, bytes_done=50))
    assert story.state.motion.still == 2.0, "what is found lying there has not moved"
    story.tell(WeightProgress(shards=1, shards_done=0, bytes=100, bytes_done=50))
    assert story.state.motion.still == 2.0
    assert story.tell(WeightProgress(shards=1, shards_done=0, bytes=100, bytes_done=51)).state.motion.still == 0.0


# does it serve here?


def serves(of: Plan, *sockets: ListenSocket, ready: bool = False) -> bool:
    story = Story().launch(of).tell(Listening(sockets=sockets))
    state: State = story.ready_line().state if ready else story.state
    return serves_here(state)


def test_a_server_is_where_its_plan_expects_it() -> None:
    tcp, other, path = ListenSocket(1, "::", 8000, None), ListenSocket(1, "::", 9, None), ListenSocket(1, None, None, "/run/s")
    assert serves(plan(), other, tcp)
    assert not serves(plan(), other)
    assert not serves(plan(endpoint=Endpoint()), tcp, path), "no port is known"
    assert serves(plan(endpoint=Endpoint(unix_socket="/run/s", port=8000)), path)
    assert not serves(plan(endpoint=Endpoint(unix_socket="/run/s", port=8000)), tcp)
    assert serves(plan(contained=True), ready=True)
    assert not serves(plan(contained=True))
    assert not serves(plan(), ready=True)
    assert not serves(plan(contained=True, endpoint=Endpoint()), ready=True)
    assert serves(plan(contained=True), tcp), "its port is published here"


def test_an_open_port_begins_the_phase_of_listening_unless_the_engine_opens_it_before_the_load() -> None:
    assert Story().launch().listen().state.decision.phase is Phase.LISTENING
    early = Story().launch(plan(listens_before_load=True)).listen()
    assert (early.state.decision.phase, early.state.listening_since) == (Phase.PROCESS_START, 0.0)
    story = Story().launch().listen()
    story.t = 5.0
    assert story.listen().state.listening_since == 0.0, "it has been listening all along"
    assert story.listen(9).state.listening_since is None
    assert story.listen().state.listening_since == 5.0


def test_a_plan_that_knows_the_port_only_now_finds_that_it_listens() -> None:
    story = Story().launch(plan(endpoint=Endpoint())).listen()
    assert story.state.listening_since is None
    assert story.tell(Planned(plan=plan(), policy=Policy())).state.listening_since == 0.0


def test_ready_is_dated_once() -> None:
    story = Story().launch().seconds(3, work=100_000).listen().ready_line().ask().answer().ask().answer().seconds(5, work=100_000)
    assert (story.state.ready_at, story.state.decision.verdict) == (3.0, Verdict.READY)
    assert Story().launch().state.ready_at is None


def test_a_member_of_another_world_is_no_rank_of_this_one() -> None:
    story = Story().launch(plan(sizes=Sizes(tp=2, world=2, ranks_here=2)))
    story.tell(MemberSeen(member=Member(process=key(300), parent=1, title="w", tag=RankTag(name="w"))))
    assert killed(story, 300) == [None], "one of the engine's own, of which no rank is known"
