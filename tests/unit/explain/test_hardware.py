"""What attached GPU tables and flight-recorder dumps say about causes and ranks."""

from dataclasses import replace

from attached_facts import facts, gpu, process

from firsttoken.explain.behind import behind
from firsttoken.explain.findings import findings
from firsttoken.explain.verdict import judge
from firsttoken.knowledge.causes import causes
from firsttoken.model.attached import Attached, GpuLine
from firsttoken.model.collectives import Comparison, Disagreement, Discord
from firsttoken.model.words import Phase, Verdict

CARD = replace(gpu(40.0, 300.0), throttled=(), link_width=16, link_width_most=16, link_generation=5, link_generation_most=5)


def found(card: GpuLine | None = None, verdict: Verdict = Verdict.SLOW, **attached: object) -> dict[str, float]:
    of = Attached(log=b"x\n", gpus=(card,) if card is not None else None, **attached)  # type: ignore[arg-type]  # fields by name
    return {one.cause.id: one.confidence for one in findings(facts(of, phase=Phase.WEIGHTS), causes(), verdict)}


def test_a_healthy_card_explains_nothing() -> None:
    assert found(CARD) == {}


def test_a_card_that_protects_itself_is_throttled() -> None:
    assert found(replace(CARD, throttled=("hardware thermal slowdown",)))["gpu-throttled"] >= 0.5


def test_missing_lanes_are_a_degraded_link_and_a_slow_link_counts_only_under_load() -> None:
    assert found(replace(CARD, link_width=4))["pcie-link-degraded"] >= 0.5
    assert "pcie-link-degraded" not in found(replace(CARD, link_generation=1, utilisation=0.0))
    assert found(replace(CARD, link_generation=1, utilisation=99.0))["pcie-link-degraded"] >= 0.5


def test_an_xid_that_the_run_saw_is_one() -> None:
    assert found(replace(CARD, xids=(79,)), Verdict.HUNG)["gpu-xid"] >= 0.5


def recorder(kind: Discord, *ranks: int, text: str = "ranks disagree") -> Comparison:
    told = Disagreement(kind=kind, group="0", seq=3, ranks=ranks, text=text)
    return Comparison(source="flight_recorder", ranks=(0, 1), behind=ranks, disagreements=(told,))


def test_a_recorder_names_the_rank_behind_where_all_is_quiet() -> None:
    shown = facts(Attached(log=b"x\n", flight_recorder=recorder(Discord.MISSING, 1)), idle=200.0)
    judgement = judge(shown)
    assert (judgement.verdict, judgement.behind) == (Verdict.HUNG, (1,))
    assert judgement.reason == "by torch's flight recorder, the others wait for rank 1: ranks disagree"


def test_a_recorder_is_a_witness_and_compilers_at_work_tell_more() -> None:
    busy = (process(5, "R", 99.0, title="/usr/bin/ninja -v"),)
    shown = facts(Attached(log=b"x\n", processes=busy, flight_recorder=recorder(Discord.MISSING, 1)), idle=200.0)
    assert judge(shown).verdict is not Verdict.HUNG


def test_a_recorder_of_another_world_names_nobody() -> None:
    shown = facts(Attached(log=b"x\n", flight_recorder=recorder(Discord.MISSING, 7)), idle=200.0)
    assert behind(shown, Verdict.HUNG) == ()


def test_different_collectives_at_one_place_are_divergence() -> None:
    assert found(None, Verdict.HUNG, flight_recorder=recorder(Discord.MISMATCH, 1))["rank-divergence"] >= 0.5
