"""How much must be seen before it is proven: seconds of stillness, looks and the time between them, for each kind of proof."""

import pytest
from story import ROOT, Pose, Story, collective, key, lock_of, polls, rank_pid, sleeps, wait_for

from firsttoken.judge.rule import Bar
from firsttoken.model.stillness import WaitKind
from firsttoken.model.words import Verdict

CIRCLE = {rank_pid(0): lock_of(key(rank_pid(1)), "/a"), rank_pid(1): lock_of(key(rank_pid(0)), "/b")}
FIFO = {rank_pid(0): collective(), rank_pid(1): Pose(where="read", waits=(wait_for(WaitKind.FIFO, "/f", nobody=True),))}
STORE = {rank_pid(0): collective(), rank_pid(1): Pose(doing="rendezvous", where="wait", waits=(wait_for(WaitKind.SOCKET, "store", ROOT),))}
ASLEEP = {rank_pid(0): collective(), rank_pid(1): sleeps()}
DRIVER = {rank_pid(0): collective(), rank_pid(1): Pose(where="init", wchan="ioctl", waits=(wait_for(WaitKind.OTHER, "/dev/nvidiactl"),))}
SPINS = {rank_pid(0): collective(), rank_pid(1): Pose(state="R", doing="cuda_sync", where="synchronise")}
OUTSIDE = {rank_pid(0): collective(), rank_pid(1): lock_of(key(4242))}


def proven(story: Story, wanted: Verdict = Verdict.HUNG) -> bool:
    return story.state.decision.verdict is wanted


@pytest.mark.parametrize(("poses", "verdict", "still"), [
    (CIRCLE, Verdict.HUNG, 3), (FIFO, Verdict.HUNG, 4), (OUTSIDE, Verdict.WAITING, 4), (STORE, Verdict.HUNG, 4), (ASLEEP, Verdict.HUNG, 12),
    (DRIVER, Verdict.HUNG, 25), (SPINS, Verdict.HUNG, 25),
], ids=["circle", "nobody", "outside", "closed", "asleep", "driver", "spin"])  # fmt: skip
def test_the_better_the_proof_the_less_stillness_it_needs(poses: dict[int, Pose], verdict: Verdict, still: float) -> None:
    """Watched from the first second of stillness on."""
    story = Story().crew(2)
    told = {ROOT.pid: polls(), **poses}
    while not proven(story, verdict):
        assert story.state.motion.still < still
        story.watch(1, told)
    assert story.state.motion.still in (still, still + 1), "the pace of looks is two seconds after the first twelve"


@pytest.mark.parametrize(("poses", "apart", "looks"), [
    (CIRCLE, 2.0, 3), (CIRCLE, 0.5, 4), (FIFO, 2.0, 3), (FIFO, 0.5, 4), (STORE, 2.0, 4), (STORE, 0.5, 6), (ASLEEP, 2.0, 4),
    (ASLEEP, 0.5, 6), (DRIVER, 4.0, 6), (DRIVER, 1.5, 8), (SPINS, 4.0, 6), (SPINS, 1.5, 8),
])  # fmt: skip
def test_a_proof_needs_several_looks_and_time_between_them_however_long_it_has_been_still(
    poses: dict[int, Pose], apart: float, looks: int
) -> None:
    story = Story().crew(2).seconds(40)
    for _ in range(looks):
        assert not proven(story)
        story.t += apart
        story.look({ROOT.pid: polls(), **poses})
    assert proven(story), story.state.decision.reason


@pytest.mark.parametrize(("apart", "looks"), [(0.9, 5), (0.5, 8)])
def test_a_server_at_rest_that_took_a_request_needs_looks_too(apart: float, looks: int) -> None:
    idle = Pose(doing="queue", where="get", wchan="ep_poll", waits=(wait_for(WaitKind.POLL, "events"),))
    story = Story().crew(2).listen().ready_line().ask().seconds(8)
    for _ in range(looks):
        assert not proven(story, Verdict.UNSERVING)
        story.t += apart if story.state.closeup.round else 0.0
        story.look({ROOT.pid: polls(), rank_pid(0): idle, rank_pid(1): idle})
    assert proven(story, Verdict.UNSERVING)


@pytest.mark.parametrize(("quiet", "weighed", "needs"), [
    (2.0, True, 4.0), (2.5, True, 5.0), (15.0, True, 30.0), (16.0, True, 30.0), (600.0, True, 30.0), (0.5, True, 4.0), (600.0, False, 4.0),
])  # fmt: skip
def test_known_quiet_counts_twice_and_never_hides_a_hang_for_minutes(quiet: float, weighed: bool, needs: float) -> None:
    assert Bar(still=4.0, looks=1, span=0.0, weighed=weighed).needs(quiet) == needs


def test_a_bar_above_all_known_quiet_stays_where_it_is() -> None:
    assert Bar(still=45.0, looks=1, span=0.0).needs(600.0) == 45.0
