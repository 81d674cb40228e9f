from collections.abc import Sequence
from dataclasses import replace

from story import ROOT, Pose, Story, polls, rank_pid

from firsttoken.judge.outcome import result
from firsttoken.model.collectives import Comparison, Disagreement, Discord
from firsttoken.model.events import Body, Collectives, Gpus
from firsttoken.model.gpu import GpuProcess, GpuSample
from firsttoken.model.words import Verdict

SPINNING = GpuSample(
    index=0, busy=1.0, memory_busy=0.0, dram=0.001, power=118.0, power_limit=700.0, memory_used=10 << 30, memory_total=80 << 30,
    pcie_rx=3e5, pcie_tx=3e5, nvlink_rx=0.0, nvlink_tx=0.0,
)  # fmt: skip
IDLE = replace(SPINNING, busy=0.0, power=75.0)
WORKING = replace(SPINNING, dram=0.4, power=560.0, pcie_rx=1e9)
SYNC = Pose(doing="cuda_sync", where="synchronize", state="R")
COMPILES = Pose(doing="compile", where="nvrtcCompileProgram", state="R")


def cards(of: Sequence[GpuSample], pids: Sequence[int] | None = None) -> Gpus:
    """One card a rank, with the rank's process on it."""
    samples = tuple(
        replace(one, index=index, processes=(GpuProcess(pids[index] if pids else rank_pid(index), 9 << 30),))
        for index, one in enumerate(of)
    )
    return Gpus(interval=2.0, samples=samples)


def watched(poses: Sequence[Pose], told: Body, seconds: int = 40, world: int | None = None) -> Story:
    story = Story().crew(len(poses), world=world)
    stands = {ROOT.pid: polls()} | {rank_pid(rank): pose for rank, pose in enumerate(poses)}
    for second in range(seconds):
        if second % 2 == 0:
            story.tell(told)
        story.watch(1, stands)
    return story


def test_all_ranks_gpus_that_only_wait_are_hung_within_45_seconds() -> None:
    story = watched([SYNC] * 4, cards([SPINNING] * 4), 45)
    decision = story.state.decision
    assert decision.verdict is Verdict.HUNG
    assert "4 GPUs are fully used without memory, PCIe or link traffic, at 118 W of 700 W" in decision.reason
    assert [row["doing"] for row in result(story.state).gpus] == ["spinning"] * 4


def test_before_that_it_is_stalled_and_the_gpus_are_told() -> None:
    decision = watched([SYNC] * 4, cards([SPINNING] * 4), 20).state.decision
    assert decision.verdict is Verdict.STALLED
    assert any("a kernel that only waits" in fact for fact in decision.proof)


def test_a_rank_whose_gpu_does_not_spin_may_still_come() -> None:
    decision = watched([SYNC, SYNC, SYNC, COMPILES], cards([SPINNING, SPINNING, SPINNING, IDLE]), 120).state.decision
    assert decision.verdict is Verdict.STALLED
    assert decision.behind == (3,)


def test_ranks_on_another_machine_may_still_come() -> None:
    decision = watched([SYNC] * 2, cards([SPINNING] * 2), 60, world=4).state.decision
    assert decision.verdict is not Verdict.HUNG


def test_one_gpu_alone_needs_a_minute() -> None:
    assert watched([SYNC], cards([SPINNING]), 45).state.decision.verdict is Verdict.STALLED
    assert watched([SYNC], cards([SPINNING]), 75).state.decision.verdict is Verdict.HUNG


def test_traffic_on_the_runs_gpus_is_progress() -> None:
    decision = watched([SYNC] * 2, cards([WORKING, SPINNING]), 60).state.decision
    assert decision.verdict in (Verdict.STARTING, Verdict.SLOW)


def test_traffic_of_a_neighbour_on_another_gpu_is_none() -> None:
    decision = watched([SYNC], cards([SPINNING, WORKING], pids=[rank_pid(0), 99]), 20).state.decision
    assert decision.verdict is Verdict.STALLED


def test_where_no_processes_are_told_traffic_is_taken_for_ours_and_spinning_proves_nothing() -> None:
    def bare(one: GpuSample) -> Gpus:
        return Gpus(interval=2.0, samples=(replace(one, processes=()),))

    assert watched([SYNC], bare(WORKING), 60).state.decision.verdict in (Verdict.STARTING, Verdict.SLOW)
    assert watched([SYNC], bare(SPINNING), 90).state.decision.verdict is Verdict.STALLED


def test_what_a_card_does_not_tell_is_not_taken_for_quiet() -> None:
    for unknown in ({"power": None}, {"power_limit": None}, {"dram": None, "memory_busy": None}):
        blind = replace(SPINNING, **unknown)  # type: ignore[arg-type]  # fields by name
        assert watched([SYNC] * 2, cards([blind] * 2), 90).state.decision.verdict is Verdict.STALLED


def test_full_use_at_high_power_is_a_long_kernel() -> None:
    assert watched([SYNC] * 2, cards([replace(SPINNING, power=500.0)] * 2), 90).state.decision.verdict is Verdict.STALLED


def test_errors_throttling_and_a_narrow_link_stand_beside_the_verdict() -> None:
    hurt = replace(IDLE, xids=(79,), throttled=("power brake",), link_width=4, link_width_most=16)
    proof = result(watched([SYNC] * 2, cards([hurt, IDLE]), 20).state).proof
    for text in ("GPU 0 reported Xid 79", "GPU 0 is slowed down: power brake", "GPU 0 has 4 of 16 PCIe lanes"):
        assert text in proof


MISSING = Comparison(
    source="flight_recorder",
    ranks=(0, 1, 2, 3),
    behind=(2,),
    disagreements=(Disagreement(kind=Discord.MISSING, group="0", seq=7, ranks=(2,), others=(0, 1, 3), text="rank 2 has not entered it"),),
)


def test_a_recorder_names_the_rank_behind_and_leaves_the_verdict_alone() -> None:
    quiet = watched([SYNC] * 4, cards([IDLE] * 4), 20).state.decision
    story = watched([SYNC] * 4, cards([IDLE] * 4), 20)
    story.tell(Collectives(comparison=MISSING))
    decision = story.state.decision
    assert (decision.verdict, quiet.behind, decision.behind) == (quiet.verdict, (), (2,))
    assert "torch's flight recorder: rank 2 has not entered it" in decision.proof


def test_what_a_recorder_said_before_something_moved_counts_no_more() -> None:
    story = watched([SYNC] * 4, cards([IDLE] * 4), 5)
    story.tell(Collectives(comparison=MISSING)).seconds(1, work=100_000).seconds(15)
    assert story.state.decision.behind == ()


def test_a_recorder_of_another_world_names_nobody() -> None:
    story = watched([SYNC] * 2, cards([IDLE] * 2), 20)
    story.tell(Collectives(comparison=replace(MISSING, behind=(9,))))
    assert story.state.decision.behind == ()
