"""Each verdict that rests on close looks, by the story that leads to it: what is proven, by when, and what never is."""

from dataclasses import replace

import pytest
from story import ROOT, Pose, Story, collective, key, lock_of, plan, polls, rank_pid, sleeps, thread, wait_for

from firsttoken.judge.hang import Proof
from firsttoken.model.events import MemberSeen, Planned
from firsttoken.model.plan import Budget, Sizes
from firsttoken.model.process import Member, ProcessKey, RankTag
from firsttoken.model.stillness import Wait, WaitKind
from firsttoken.model.words import Phase, Verdict

BYSTANDER = key(4242)


def verdict(story: Story) -> Verdict:
    return story.state.decision.verdict


def behind(story: Story) -> tuple[int, ...]:
    return story.state.decision.behind


def hang(story: Story) -> Proof:
    proof = story.state.decision.hang
    assert proof is not None, story.state.decision.reason
    return proof


def poses(n: int, changed: dict[int, Pose], others: Pose | None = None) -> dict[int, Pose]:
    """Main process and `n` ranks: all in one collective but those that are `changed`."""
    return {ROOT.pid: polls()} | {rank_pid(rank): changed.get(rank, others or collective()) for rank in range(n)}


def first_at(story: Story, wanted: Verdict, told: dict[int, Pose], within: int = 60) -> float:
    """Sampled seconds without a strong signal at which the verdict is told for the first time."""
    for _ in range(within):
        story.watch(1, told)
        if verdict(story) is wanted:
            return story.state.motion.still
    raise AssertionError(f"still {verdict(story)} after {within} s: {story.state.decision.reason}")


STORE = Pose(doing="rendezvous", where="store wait", waits=(wait_for(WaitKind.SOCKET, "127.0.0.1:29500", ROOT),))
STOPPED = Pose(state="T", where="native call", wchan="do_signal_stop", waits=(wait_for(WaitKind.STOPPED, "SIGCONT"),))


@pytest.mark.parametrize("skipped", [0, 2, 3])
def test_a_rank_that_left_out_a_collective_hangs_the_others_and_is_named(skipped: int) -> None:
    story = Story().crew(4)
    assert first_at(story, Verdict.HUNG, poses(4, {skipped: STORE})) <= 15
    assert behind(story) == (skipped,)
    assert f"wait for rank {skipped} in all_reduce" in story.state.decision.reason


def test_two_ranks_that_each_hold_the_lock_the_other_wants_are_a_deadlock() -> None:
    told = poses(4, {2: lock_of(key(rank_pid(3)), "/cache/a"), 3: lock_of(key(rank_pid(2)), "/cache/b")})
    story = Story().crew(4)
    assert first_at(story, Verdict.HUNG, told) <= 8
    assert behind(story) == (2, 3)
    assert {edge.what for edge in hang(story).cycle} == {"/cache/a", "/cache/b"}
    assert "deadlock" in story.state.decision.reason


def test_a_fifo_without_a_writer_is_hung_and_the_file_named() -> None:
    fifo = Pose(doing="file_read", where="read shard", waits=(wait_for(WaitKind.FIFO, "/models/x/shard-3", nobody=True),))
    story = Story().crew(2).watch(12, poses(2, {1: fifo}))
    assert (verdict(story), behind(story)) == (Verdict.HUNG, (1,))
    assert "/models/x/shard-3, and nobody has its other end" in story.state.decision.reason


def test_ranks_that_wait_for_the_same_file_are_all_told() -> None:
    fifo = Pose(doing="file_read", where="read shard", waits=(wait_for(WaitKind.FIFO, "/models/x/shard-3", nobody=True),))
    story = Story().crew(3).watch(6, poses(3, {0: fifo, 1: fifo, 2: fifo}))
    assert verdict(story) is Verdict.HUNG
    assert story.state.decision.reason.endswith("(in read shard); so do ranks 1, 2")


def test_a_lock_file_that_was_left_behind_is_hung_and_the_file_named() -> None:
    left = Pose(
        doing="lock", where="build lock", wchan="hrtimer_nanosleep", waits=(wait_for(WaitKind.FILE_LOCK, "/cache/lock", nobody=True),)
    )
    story = Story().crew(2)
    assert first_at(story, Verdict.HUNG, poses(2, {1: left})) <= 5
    assert behind(story) == (1,)
    assert "waits for the file lock /cache/lock, which nobody holds any more: it was left behind" in story.state.decision.reason


def test_a_child_that_does_nothing_is_named() -> None:
    story = Story().crew(2).member(250, "sleep infinity").seconds(1)
    waits = Pose(doing="child", where="wait for a child", waits=(wait_for(WaitKind.CHILD, "pid 250", key(250)),))
    told = poses(2, {1: waits}) | {250: Pose(where="pause", wchan="sigsuspend", waits=(wait_for(WaitKind.SIGNAL, "a signal"),))}
    story.watch(20, told)
    assert (verdict(story), behind(story)) == (Verdict.HUNG, (1,))
    assert "sleep (pid 250)" in story.state.decision.reason
    root = hang(story).root
    assert root is not None
    assert root.process == key(250)


def test_a_child_at_work_without_a_trace_is_not_hung() -> None:
    story = Story().crew(2).member(250, "compiler").seconds(1)
    waits = Pose(doing="child", where="wait for a child", waits=(wait_for(WaitKind.CHILD, "pid 250", key(250)),))
    story.watch(60, poses(2, {1: waits}) | {250: Pose(state="R", where="optimise")})
    assert verdict(story) is Verdict.STALLED
    assert behind(story) == (1,)


def test_a_stopped_process_is_hung_after_six_seconds_and_not_before() -> None:
    story = Story().crew(2)
    story.others[rank_pid(1)] = story.others[rank_pid(1)]._replace(state="T")
    story.watch(6, poses(2, {1: STOPPED}))
    assert verdict(story) is not Verdict.HUNG
    story.watch(2, poses(2, {1: STOPPED}))
    assert (verdict(story), behind(story)) == (Verdict.HUNG, (1,))
    assert f"kill -CONT {rank_pid(1)}" in story.state.decision.reason


def test_a_short_stop_is_never_hung() -> None:
    story = Story().crew(2)
    seen = set()
    for _ in range(5):
        story.others[rank_pid(1)] = story.others[rank_pid(1)]._replace(state="T")
        for _ in range(5):
            story.watch(1, poses(2, {1: STOPPED}))
            seen.add(verdict(story))
        story.others[rank_pid(1)] = story.others[rank_pid(1)]._replace(state="S")
        story.seconds(3, work=100_000)
        seen.add(verdict(story))
    assert Verdict.HUNG not in seen


def test_a_lock_that_a_bystander_holds_is_waited_for_and_its_holder_named() -> None:
    story = Story().crew(4).watch(60, poses(4, {3: lock_of(BYSTANDER)}))
    assert (verdict(story), behind(story)) == (Verdict.WAITING, (3,))
    assert hang(story).root_outside == {
        "process": {"node": "node", "pid": 4242, "start": 4242},
        "title": "process 4242",
        "in_run": False,
    }
    assert "held by pid 4242" in story.state.decision.reason


def test_a_lock_of_another_machine_is_waited_for() -> None:
    far = Pose(doing="lock", where="flock", waits=(wait_for(WaitKind.FILE_LOCK, "/nfs/lock", observable=False),))
    assert verdict(Story().crew(2).watch(60, poses(2, {1: far}))) is Verdict.WAITING


def test_an_address_that_does_not_answer_is_waited_for() -> None:
    connect = Pose(doing="sleep_retry", where="connect", waits=(wait_for(WaitKind.CONNECT, "10.0.0.9:29500", observable=False),))
    story = Story().crew(2).watch(60, poses(2, {1: connect}))
    assert (verdict(story), behind(story)) == (Verdict.WAITING, (1,))
    assert "10.0.0.9:29500" in story.state.decision.reason


@pytest.mark.parametrize("doing", ["sleep_retry", "network"])
def test_a_loop_that_tries_again_and_again_is_waited_for(doing: str) -> None:
    told = poses(2, {1: replace(sleeps(), doing=doing, where="download")})
    story = Story().crew(2).watch(60, told)
    assert (verdict(story), behind(story)) == (Verdict.WAITING, (1,))
    assert "tries again and again in download" in story.state.decision.reason


def test_between_two_tries_the_address_that_was_tried_is_still_named() -> None:
    tries = Pose(doing="network", where="connect", waits=(wait_for(WaitKind.CONNECT, "127.0.0.1:80", key(4242), in_run=False),))
    naps = replace(sleeps(), doing="network", where="connect")
    story = Story().crew(2).watch(3, poses(2, {1: tries})).watch(2, poses(2, {1: naps}))
    assert (verdict(story), behind(story)) == (Verdict.WAITING, (1,))
    assert "tries to connect to 127.0.0.1:80" in story.state.decision.reason
    assert hang(story).root_outside is not None


def test_a_rank_that_never_came_is_waited_for_by_name() -> None:
    story = Story().crew(3, world=4)
    assert first_at(story, Verdict.WAITING, poses(3, {}, collective("process group init", doing="rendezvous"))) <= 8
    assert behind(story) == (3,)
    assert "3 of 4 ranks wait in process group init for rank 3, which has not joined" in story.state.decision.reason


def test_ranks_of_another_node_are_waited_for_never_hung() -> None:
    story = Story()
    story.launch(plan(sizes=Sizes(tp=8, world=8, nodes=2, node_rank=1, ranks_here=4))).member(ROOT.pid, "engine serve")
    for rank in (4, 5, 6, 7):
        story.member(rank_pid(rank), rank=rank)
    story.seconds(3, work=100_000).watch(120, {ROOT.pid: polls()} | {rank_pid(rank): collective() for rank in (4, 5, 6, 7)})
    assert (verdict(story), behind(story)) == (Verdict.WAITING, (0, 1, 2, 3))


def test_chatter_does_not_hide_a_hang() -> None:
    blocked = Pose(doing="queue", where="message block", waits=(wait_for(WaitKind.FUTEX, "a lock in shared memory"),))
    story, told = Story().crew(2), poses(2, {1: blocked})
    for _ in range(4):
        story.watch(5, told)
        story.sample = story.sample._replace(rw_bytes=story.sample.rw_bytes + 269)
    assert (verdict(story), behind(story)) == (Verdict.HUNG, (1,))


@pytest.mark.parametrize("doing", ["cuda_sync", "spin"])
def test_a_known_spin_that_others_wait_for_is_hung_only_after_long(doing: str) -> None:
    spin = Pose(state="R", doing=doing, where="device synchronise")
    story = Story().crew(4)
    assert 25 <= first_at(story, Verdict.HUNG, poses(4, {1: spin})) <= 30
    assert behind(story) == (1,)
    assert "spins in device synchronise" in story.state.decision.reason


def test_a_known_spin_needs_six_looks() -> None:
    spin = Pose(state="R", doing="cuda_sync", where="device synchronise")
    story = Story().crew(2).seconds(30)
    for _ in range(5):
        story.seconds(2).look(poses(2, {1: spin}))
    assert verdict(story) is Verdict.STALLED
    assert verdict(story.seconds(2).look(poses(2, {1: spin}))) is Verdict.HUNG


def test_a_known_spin_for_which_nobody_waits_is_stalled() -> None:
    spin = Pose(state="R", doing="cuda_sync", where="device synchronise")
    assert verdict(Story().crew(1).watch(100, {ROOT.pid: polls(), rank_pid(0): spin})) is Verdict.STALLED


@pytest.mark.parametrize("doing", [None, "compile", "compute"])
def test_a_busy_rank_in_code_that_is_not_known_to_spin_is_stalled_never_hung(doing: str | None) -> None:
    story, seen = Story().crew(4), set()
    for _ in range(100):
        story.watch(1, poses(4, {2: Pose(state="R", doing=doing, where="native call")}))
        seen.add(verdict(story))
    assert Verdict.HUNG not in seen
    assert (verdict(story), behind(story)) == (Verdict.STALLED, (2,))
    assert "busy in native call, no visible progress" in story.state.decision.reason


def test_a_single_busy_rank_is_stalled() -> None:
    story = Story().crew(1).watch(60, {ROOT.pid: polls(), rank_pid(0): Pose(state="R", where="eigvals")})
    assert verdict(story) is Verdict.STALLED
    assert "busy" in story.state.decision.reason


def test_a_busy_rank_is_not_stalled_before_its_time() -> None:
    story = Story().crew(1).watch(10, {ROOT.pid: polls(), rank_pid(0): Pose(state="R", where="eigvals")})
    assert verdict(story) is Verdict.STARTING


def test_a_rank_that_sleeps_needs_longer_than_one_that_is_blocked() -> None:
    blocked = Pose(where="get", waits=(wait_for(WaitKind.PIPE, "pipe:[1]", nobody=True),))
    asleep_at = first_at(Story().crew(2), Verdict.HUNG, poses(2, {1: sleeps()}))
    blocked_at = first_at(Story().crew(2), Verdict.HUNG, poses(2, {1: blocked}))
    assert blocked_at < asleep_at
    assert asleep_at >= 12


def test_one_look_alone_proves_nothing() -> None:
    told = poses(4, {2: lock_of(key(rank_pid(3))), 3: lock_of(key(rank_pid(2)))})
    assert Story().crew(4).seconds(10).look(told).state.decision.hang is None
    assert Story().crew(4).seconds(10).look(poses(4, {3: lock_of(BYSTANDER)})).state.decision.hang is None
    assert Story().crew(3, world=4).seconds(10).look(poses(3, {})).state.decision.hang is None


def test_looks_within_the_first_seconds_of_stillness_prove_nothing() -> None:
    story = Story().crew(4).seconds(3)
    for _ in range(5):
        story.look(poses(4, {2: lock_of(key(rank_pid(3))), 3: lock_of(key(rank_pid(2)))}))
    assert story.state.decision.hang is None


@pytest.mark.parametrize("signal", ["counters", "log", "born"])
def test_what_moves_in_between_resets_the_proof(signal: str) -> None:
    story, told = Story().crew(4), poses(4, {3: STORE})
    story.watch(8, told)
    match signal:
        case "counters":
            story.seconds(1, work=100_000)
        case "log":
            story.seconds(1, log=1)
        case _:
            story.tell(MemberSeen(member=Member(process=key(900), parent=ROOT.pid, title="cc1plus"))).seconds(1)
    assert story.state.closeup.looks == {}
    assert verdict(story) is Verdict.STARTING
    story.seconds(4).look(told)
    assert verdict(story) is not Verdict.HUNG
    assert verdict(story.watch(20, told)) is Verdict.HUNG


def test_a_rank_whose_posture_changes_is_not_hung() -> None:
    story, seen = Story().crew(4), set()
    for second in range(40):
        story.watch(1, poses(4, {3: replace(sleeps(), line=second)}))
        seen.add(verdict(story))
    assert Verdict.HUNG not in seen


def test_the_innermost_line_may_jitter() -> None:
    """A poll loop stands now on one of its lines, now on another; the story's looks differ in just that."""
    assert verdict(Story().crew(2).watch(20, poses(2, {1: STORE}))) is Verdict.HUNG


def test_a_process_that_got_the_pid_of_a_dead_one_is_not_taken_for_it() -> None:
    story = Story().crew(2).watch(20, poses(2, {1: STORE}))
    assert verdict(story) is Verdict.HUNG
    story.tell(MemberSeen(member=Member(process=key(rank_pid(1))._replace(start=99), parent=100, title="x", tag=RankTag(rank=1))))
    assert story.state.decision.hang is None or behind(story) != (1,) or verdict(story) is not Verdict.HUNG


def test_ranks_whose_titles_do_not_tell_are_known_by_what_the_log_told() -> None:
    story = Story().launch(plan(sizes=Sizes(tp=2, world=2, ranks_here=2))).member(ROOT.pid)
    for rank in (0, 1):
        story.member(rank_pid(rank), "python")
    story.seconds(3, work=100_000)
    story.state = replace(story.state, told_ranks={rank_pid(0): 0, rank_pid(1): 1})
    story.watch(20, poses(2, {1: STORE}))
    assert (verdict(story), behind(story)) == (Verdict.HUNG, (1,))


def test_while_our_request_is_under_way_the_hang_is_told_as_unserving() -> None:
    story = Story().crew(2).listen().ready_line().ask().watch(4, poses(2, {1: STORE}))
    assert verdict(story) is Verdict.STARTING
    story.watch(4, poses(2, {1: STORE}))
    assert (verdict(story), behind(story)) == (Verdict.UNSERVING, (1,))
    assert "rank 1" in story.state.decision.reason


def test_ranks_that_wait_for_requests_are_not_hung_though_the_log_lags_behind() -> None:
    up = Pose(doing="idle", where="request queue", waits=(wait_for(WaitKind.FUTEX, "a lock in its own memory"),))
    told = poses(2, {0: up}, Pose(doing="queue", where="command queue", waits=(wait_for(WaitKind.SOCKET, "a peer", key(rank_pid(0))),)))
    story, seen = Story().crew(2), set()
    for _ in range(40):
        story.watch(1, told)
        seen.add(verdict(story))
    assert Verdict.HUNG not in seen
    assert "waits for requests, as an idle server does" in story.state.decision.reason
    assert first_at(Story().crew(2), Verdict.HUNG, {**told, rank_pid(1): collective()}) <= 6, "one is up, and another is in a collective"


def test_a_server_that_is_up_and_at_rest_before_it_was_asked_is_not_hung() -> None:
    idle = Pose(doing="queue", where="command queue", wchan="ep_poll", waits=(wait_for(WaitKind.SOCKET, "a peer", ROOT),))
    story, seen = Story().crew(2).listen().ready_line(), set()
    for _ in range(40):
        story.watch(1, poses(2, {}, idle))
        seen.add(verdict(story))
    assert Verdict.HUNG not in seen
    assert first_at(Story().crew(2), Verdict.HUNG, poses(2, {}, idle)) < 40, "before it is up nobody will ask it"


def test_a_server_that_lets_a_request_lie_is_told_sooner_where_all_of_it_was_seen_at_rest() -> None:
    told = poses(2, {}, Pose(doing="queue", where="command queue", wchan="ep_poll", waits=(wait_for(WaitKind.POLL, "events"),)))
    assert first_at(Story().crew(2).listen().ready_line().ask(), Verdict.UNSERVING, told) <= 8
    at_work = told | {rank_pid(1): replace(told[rank_pid(1)], doing="compile")}
    assert first_at(Story().crew(2).listen().ready_line().ask(), Verdict.UNSERVING, at_work) >= 12
    one_unseen = told | {rank_pid(1): Pose(blind=True)}
    assert first_at(Story().crew(2).listen().ready_line().ask(), Verdict.UNSERVING, one_unseen) >= 12


def test_quiet_that_healthy_starts_are_known_for_counts_against_a_hang_but_not_against_a_circle_of_locks() -> None:
    def known(story: Story) -> Story:
        budget = Budget(phase=Phase.DISTRIBUTED_INIT, seconds=60, source="history", quiet_s=15.0)
        return story.tell(Planned(plan=replace(story.state.plan, budgets=(budget,)), policy=story.state.policy))

    assert first_at(Story().crew(4), Verdict.HUNG, poses(4, {3: STORE})) <= 6
    assert 30 <= first_at(known(Story().crew(4)), Verdict.HUNG, poses(4, {3: STORE})) <= 32
    circle = poses(4, {2: lock_of(key(rank_pid(3)), "/cache/a"), 3: lock_of(key(rank_pid(2)), "/cache/b")})
    assert first_at(known(Story().crew(4)), Verdict.HUNG, circle) <= 5


def test_a_start_tells_how_quiet_its_phases_were_while_nothing_ran() -> None:
    story = Story().crew(2).line(Phase.WEIGHTS).seconds(4).seconds(1, work=100_000).seconds(9, ticks=100)
    (quiet,) = story.state.quiet.values()
    assert quiet == 3.0, "a core that was busy is no quiet"


# what cannot be seen, or may be at work, is never hung


def test_what_cannot_be_seen_proves_nothing() -> None:
    story = Story().crew(2).watch(100, {pid: Pose(blind=True) for pid in (ROOT.pid, rank_pid(0), rank_pid(1))})
    assert verdict(story) is Verdict.STALLED


def test_a_thread_state_without_its_place_and_stack_proves_nothing() -> None:
    """As in a container that may neither trace nor read wchan."""
    told = {pid: Pose(wchan=None, stacks=False) for pid in (ROOT.pid, rank_pid(0), rank_pid(1))}
    assert verdict(Story().crew(2).watch(100, told)) is Verdict.STALLED


def test_a_main_thread_that_waits_for_a_thread_at_work_is_not_hung() -> None:
    busy = thread(901, state="R", doing="compile", where="llvm")
    waits = Pose(doing="compile", where="compile", waits=(wait_for(WaitKind.FUTEX, "a lock in its own memory"),), threads=(busy,))
    assert verdict(Story().crew(4).watch(100, poses(4, {2: waits}))) is Verdict.STALLED
    assert verdict(Story().crew(1).watch(100, {ROOT.pid: polls(), rank_pid(0): waits})) is Verdict.STALLED


def test_a_rank_that_waits_for_its_own_download_is_not_hung_though_the_others_wait_for_it() -> None:
    inward = Pose(where="result", waits=(wait_for(WaitKind.FUTEX, "a lock in its own memory"),))
    far = wait_for(WaitKind.SOCKET, "10.0.0.9:443", observable=False, tid=901)
    fetches = replace(inward, waits=(*inward.waits, far), threads=(thread(901, doing="network", where="read"),))
    story = Story().crew(4).watch(60, poses(4, {3: fetches}))
    assert (verdict(story), behind(story)) == (Verdict.WAITING, (3,))
    assert "waits for a thread of its own, which waits for 10.0.0.9:443" in story.state.decision.reason
    reads = replace(inward, threads=(thread(901, doing="file_read", where="read"),))
    assert verdict(Story().crew(4).watch(60, poses(4, {3: reads}))) is Verdict.STALLED


def test_a_rank_that_waits_for_a_thread_that_tries_again_and_again_needs_longer() -> None:
    inward = Pose(where="result", waits=(wait_for(WaitKind.FUTEX, "a lock in its own memory"),))
    tries = replace(inward, threads=(thread(901, doing="sleep_retry", where="backoff"),))
    assert first_at(Story().crew(4), Verdict.HUNG, poses(4, {3: inward})) <= 6
    assert first_at(Story().crew(4), Verdict.HUNG, poses(4, {3: tries})) >= 12


def test_a_main_process_that_polls_while_an_untitled_child_computes_is_not_hung() -> None:
    story, seen = Story().crew(0), set()
    story.member(300, "worker")
    for second in range(60):
        story.watch(1, {ROOT.pid: polls(), 300: Pose(state="R", where="compute", line=second // 3)})
        seen.add(verdict(story))
    assert Verdict.HUNG not in seen


def test_a_main_process_that_polls_while_an_untitled_child_grinds_is_not_hung() -> None:
    story = Story().crew(0).member(300, "worker")
    assert verdict(story.watch(100, {ROOT.pid: polls(), 300: Pose(state="R", where="eigvals")})) is Verdict.STALLED


def test_the_others_must_stand_still_too() -> None:
    story, seen = Story().crew(4), set()
    for second in range(40):
        moving = collective(line=second)
        story.watch(1, poses(4, {3: lock_of(key(260))} | dict.fromkeys(range(3), moving)))
        seen.add(verdict(story))
    assert Verdict.HUNG not in seen


def test_a_lock_of_a_member_that_was_not_looked_at_is_no_proof() -> None:
    story = Story().crew(2).member(260, "helper").seconds(1)
    assert verdict(story.watch(60, poses(2, {1: lock_of(key(260))}))) is not Verdict.HUNG


def test_a_peer_on_another_node_is_not_taken_for_the_local_process_with_its_pid() -> None:
    far = replace(STORE, waits=(wait_for(WaitKind.SOCKET, "10.0.0.2:29500", key(rank_pid(0), "other"), in_run=True, observable=False),))
    story = Story().crew(2).watch(60, poses(2, {1: far}))
    assert (verdict(story), behind(story)) == (Verdict.WAITING, (1,))


def test_a_traced_process_waits_for_its_tracer() -> None:
    story = Story().crew(2)
    story.others[rank_pid(1)] = story.others[rank_pid(1)]._replace(state="t")
    traced = Pose(state="t", wchan="ptrace_stop", waits=(wait_for(WaitKind.TRACED, "its tracer, pid 4242", BYSTANDER),))
    story.watch(60, poses(2, {1: traced}))
    assert (verdict(story), behind(story)) == (Verdict.WAITING, (1,))
    assert "kill -CONT" not in story.state.decision.reason


@pytest.mark.parametrize("kind", [WaitKind.DISK, WaitKind.OTHER])
def test_a_process_in_uninterruptible_sleep_is_never_hung(kind: WaitKind) -> None:
    disk = Pose(state="D", doing="file_read", where="read weights", waits=(wait_for(kind, "/models/x (ext4)"),))
    assert verdict(Story().crew(2).watch(30, poses(2, {1: disk}))) is not Verdict.HUNG


def test_a_device_synchronise_that_sleeps_is_not_hung_sooner_than_one_that_spins() -> None:
    blocked = Pose(doing="cuda_sync", where="device synchronise", waits=(wait_for(WaitKind.POLL, "events"),))
    story = Story().crew(2)
    assert first_at(story, Verdict.HUNG, poses(2, {1: blocked})) >= 25


def test_a_rank_in_a_devices_driver_needs_as_long_as_a_spin() -> None:
    driver = Pose(where="init", wchan="ioctl", waits=(wait_for(WaitKind.OTHER, "/dev/nvidiactl"),))
    assert 25 <= first_at(Story().crew(4), Verdict.HUNG, poses(4, {3: driver}, collective("store wait", doing="rendezvous"))) <= 30


def test_fresh_text_counts_at_once_and_not_at_the_next_sample() -> None:
    story = Story().crew(2).seconds(10).line(Phase.WEIGHTS, rank=1)
    for _ in range(3):
        story.look(poses(2, {1: STORE}))
    assert verdict(story) is Verdict.STARTING


def test_a_short_stop_of_a_start_that_stood_still_before_is_never_hung() -> None:
    story, seen = Story().crew(2), set()
    story.watch(14, poses(2, {1: Pose(state="R", where="native call")}))
    story.others[rank_pid(1)] = story.others[rank_pid(1)]._replace(state="T")
    for _ in range(5):
        story.watch(1, poses(2, {1: STOPPED}))
        seen.add(verdict(story))
    story.others[rank_pid(1)] = story.others[rank_pid(1)]._replace(state="R")
    story.watch(5, poses(2, {1: Pose(state="R", where="native call")}))
    assert Verdict.HUNG not in seen | {verdict(story)}


def test_of_several_stopped_ranks_the_lowest_is_named_by_its_own_pid() -> None:
    story = Story().crew(3, order=(2, 1, 0))
    for rank in (1, 2):
        story.others[rank_pid(rank)] = story.others[rank_pid(rank)]._replace(state="T")
    story.watch(10, poses(3, {1: STOPPED, 2: STOPPED}))
    assert (verdict(story), behind(story)) == (Verdict.HUNG, (1, 2))
    assert f"rank 1 (pid {rank_pid(1)}) is stopped" in story.state.decision.reason


def test_a_hung_verdict_does_not_flicker_while_the_next_look_comes_in() -> None:
    story = Story().crew(3).watch(20, poses(3, {2: STORE}))
    assert verdict(story) is Verdict.HUNG
    number = story.state.closeup.round + 1
    for pid, pose in poses(3, {2: STORE}).items():
        story.tell(pose.places(story.process(pid), number))
        assert verdict(story) is Verdict.HUNG


# what may go on by itself, and for how long that is believed

INWARD = Pose(where="result", waits=(wait_for(WaitKind.FUTEX, "a lock in its own memory"),))


def reason(story: Story) -> str:
    return story.state.decision.reason


@pytest.mark.parametrize(("hand", "may_come"), [
    (wait_for(WaitKind.SOCKET, "far", observable=False, tid=901), True),
    (wait_for(WaitKind.FILE_LOCK, "/lock", key(4242), tid=901), True),
    (wait_for(WaitKind.SOCKET, "rank 0", key(rank_pid(0)), tid=901), False),
    (wait_for(WaitKind.SOCKET, "nothing", tid=901), False),
    (wait_for(WaitKind.FIFO, "/f", observable=False, nobody=True, tid=901), False),
    (wait_for(WaitKind.SOCKET, "itself", key(rank_pid(3)), in_run=False, tid=901), False),
], ids=["out of sight", "another's lock", "of the run", "nobody told", "nobody left", "its own"])  # fmt: skip
def test_a_thread_that_somebody_outside_may_help_on_keeps_its_process_waiting(hand: Wait, may_come: bool) -> None:
    waits = replace(INWARD, waits=(*INWARD.waits, hand), threads=(thread(901),))
    story = Story().crew(4).watch(16, poses(4, {3: waits}))
    assert verdict(story) is (Verdict.WAITING if may_come else Verdict.HUNG)


@pytest.mark.parametrize(("hand", "syscall", "stalled"), [
    (wait_for(WaitKind.POLL, "events", tid=901, timeout_s=0.5), "poll", True),
    (wait_for(WaitKind.POLL, "events", tid=901), "nanosleep", True),
    (wait_for(WaitKind.POLL, "events", tid=901), "poll", False),
])  # fmt: skip
def test_a_thread_that_wakes_up_by_itself_may_bring_a_process_on_for_which_nobody_waits(hand: Wait, syscall: str, stalled: bool) -> None:
    place, stack = thread(901)
    waits = replace(INWARD, waits=(*INWARD.waits, hand), threads=((replace(place, syscall=syscall), stack),))
    story = Story().crew(1).watch(20, {ROOT.pid: polls(), rank_pid(0): waits})
    assert verdict(story) is (Verdict.STALLED if stalled else Verdict.HUNG)
    if stalled:
        assert "one of them wakes up by itself" in reason(story)
        assert verdict(Story().crew(2).watch(20, poses(2, {1: waits}))) is Verdict.HUNG, "others wait for it"


def asleep_for(seconds: float | None) -> Pose:
    return replace(sleeps(), waits=(wait_for(WaitKind.SLEEP, "time to pass", timeout_s=seconds),))


def test_a_sleep_that_ends_is_waited_for_until_it_should_have_ended_and_one_of_minutes_is_not() -> None:
    assert "sleeps, 30 s at a time" in reason(Story().crew(2).watch(33, poses(2, {1: asleep_for(30.0)})))
    assert verdict(Story().crew(2).watch(33, poses(2, {1: asleep_for(30.0)}))) is Verdict.WAITING
    assert verdict(Story().crew(2).watch(34, poses(2, {1: asleep_for(30.0)}))) is Verdict.HUNG
    assert verdict(Story().crew(2).watch(13, poses(2, {1: asleep_for(59.0)}))) is Verdict.WAITING
    assert first_at(Story().crew(2), Verdict.HUNG, poses(2, {1: asleep_for(60.0)})) == 12


def test_a_sleep_for_which_nobody_waits_is_never_hung() -> None:
    def alone(seconds: float | None, watched: int) -> Story:
        return Story().crew(1).watch(watched, {ROOT.pid: polls(), rank_pid(0): asleep_for(seconds)})

    assert verdict(alone(600.0, 40)) is Verdict.WAITING
    assert verdict(alone(20.0, 23)) is Verdict.WAITING
    over = alone(20.0, 24)
    assert (verdict(over), "what it waits for is not known" in reason(over)) == (Verdict.STALLED, True)
    assert verdict(alone(None, 40)) is Verdict.STALLED


def test_what_works_elsewhere_in_the_run_may_end_a_wait_but_not_one_that_nobody_can_end() -> None:
    def beside(pose: Pose, helper: Pose) -> Story:
        story = Story().crew(2).member(300, "helper")
        return story.watch(16, poses(2, {1: pose}) | {300: helper})

    grinds = Pose(state="R", where="grind")
    assert verdict(beside(STORE, grinds)) is Verdict.STALLED
    assert "helper (pid 300) is busy in grind" in reason(beside(STORE, grinds))
    assert verdict(beside(STORE, Pose(where="rest"))) is Verdict.HUNG
    fifo = Pose(where="read", waits=(wait_for(WaitKind.FIFO, "/f", nobody=True),))
    assert verdict(beside(fifo, grinds)) is Verdict.HUNG


def test_a_rank_that_polls_in_its_collective_is_not_work() -> None:
    told = poses(3, {2: STORE}) | {rank_pid(0): collective(state="R")}
    assert first_at(Story().crew(3), Verdict.HUNG, told) <= 6


def test_a_parent_that_sleeps_between_looks_at_its_ranks_closes_the_circle_unless_something_else_moves() -> None:
    def with_helper(told: dict[int, Pose], state: str, *, moves: bool) -> float:
        story = Story().crew(2).member(300, "helper")
        for second in range(40):
            story.watch(1, told | {300: Pose(state=state, where="x", line=second if moves else 1, wchan="do_exit")})
            if verdict(story) is Verdict.HUNG:
                return story.state.motion.still
        raise AssertionError(reason(story))

    told = poses(2, {1: STORE}) | {ROOT.pid: sleeps()}
    assert with_helper(told, "S", moves=False) == 4
    assert with_helper(told, "S", moves=True) == 12
    assert with_helper(told, "Z", moves=True) == 4, "a zombie moves nothing"
    for_rank = poses(3, {1: replace(STORE, waits=(wait_for(WaitKind.SOCKET, "rank 2", key(rank_pid(2))),)), 2: sleeps()})
    assert first_at(Story().crew(3), Verdict.HUNG, for_rank) == 12, "a rank that sleeps may go on"


def test_ranks_that_end_elsewhere_than_most_are_behind_where_nobody_is_in_a_collective() -> None:
    def at(*where: str) -> tuple[int, ...]:
        told = {rank_pid(rank): Pose(where=one, waits=(wait_for(WaitKind.FIFO, "/f", nobody=True),)) for rank, one in enumerate(where)}
        story = Story().crew(len(where)).watch(8, {ROOT.pid: polls(), **told})
        assert verdict(story) is Verdict.HUNG
        return behind(story)

    assert at("a", "b", "a") == (1,)
    assert at("a", "b", "a", "c", "a") == (1, 3)
    assert at("a", "b", "a", "b") == (), "half of them are not fewer"
    assert at("a", "a", "a") == ()


def test_a_stopped_rank_is_named_before_a_stopped_helper_and_of_helpers_the_lowest_pid() -> None:
    def stopped(*pids: int) -> Story:
        story = Story().crew(2).member(150, "tail").member(300, "helper")
        for pid in pids:
            story.others[pid] = story.others[pid]._replace(state="T")
        return story.seconds(8)

    both = stopped(150, rank_pid(1))
    assert (behind(both), f"rank 1 (pid {rank_pid(1)}) is stopped (state T) for 7 s" in reason(both)) == ((1,), True)
    helpers = stopped(300, 150)
    assert (verdict(helpers), behind(helpers), "tail (pid 150) is stopped" in reason(helpers)) == (Verdict.HUNG, (), True)
    assert hang(helpers).root is not None


def test_a_rank_at_work_that_gets_on_is_still_the_one_that_the_others_wait_for() -> None:
    story = Story().crew(3)
    for second in range(14):
        story.watch(1, poses(3, {2: Pose(state="R", where="grind", line=second)}))
    assert (verdict(story), behind(story)) == (Verdict.STALLED, (2,))
    assert "rank 2 (pid 202) is busy in grind" in reason(story)


def test_a_stop_of_six_sampled_seconds_is_long() -> None:
    story = Story().crew(2)
    story.others[rank_pid(1)] = story.others[rank_pid(1)]._replace(state="T")
    assert verdict(story.seconds(6)) is not Verdict.HUNG
    assert verdict(story.seconds(1)) is Verdict.HUNG
    assert "for 6 s" in reason(story)


@pytest.mark.parametrize(("state", "told"), [("D", Verdict.WAITING), ("S", Verdict.HUNG)])
def test_a_disk_that_may_answer_is_waited_for_while_the_kernel_says_so(state: str, told: Verdict) -> None:
    disk = Pose(state=state, doing="file_read", where="read weights", waits=(wait_for(WaitKind.DISK, "/models/x (ext4)"),))
    assert verdict(Story().crew(2).watch(12, poses(2, {1: disk}))) is told


def test_a_lock_whose_holder_left_its_pid_to_another_process_is_no_proof() -> None:
    def held_by(holder: ProcessKey) -> Verdict:
        lock = replace(lock_of(holder), waits=(wait_for(WaitKind.FILE_LOCK, "/cache/lock", holder, in_run=True),))
        return verdict(Story().crew(2).member(300, "helper").watch(20, poses(2, {1: lock}) | {300: Pose(where="rest")}))

    assert held_by(key(300)) is Verdict.HUNG
    assert held_by(ProcessKey("node", 300, 999)) is Verdict.STALLED


def test_the_lowest_rank_is_named_though_another_one_has_the_lower_pid() -> None:
    story = Story().launch(plan(sizes=Sizes(tp=2, world=2, ranks_here=2))).member(210, rank=1).member(220, rank=0)
    for pid in (210, 220):
        story.others[pid] = story.others[pid]._replace(state="T")
    assert "rank 0 (pid 220) is stopped" in reason(story.seconds(8))


def test_the_rank_that_waits_for_requests_is_named_as_idle_and_not_one_that_waits_for_its_commands() -> None:
    command = Pose(doing="queue", where="command queue", waits=(wait_for(WaitKind.POLL, "events"),))
    story = Story().crew(2).watch(14, {ROOT.pid: polls(), rank_pid(0): command, rank_pid(1): replace(command, doing="idle")})
    assert "rank 1 (pid 201) waits for requests, as an idle server does" in reason(story)


def test_missing_ranks_are_told_in_one_or_many() -> None:
    story = Story().crew(2, world=4).watch(8, poses(2, {}))
    assert "2 of 4 ranks wait in all_reduce for ranks 2, 3, which have not joined" in reason(story)
    assert verdict(Story().crew(2).watch(20, poses(2, {}))) is not Verdict.WAITING, "nobody is missing"


def test_a_main_process_that_polls_or_holds_an_idle_connection_is_a_server_at_rest() -> None:
    def main_process(pose: Pose) -> Story:
        return Story().crew(0).watch(30, {ROOT.pid: pose})

    assert "waits for events (in select), as an idle server does" in reason(main_process(polls()))
    own = Pose(where="accept", waits=(wait_for(WaitKind.SOCKET, "its own socket", ROOT),))
    assert verdict(main_process(own)) is Verdict.STALLED
    assert "as an idle server does" in reason(main_process(own))
    client = Pose(where="recv", waits=(wait_for(WaitKind.SOCKET, "a connection to 10.0.0.9"),))
    assert "waits for a connection to 10.0.0.9, as an idle server does" in reason(main_process(client))
    pipe = Pose(where="read", waits=(wait_for(WaitKind.PIPE, "pipe:[1]"),))
    assert verdict(main_process(pipe)) is Verdict.HUNG


def test_without_a_stack_only_a_wait_that_tells_by_itself_proves_something() -> None:
    def blind(kind: WaitKind, **told: bool) -> Verdict:
        return verdict(Story().crew(2).watch(16, poses(2, {1: Pose(stacks=False, waits=(wait_for(kind, "it", **told),))})))  # type: ignore[arg-type]  # fields by name

    assert blind(WaitKind.SOCKET) is Verdict.STALLED
    assert blind(WaitKind.FUTEX) is Verdict.STALLED
    assert blind(WaitKind.FIFO, nobody=True) is Verdict.HUNG
    assert blind(WaitKind.PIPE) is Verdict.HUNG


def test_in_two_collectives_of_the_same_size_neither_is_behind_and_the_smaller_one_is() -> None:
    def split(*where: str) -> Story:
        told = {rank_pid(rank): collective(one) for rank, one in enumerate(where)}
        return Story().crew(len(where)).watch(8, {ROOT.pid: polls(), **told})

    assert (verdict(split("a", "a", "b", "b")), behind(split("a", "a", "b", "b"))) == (Verdict.HUNG, ())
    assert behind(split("a", "a", "a", "b")) == (3,)
    assert "ranks 0 to 2 wait for rank 3 in a" in reason(split("a", "a", "a", "b"))
    assert "rank 0 waits for rank 1" in reason(Story().crew(2).watch(8, poses(2, {1: STORE})))


def test_groups_are_told_the_largest_first_and_of_equal_ones_that_of_the_lowest_rank() -> None:
    story = Story().crew(4).watch(8, poses(4, {0: STORE}))
    assert [(group.ranks, group.where) for group in hang(story).groups] == [((1, 2, 3), "all_reduce"), ((0,), "store wait")]
    even = Story().crew(2).watch(8, poses(2, {0: STORE}))
    assert [group.ranks for group in hang(even).groups] == [(0,), (1,)]
