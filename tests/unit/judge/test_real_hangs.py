"""What hangs of real engines look like: ranks that told nothing, ranks that are done, and threads that hang for the main one."""

from dataclasses import replace

from story import Pose, Story, collective, key, polls, rank_pid, sleeps, thread, wait_for

from firsttoken.judge.closeup import Closeup, noted, same_for
from firsttoken.judge.ranks import left_over
from firsttoken.model.plan import Sizes
from firsttoken.model.process import Member, RankTag
from firsttoken.model.stillness import WaitKind
from firsttoken.model.words import Verdict

ONE, OTHER = key(200), key(201)
WORKER = RankTag(name="Worker")


def test_a_round_counts_once_all_its_places_and_stacks_are_there() -> None:
    closeup, pose = Closeup(), Pose()
    for number in (1, 2):
        for process in (ONE, OTHER):
            closeup = noted(closeup, pose.places(process, number), float(number))
        closeup = noted(closeup, pose.stack(ONE, number), float(number))
        assert len(closeup.looks.get(ONE.pid, ())) == number - 1
        closeup = noted(closeup, pose.stack(OTHER, number), float(number))
    assert all(same_for(closeup.looks[process.pid], 2) for process in (ONE, OTHER))


def test_a_process_that_was_gone_does_not_hold_a_round_up() -> None:
    closeup = noted(Closeup(), Pose().places(ONE, 1), 1.0)
    closeup = noted(closeup, Pose(stacks=False).stack(OTHER, 1), 1.0)
    closeup = noted(closeup, Pose().stack(ONE, 1), 1.0)
    assert closeup.looks[ONE.pid][-1].round == 1


def test_a_proof_that_was_told_stays_while_the_next_round_comes_in() -> None:
    fifo = Pose(where="open", wchan="wait_for_partner", waits=(wait_for(WaitKind.FIFO, "/m/shard", nobody=True),))
    told = {100: polls(), rank_pid(0): collective(), rank_pid(1): fifo}
    story = Story().crew(2).watch(20, told)
    assert story.state.decision.verdict is Verdict.HUNG
    number = story.state.closeup.round + 1
    for pid, pose in told.items():
        story.tell(pose.places(story.state.members[pid].process, number))
        assert story.state.decision.verdict is Verdict.HUNG
    for pid, pose in told.items():
        story.tell(pose.stack(story.state.members[pid].process, number))
        assert story.state.decision.verdict is Verdict.HUNG


def workers(*tags: RankTag | None) -> dict[int, Member]:
    return {pid: Member(process=key(pid), parent=100, title="engine::worker", tag=tag) for pid, tag in enumerate(tags, start=200)}


def test_the_one_worker_that_has_told_no_rank_has_the_rank_that_is_left() -> None:
    members = workers(WORKER, WORKER, WORKER, RankTag(name="EngineCore"), None)
    assert left_over(members, Sizes(tp=3, world=3, ranks_here=3), {200: 0, 202: 2}) == {201: 1}


def test_workers_that_have_told_nothing_are_numbered_in_the_order_in_which_they_were_started() -> None:
    assert left_over(workers(*[WORKER] * 4), Sizes(tp=4, world=4, ranks_here=4), {201: 1, 200: 0}) == {202: 2, 203: 3}


def test_no_rank_is_guessed_where_the_numbers_do_not_fit() -> None:
    assert left_over(workers(*[WORKER] * 3), Sizes(tp=4, world=4, ranks_here=4), {200: 0}) == {}
    assert left_over(workers(*[WORKER] * 2), Sizes(tp=2, world=2, ranks_here=2), {}) == {}


def test_a_rank_that_never_joined_is_named_though_it_told_nothing() -> None:
    story = Story().crew(2)
    told = {pid: replace(member, tag=WORKER) for pid, member in story.state.members.items() if pid >= rank_pid(0)}
    story.state = replace(story.state, members={**story.state.members, **told}, told_ranks={rank_pid(0): 0})
    waits = collective("process group init", doing="rendezvous")
    story.watch(20, {100: polls(), rank_pid(0): waits, rank_pid(1): sleeps()})
    assert (story.state.decision.verdict, story.state.decision.behind) == (Verdict.HUNG, (1,))


def test_a_rank_that_is_not_done_with_a_command_is_behind_those_that_are() -> None:
    idle = Pose(doing="queue", where="command queue", wchan="ep_poll", waits=(wait_for(WaitKind.POLL, "events"),))
    story = Story().crew(2).watch(20, {100: polls(), rank_pid(0): idle, rank_pid(1): sleeps()})
    assert (story.state.decision.verdict, story.state.decision.behind) == (Verdict.HUNG, (1,))
    assert "rank 0 waits for rank 1 in command queue" in story.state.decision.reason


def test_ranks_that_are_all_done_are_not_behind() -> None:
    idle = Pose(doing="queue", where="command queue", wchan="ep_poll", waits=(wait_for(WaitKind.POLL, "events"),))
    story = Story().crew(2).watch(8, {100: polls(), rank_pid(0): idle, rank_pid(1): idle})
    assert story.state.decision.behind == ()


def test_a_main_thread_that_waits_for_a_thread_of_its_own_hangs_where_that_one_does() -> None:
    """A pool thread opens a FIFO and keeps the interpreter's lock; service threads wait for sockets meanwhile."""
    futex = wait_for(WaitKind.FUTEX, "a lock in its own memory", timeout_s=0.005)
    fifo = wait_for(WaitKind.FIFO, "/m/shard", nobody=True, tid=777)
    pose = Pose(
        where="import",
        waits=(futex, wait_for(WaitKind.SOCKET, "a peer", tid=778), fifo),
        threads=(thread(777, doing="file_read", where="read weights"), thread(778)),
    )
    story = Story().crew(1).watch(10, {100: polls(), rank_pid(0): pose})
    assert story.state.decision.verdict is Verdict.HUNG
    assert "waits for the FIFO /m/shard" in story.state.decision.reason
    assert "(in read weights)" in story.state.decision.reason


def test_a_rank_that_sleeps_for_an_hour_inside_of_a_collective_is_not_in_it() -> None:
    """The frame of the collective lies outside of the one that sleeps."""
    asleep = collective("_all_reduce", waits=(wait_for(WaitKind.SLEEP, "time to pass", timeout_s=3600.0),))
    story = Story().crew(3).watch(20, {100: polls(), **{rank_pid(rank): collective() for rank in (0, 2)}, rank_pid(1): asleep})
    assert (story.state.decision.verdict, story.state.decision.behind) == (Verdict.HUNG, (1,))
    assert "ranks 0, 2 wait for rank 1 in all_reduce" in story.state.decision.reason
