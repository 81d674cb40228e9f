"""The fields of the result document for each way a start can stand still, and what is null where nothing is known."""

import dataclasses

import pytest
from story import ROOT, Pose, Story, collective, key, lock_of, plan, polls, rank_pid, ranks, wait_for

from firsttoken.judge.outcome import claims_ready, result, url
from firsttoken.model.events import Emptied, Memory, Missed, WeightProgress
from firsttoken.model.plan import Endpoint, Timer
from firsttoken.model.result import RankGroup, Result
from firsttoken.model.stillness import WaitKind
from firsttoken.model.words import Edge, Phase, Verdict


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
