"""The fields of the result document for each way a start can stand still, and what is null where nothing is known."""

import dataclasses

import pytest
from story import ROOT, Pose, Story, collective, key, lock_of, plan, polls, rank_pid, ranks, wait_for

from firsttoken.judge.outcome import claims_ready, result, told_port, url
from firsttoken.model.checks import Check, Outcome, Part
from firsttoken.model.events import (
    Checked,
    Emptied,
    Gpus,
    HttpAnswer,
    Installed,
    Launched,
    LaunchFailed,
    MemberSeen,
    Memory,
    Missed,
    Planned,
    StopAsked,
    WeightProgress,
)
from firsttoken.model.gpu import GpuSample
from firsttoken.model.plan import Endpoint, Policy, Timer
from firsttoken.model.process import Member, ProcessKey, RankTag
from firsttoken.model.result import RankGroup, Result
from firsttoken.model.stillness import WaitKind
from firsttoken.model.words import Edge, Phase, ProbeKind, Verdict


def told(n: int, changed: dict[int, Pose], *, world: int | None = None, seconds: int = 40) -> Result:
    poses = {ROOT.pid: polls()} | {rank_pid(rank): changed.get(rank, collective()) for rank in range(n)}
    return result(Story().crew(n, world=world).watch(seconds, poses).state)


def test_a_skipped_collective_is_told_with_groups_waits_and_the_rank_behind() -> None:
    document = told(4, {3: Pose(doing="rendezvous", where="store wait", waits=(wait_for(WaitKind.SOCKET, "store", ROOT),))})
    assert document.verdict is Verdict.HUNG
    assert document.ranks.behind == (3,)
    assert document.ranks.groups == (RankGroup(ranks=(0, 1, 2), where="all_reduce"), RankGroup(ranks=(3,), where="store wait"))
    assert {"from": {"rank": 0}, "kind": "collective", "what": "all_reduce", "to": {"rank": 3}} in document.waits
    assert {"from": {"rank": 3}, "kind": "socket", "what": "store", "to": {"pid": ROOT.pid}} in document.waits
    assert document.root_blocker == {
        "process": {"node": "node", "pid": rank_pid(3), "start": rank_pid(3)},
        "title": "engine::rank3",
        "in_run": True,
    }
    assert document.cycle == ()
    assert document.still_s is None, "it will not change by itself"
    assert any("no strong signal" in fact for fact in document.proof)


def test_a_deadlock_is_told_as_a_cycle() -> None:
    document = told(2, {0: lock_of(key(rank_pid(1)), "/a"), 1: lock_of(key(rank_pid(0)), "/b")})
    assert (document.verdict, document.ranks.behind) == (Verdict.HUNG, (0, 1))
    assert sorted(map(str, document.cycle)) == sorted(
        map(
            str,
            (
                {"from": {"rank": 0}, "kind": "file_lock", "what": "/a", "to": {"rank": 1}},
                {"from": {"rank": 1}, "kind": "file_lock", "what": "/b", "to": {"rank": 0}},
            ),
        )
    )
    assert document.root_blocker is not None
    assert document.root_blocker["in_run"] is True


def test_a_bystanders_lock_is_told_with_its_holder_as_the_root_blocker() -> None:
    document = told(2, {1: lock_of(key(4242), "/cache/lock")})
    assert (document.verdict, document.ranks.behind) == (Verdict.WAITING, (1,))
    assert {"from": {"rank": 1}, "kind": "file_lock", "what": "/cache/lock", "to": {"pid": 4242, "title": "process 4242"}} in document.waits
    assert document.root_blocker == {"process": {"node": "node", "pid": 4242, "start": 4242}, "title": "process 4242", "in_run": False}
    assert document.still_s is not None
    assert document.still_s >= 30


def test_a_fifo_is_told_as_a_wait_for_nobody() -> None:
    document = told(2, {1: Pose(where="read", waits=(wait_for(WaitKind.FIFO, "/models/fifo", nobody=True),))})
    assert {"from": {"rank": 1}, "kind": "fifo", "what": "/models/fifo", "to": None} in document.waits


def test_an_address_is_told_as_a_wait_and_the_rank_as_the_blocker() -> None:
    document = told(2, {1: Pose(where="connect", waits=(wait_for(WaitKind.CONNECT, "10.0.0.9:1", observable=False),))})
    assert (document.verdict, document.ranks.behind) == (Verdict.WAITING, (1,))
    assert {"from": {"rank": 1}, "kind": "connect", "what": "10.0.0.9:1", "to": None} in document.waits


def test_a_missing_rank_has_no_process_to_be_the_root_blocker() -> None:
    document = told(2, {}, world=3)
    assert (document.verdict, document.ranks.behind, document.root_blocker) == (Verdict.WAITING, (2,), None)


def test_a_moving_start_has_no_waits_and_no_blocker() -> None:
    document = result(Story().crew(2).seconds(3, work=100_000).state)
    assert (document.waits, document.cycle, document.root_blocker, document.ranks.groups) == ((), (), None, ())
    assert document.still_s == 0


def test_nothing_is_known_of_nothing() -> None:
    document = result(Story().state)
    assert (document.run, document.started_at, document.world_size, document.eta_s, document.memory) == (None, None, None, None, None)
    assert document.verdict is Verdict.STARTING
    assert document.phase is Phase.PROCESS_START
    assert len(dataclasses.fields(document)) >= 34


def test_members_carry_their_ranks() -> None:
    rows = {row.process["pid"]: row.rank for row in result(Story().crew(2).state).members}
    assert rows == {ROOT.pid: None, rank_pid(0): 0, rank_pid(1): 1}


def weights(story: Story, done: int, *, shards: int = 4, total: int = 4_000_000_000) -> Story:
    return story.tell(WeightProgress(shards=shards, shards_done=done * shards // total, bytes=total, bytes_done=done))


def test_the_time_left_is_told_at_the_rate_of_the_last_half_minute() -> None:
    story = Story().launch().line(Phase.WEIGHTS)
    for step in range(11):
        weights(story, step * 100_000_000).seconds(1, work=100_000)
    document = result(story.state)
    assert document.weights.bytes_per_s == pytest.approx(1e8)
    assert document.eta_s == pytest.approx(30)
    assert (document.weights.bytes_done, document.weights.bytes, document.weights.shards) == (1_000_000_000, 4_000_000_000, 4)
    assert (document.weights.shards_done, document.weights.seconds) == (1, None)


def test_more_than_everything_read_leaves_no_negative_time() -> None:
    story = Story().launch().line(Phase.WEIGHTS)
    for step in range(3):
        weights(story, step * 3_000_000_000).seconds(1, work=100_000)
    assert result(story.state).eta_s == 0


def test_ended_weights_are_all_there_with_the_engines_own_seconds() -> None:
    story = weights(Story().launch().line(Phase.WEIGHTS), 10).line(Phase.WEIGHTS, shards=8, shards_done=3)
    story.t = 30
    document = result(story.line(Phase.WEIGHTS, Edge.END, seconds=20.0).state)
    assert (document.weights.shards_done, document.weights.shards, document.weights.seconds) == (8, 8, 20.0)
    assert document.weights.bytes_per_s == pytest.approx(2e8)
    assert document.eta_s is None


def test_a_timer_runs_from_the_first_of_its_phases() -> None:
    timers = (Timer(name="whole", seconds=100), Timer(name="load", seconds=60, phases=(Phase.WEIGHTS,)))
    story = Story().launch(plan(timers=timers)).seconds(10, work=100_000)
    assert [row.fires_in_s for row in result(story.state).timers] == [90, None]
    story.line(Phase.WEIGHTS).seconds(15, work=100_000)
    assert [row.fires_in_s for row in result(story.state).timers] == [75, 45]
    story.line(Phase.WEIGHTS, Edge.END).line(Phase.KV_CACHE).seconds(100, work=100_000)
    assert [row.fires_in_s for row in result(story.state).timers] == [0, None]
    story.exit(code=1)
    assert [row.fires_in_s for row in result(story.state).timers] == [None, None]


def test_elapsed_time_ends_with_the_server() -> None:
    story = Story().launch().seconds(5, work=100_000).exit(code=3).seconds(20).tell(Emptied())
    document = result(story.state)
    assert (document.elapsed_s, document.exit.code, document.exit.signal) == (5, 3, None)


@pytest.mark.parametrize(
    ("endpoint", "told"),
    [
        (Endpoint(), None),
        (Endpoint(port=8000), "http://127.0.0.1:8000"),
        (Endpoint(host="0.0.0.0", port=8000, root_path="/api/"), "http://127.0.0.1:8000/api"),
        (Endpoint(host="::", port=8000, tls=True), "https://[::1]:8000"),
        (Endpoint(host="fe80::1", port=1), "http://[fe80::1]:1"),
        (Endpoint(host="[::1]", port=1), "http://[::1]:1"),
        (Endpoint(host="10.0.0.1", port=1), "http://10.0.0.1:1"),
        (Endpoint(unix_socket="/run/s", port=1), "unix:/run/s"),
    ],
)
def test_the_address_is_one_that_a_client_here_can_use(endpoint: Endpoint, told: str | None) -> None:
    assert url(endpoint) == told


def test_a_claim_is_a_ready_line_an_open_port_or_a_health_page() -> None:
    assert not claims_ready(Story().launch().state)
    assert claims_ready(Story().launch().listen().state)
    assert claims_ready(Story().launch().ready_line().state)
    early = plan(listens_before_load=True)
    assert not claims_ready(Story().launch(early).listen().state), "that it listens says nothing there"
    assert not claims_ready(Story().launch().ready_line().exit(code=1).tell(Emptied()).state)
    assert claims_ready(Story().launch().ready_line().exit(code=0).state), "a launcher may leave its server behind"


def test_requests_are_told_as_they_came_back() -> None:
    (row,) = result(Story().launch().listen().ready_line().ask().answer().state).requests
    assert (row.kind, row.status, row.first_token_s, row.text, row.sane) == ("completion", 200, 0.5, " the", True)


def test_what_could_not_be_had_is_told_once() -> None:
    missed = Missed(request="stacks", reason="ptrace is not permitted")
    document = result(Story().launch(plan(not_read=("config.yaml: gone",))).tell(missed, missed).state)
    assert document.not_checked == ("config.yaml: gone", "stacks: ptrace is not permitted")


def test_memory_is_told_as_unique_and_shared() -> None:
    document = result(Story().launch().tell(Memory(unique=5, shared=7)).state)
    assert document.memory == {"unique": 5, "shared": 7, "page_cache": None, "limit": None}


def test_phases_are_told_with_the_ranks_that_are_done() -> None:
    story = Story().launch(ranks(2)).line(Phase.WEIGHTS, rank=0).line(Phase.WEIGHTS, rank=1)
    story.t = 9
    story.line(Phase.WEIGHTS, Edge.END, rank=0)
    row = next(row for row in result(story.state).phases if row.name is Phase.WEIGHTS)
    assert (row.began_s, row.seconds, row.ranks_done) == (0, None, 1)


@pytest.mark.parametrize("wall", [1e18, -1e18, float("nan"), float("inf")])
def test_a_clock_beyond_every_calendar_tells_no_date(wall: float) -> None:
    story = Story().launch()
    story.state = dataclasses.replace(story.state, launched_wall=wall)
    assert result(story.state).started_at is None


def test_the_next_step_fits_the_verdict() -> None:
    assert result(Story().crew(2).state).next[0].startswith("firsttoken wait")
    assert "firsttoken stop RUN" in told(2, {1: Pose(where="x", waits=(wait_for(WaitKind.FIFO, "/f", nobody=True),))}).next
    assert result(Story().launch().exit(code=1).state).next == ("firsttoken logs RUN --tail 200",)


# what leads on, and what is left out


def adopted() -> Story:
    return Story().tell(Planned(plan=plan(), policy=Policy()), Launched(process=ROOT, argv=("serve",), adopted=True, run="r1"))


def ready(story: Story) -> Story:
    return story.listen().ready_line().ask().answer().ask().answer()


def test_a_server_that_somebody_else_started_is_not_ours_to_stop_and_an_ended_one_needs_no_stop() -> None:
    assert result(ready(Story().launch()).state).next == ("firsttoken stop RUN",)
    assert result(ready(adopted()).state).next == ()
    stalled = result(adopted().seconds(20).state)
    assert (stalled.verdict, stalled.next) == (Verdict.STALLED, ("firsttoken stacks r1", "firsttoken logs r1 --tail 50"))
    assert result(Story().launch().seconds(20).state).next[-1] == "firsttoken stop RUN"
    assert result(Story().launch().seconds(3, work=100_000).tell(Emptied()).state).next == (
        "firsttoken logs RUN --tail 50",
        "firsttoken doctor",
    )
    assert result(ready(Story().launch()).exit(code=0).tell(Emptied()).state).next == ()
    assert result(Story().tell(LaunchFailed(error="not found")).state).next == ("firsttoken logs RUN --tail 200",)
    starting = result(Story().launch().seconds(3, work=100_000).state, folder="/runs/abc/")
    assert starting.next == ("firsttoken wait abc --max-wait 50", "firsttoken logs abc --tail 50")


def test_a_hang_that_was_ended_leaves_nothing_to_stop_and_nothing_to_look_at() -> None:
    fifo = Pose(where="x", waits=(wait_for(WaitKind.FIFO, "/f", nobody=True),))
    story = Story().crew(2).watch(8, {ROOT.pid: polls(), rank_pid(0): collective(), rank_pid(1): fifo})
    story.tell(StopAsked(by="stop")).exit(signal=15)
    assert (result(story.state).verdict, len(result(story.state).next)) == (Verdict.HUNG, 3)
    assert result(story.tell(Emptied()).state).next == ("firsttoken logs RUN --tail 50",)


def test_what_could_not_be_looked_at_is_told_for_the_engines_own_processes_once_a_reason() -> None:
    blind = Pose(blind=True)
    story = Story().crew(2).member(300, "helper").seconds(2)
    document = result(story.look({ROOT.pid: blind, rank_pid(0): Pose(stacks=False), rank_pid(1): Pose(), 300: blind}).state)
    assert document.not_checked == (
        f"stacks of pid {ROOT.pid}, {rank_pid(0)}: not permitted",
        f"places of pid {ROOT.pid}: not permitted",
    )
    assert result(story.look({pid: Pose() for pid in (ROOT.pid, rank_pid(0), rank_pid(1), 300)}).state).not_checked == (), (
        "the last look counts"
    )


def test_a_long_list_of_what_was_not_read_is_cut() -> None:
    story = Story().crew(8).seconds(2)
    for number in range(8):
        pose = Pose()
        process = story.process(rank_pid(number))
        story.tell(pose.places(process, 1), dataclasses.replace(pose.stack(process, 1), error=f"reason {number}"))
    assert len(result(story.state).not_checked) == 6


def test_a_clock_that_is_known_tells_a_date_and_a_server_of_which_no_process_is_seen_has_none() -> None:
    assert result(Story().launch().state).started_at == "2001-09-09T01:46:40Z"
    unseen = Story().tell(Planned(plan=plan(), policy=Policy()), Launched(process=ProcessKey("node", 0, 0), argv=(), adopted=True))
    assert result(unseen.state).started_at is None


def test_a_timer_that_should_have_fired_fires_now() -> None:
    timers = (Timer(name="load", seconds=5, phases=(Phase.WEIGHTS, Phase.KV_CACHE)), Timer(name="whole", seconds=5))
    story = Story().launch(plan(timers=timers)).line(Phase.WEIGHTS).seconds(5, work=100_000)
    assert [row.fires_in_s for row in result(story.state).timers] == [0, 0]
    assert [row.fires_in_s for row in result(story.seconds(9, work=100_000).state).timers] == [0, 0]
    going = Story().launch(plan(timers=timers)).seconds(2, work=100_000).line(Phase.WEIGHTS).seconds(1, work=100_000)
    going.line(Phase.WEIGHTS, Edge.END).line(Phase.KV_CACHE).seconds(1, work=100_000)
    assert [row.fires_in_s for row in result(going.state).timers] == [3, 1], "from the first of its phases on"


def test_the_time_left_is_told_of_weights_that_are_being_read_and_of_nothing_else() -> None:
    story = Story().launch().line(Phase.WEIGHTS)
    assert result(weights(story, 1_000_000_000).state).eta_s is None, "no rate is known"
    story.t = 10.0
    assert result(weights(story, 2_000_000_000).state).eta_s == pytest.approx(20.0)
    assert result(story.exit(code=1).state).eta_s is None
    moved_on = weights(Story().launch().line(Phase.WEIGHTS).line(Phase.WEIGHTS, Edge.END).line(Phase.KV_CACHE), 1)
    moved_on.t = 10.0
    assert result(weights(moved_on, 2_000).state).eta_s is None


def test_versions_are_the_logs_own_before_the_installed_ones() -> None:
    story = Story().launch(plan(engine="vllm", engine_version="1.0")).tell(Installed(versions={"vllm": "0.9", "torch": "2.1"}))
    assert (result(story.state).engine.version, result(story.state).versions["torch"]) == ("1.0", "2.1")
    story.line(Phase.CONFIG, version="1.1", torch_version="2.2", other_version="7")
    assert (result(story.state).engine.version, result(story.state).versions["torch"]) == ("1.1", "2.2")
    assert "other" not in result(story.state).versions
    installed = Story().launch(plan(engine="vllm")).tell(Installed(versions={"vllm": "0.9"}))
    assert result(installed.state).engine.version == "0.9"
    assert result(Story().launch(plan(engine=None)).state).world_size is None
    assert result(Story().launch().state).world_size == 1


@pytest.mark.parametrize(("values", "port"), [
    ({"port": 9000.0}, 9000), ({"url": "http://0.0.0.0:9001"}, 9001), ({"port": 1.0, "url": "http://x:2"}, 1), ({"url": "http://x"}, None),
    ({"url": "http://x:port"}, None), ({}, None), ({"port": "8000"}, None),
])  # fmt: skip
def test_a_port_that_the_log_tells_is_read_from_a_number_or_an_address(values: dict[str, str | float], port: int | None) -> None:
    assert told_port(Story().launch().line(Phase.LISTENING, **values).state) == port  # type: ignore[arg-type]  # by name


def test_the_model_is_that_which_answered_else_the_served_name_else_the_commands() -> None:
    known = plan(model="m", endpoint=Endpoint(port=8000, served_model="s"))
    assert result(Story().launch(plan(model="m")).state).endpoint.model == "m"
    story = Story().launch(known)
    assert result(story.state).endpoint.model == "s"
    answers = [HttpAnswer(probe=ProbeKind.COMPLETION, url="http://x", status=200, model=model) for model in (None, "a", "b")]
    assert result(story.tell(*answers).state).endpoint.model == "a"


def test_hardware_notes_stand_beside_any_verdict_but_a_good_one() -> None:
    lost = Gpus(interval=2.0, samples=(GpuSample(index=0, lost=True),))
    told = "GPU 0 does not answer its driver any more"
    assert told not in result(Story().launch().tell(lost).seconds(3, work=100_000).state).proof
    assert told in result(Story().launch().tell(lost).seconds(20).state).proof
    assert told not in result(ready(Story().launch().tell(lost)).state).proof


def test_only_checks_that_found_something_are_told() -> None:
    checks = tuple(Check(id=str(outcome), part=Part.MACHINE, result=outcome, fact="f") for outcome in Outcome)
    told = {row["id"] for row in result(Story().launch().tell(Checked(checks=checks)).state).checks}
    assert told == {str(Outcome.FAIL), str(Outcome.WARN)}


def test_a_rank_that_only_the_log_named_is_told_with_it_and_the_parts_of_a_title_too() -> None:
    story = Story().launch(ranks(2)).member(300, "worker").line(Phase.DISTRIBUTED_INIT, rank=1, pid=300)
    (row,) = [row for row in result(story.state).members if row.process["pid"] == 300]
    assert (row.rank, row.tp) == (1, None)
    story.tell(MemberSeen(member=Member(process=key(301), parent=1, title="w", tag=RankTag(tp=0, pp=0))))
    (row,) = [row for row in result(story.state).members if row.process["pid"] == 301]
    assert (row.rank, row.tp, row.pp, row.dp) == (0, 0, 0, None)


def test_weights_that_only_the_bar_tells_and_weights_that_were_only_seen_are_both_told() -> None:
    bar = result(Story().launch().line(Phase.WEIGHTS, shards=8, shards_done=3).state).weights
    assert (bar.shards, bar.shards_done, bar.bytes, bar.bytes_done, bar.seconds, bar.bytes_per_s, bar.says) == (
        8,
        3,
        None,
        None,
        None,
        None,
        (),
    )
    odd = result(Story().launch().line(Phase.WEIGHTS, shards=float("nan"), shards_done="x").state).weights
    assert (odd.shards, odd.shards_done) == (None, None)
    empty = Story().launch().line(Phase.WEIGHTS).tell(WeightProgress(shards=0, shards_done=0, bytes=0, bytes_done=0))
    assert result(empty.state).weights.bytes is None


def test_a_server_whose_health_page_answers_claims_to_be_ready_until_nothing_of_it_is_left() -> None:
    healthy = Story().launch(plan(listens_before_load=True)).tell(HttpAnswer(probe=ProbeKind.HEALTH, url="http://x", status=200))
    assert claims_ready(healthy.state)
    assert claims_ready(Story().launch().ready_line().tell(Emptied()).state), "how it ended was not seen"
