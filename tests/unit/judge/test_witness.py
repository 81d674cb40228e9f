"""What GPUs and the ranks' own recorders add to a proof, and what they never decide."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from firsttoken.judge.closeup import Closeup
from firsttoken.judge.gpu import GpuWatch, noted
from firsttoken.judge.hang import Proof, Scene
from firsttoken.judge.witness import witnessed
from firsttoken.model.collectives import Comparison, Disagreement, Discord
from firsttoken.model.events import Gpus
from firsttoken.model.gpu import GpuProcess, GpuSample
from firsttoken.model.plan import Sizes
from firsttoken.model.process import Member, ProcessKey, RankTag
from firsttoken.model.words import Verdict

STALLED = Proof(verdict=Verdict.STALLED, reason="busy", facts=("seen",))
HUNG = Proof(verdict=Verdict.HUNG, reason="a lock", behind=(1,))


def scene(world: int = 2, *, here: int | None = None, still: float = 40.0) -> Scene:
    members = {
        pid: Member(process=ProcessKey("node", pid, pid), parent=1, title="w", tag=RankTag(rank=pid - 200))
        for pid in range(200, 200 + (here if here is not None else world))
    }
    return Scene(members=members, sizes=Sizes(tp=world, world=world, ranks_here=world), closeup=Closeup(), still=still)


def gpus(*spin: bool, seconds: int = 40) -> GpuWatch:
    """One card a rank, that spins or does nothing."""
    samples = tuple(
        GpuSample(index=i, busy=1.0 if spins else 0.0, dram=0.0, power=100.0, power_limit=700.0, processes=(GpuProcess(200 + i, None),))
        for i, spins in enumerate(spin)
    )
    watch = GpuWatch()
    for t in range(0, seconds + 1, 2):
        watch = noted(watch, Gpus(interval=2.0, samples=samples), float(t), tuple(range(200, 200 + len(spin))))
    return watch


def said(*texts: str, behind: Sequence[int] = (), ranks: Sequence[int] = (1,), source: str = "flight_recorder") -> Comparison:
    told = tuple(Disagreement(kind=Discord.MISSING, group="0", seq=1, ranks=tuple(ranks), text=text) for text in texts)
    return Comparison(source=source, ranks=(0, 1), behind=tuple(behind), disagreements=told)


def with_recorder(
    comparison: Comparison,
    proof: Proof | None = None,
    *,
    at: float = 10.0,
    moved_at: float = 5.0,
    world: int = 2,
    watch: GpuWatch | None = None,
) -> Proof | None:
    return witnessed(proof, scene(world), watch or GpuWatch(), {comparison.source: (at, comparison)}, moved_at)


def test_without_witnesses_nothing_is_added() -> None:
    assert witnessed(None, scene(), GpuWatch(), {}, 0.0) is None
    assert witnessed(HUNG, scene(), GpuWatch(), {}, 0.0) is HUNG
    assert witnessed(None, scene(), gpus(False, False), {}, 0.0) is None
    assert with_recorder(said()) is None, "it saw no disagreement"


def test_all_cards_that_spin_for_long_enough_are_a_hang_of_their_own() -> None:
    found = witnessed(None, scene(), gpus(True, True), {}, 0.0)
    assert found is not None
    assert (found.verdict, found.behind, found.facts) == (Verdict.HUNG, (), ())
    assert found.reason.startswith("2 GPUs are fully used")
    busy = witnessed(STALLED, scene(), gpus(True, True), {"nccl_ras": (1.0, said("no answer", source="nccl_ras"))}, 0.0)
    assert busy is not None
    assert (busy.verdict, busy.facts) == (Verdict.HUNG, ("seen", "NCCL's monitor: no answer")), "the spin is the reason, not a fact too"


@pytest.mark.parametrize(("still", "hung"), [(29.9, False), (30.0, True)])
def test_a_spin_proves_nothing_while_the_run_itself_has_not_been_still_as_long(still: float, hung: bool) -> None:
    found = witnessed(None, scene(still=still), gpus(True, True), {}, 0.0)
    assert found is not None
    assert (found.verdict is Verdict.HUNG) is hung
    if not hung:
        assert found.verdict is Verdict.STALLED
        assert found.reason.startswith("nothing moved for 30 s; 2 GPUs are fully used")


def test_a_proof_of_waiting_or_hanging_is_not_replaced_by_a_spin_and_gets_it_as_a_fact() -> None:
    for proof in (HUNG, replace(HUNG, verdict=Verdict.WAITING)):
        found = witnessed(proof, scene(), gpus(True, True), {}, 0.0)
        assert found is not None
        assert (found.verdict, found.reason, found.behind) == (proof.verdict, "a lock", (1,))
        assert found.facts[0].startswith("2 GPUs")


def test_ranks_on_other_machines_may_still_come() -> None:
    found = witnessed(None, scene(4, here=2), gpus(True, True), {}, 0.0)
    assert found is not None
    assert found.verdict is Verdict.WAITING
    assert found.reason.endswith("; ranks on other machines cannot be seen from here")


def test_the_ranks_whose_cards_idle_are_behind_if_they_are_fewer() -> None:
    def behind(*spin: bool) -> tuple[int, ...]:
        found = witnessed(None, scene(len(spin)), gpus(*spin), {}, 0.0)
        assert found is not None
        assert found.verdict is Verdict.STALLED
        return found.behind

    assert behind(True, False, True) == (1,)
    assert behind(True, False) == ()
    assert behind(True, False, False) == ()


@pytest.mark.parametrize(("named", "world", "behind"), [((1,), 2, (1,)), ((2,), 2, ()), ((1, 2), 2, ()), ((0, 1), 2, (0, 1)), ((), 2, ())])
def test_a_recorder_names_ranks_of_this_world_only(named: tuple[int, ...], world: int, behind: tuple[int, ...]) -> None:
    found = with_recorder(said("x", behind=named, ranks=named), world=world)
    assert found is not None
    assert (found.verdict, found.behind) == (Verdict.STALLED, behind)


def test_who_is_proven_to_be_behind_stays_so_whatever_a_recorder_says_and_a_recorder_comes_before_the_cards() -> None:
    found = with_recorder(said("x", behind=(0,)), HUNG)
    assert found is not None
    assert found.behind == (1,)
    before_cards = with_recorder(said("x", behind=(2,), ranks=(2,)), watch=gpus(True, False, True), world=3)
    assert before_cards is not None
    assert before_cards.behind == (2,)


def test_what_was_heard_before_the_last_motion_counts_no_more() -> None:
    assert with_recorder(said("x"), at=5.0) is not None
    assert with_recorder(said("x"), at=4.9) is None
    assert with_recorder(said("x"), HUNG, at=4.9) is HUNG


def test_a_few_disagreements_are_told_those_that_name_the_ranks_behind_and_all_where_nobody_is() -> None:
    many = with_recorder(said(*"abcde"))
    assert many is not None
    assert many.facts == tuple(f"torch's flight recorder: {one}" for one in "abc")
    mixed = Comparison(
        source="other",
        ranks=(0, 1),
        behind=(1,),
        disagreements=(*said("of 0", ranks=(0,)).disagreements, *said("of 1").disagreements),
    )
    named = with_recorder(mixed)
    assert named is not None
    assert named.facts == ("other: of 1",)
