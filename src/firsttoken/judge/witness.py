"""What GPUs and ranks' own recorders add to a proof: they speak beside the wait-for graph, never in place of it.

One thing only do they decide by themselves: where every rank of the server is here and every one's GPU does nothing but wait, no rank is
left that could end it. While one rank's GPU is idle or at work, that rank may still come, and only its stack tells.
"""

from collections.abc import Mapping
from dataclasses import replace

from firsttoken.judge import gpu
from firsttoken.judge.gpu import GpuWatch, Spin
from firsttoken.judge.hang import Proof, Scene
from firsttoken.model.collectives import Comparison
from firsttoken.model.words import Verdict

Heard = Mapping[str, tuple[float, Comparison]]
"""the last comparison of each source, and when it came"""
_MOST_TOLD = 3


def noted(heard: Heard, comparison: Comparison, t: float) -> Heard:
    return {**heard, comparison.source: (t, comparison)}


def witnessed(proof: Proof | None, scene: Scene, gpus: GpuWatch, heard: Heard, moved_at: float) -> Proof | None:
    """The proof with what the witnesses say. What was heard before the last strong signal counts no more."""
    if not gpus.spun and not heard:
        return proof
    ranks = {pid: rank for pid, member in scene.members.items() if (rank := scene.rank(member)) is not None}
    spun = gpu.spin(gpus, ranks)
    told = [comparison for t, comparison in heard.values() if t >= moved_at]
    facts = (*((spun.text,) if spun is not None else ()), *_facts(told))
    if not facts:
        return proof
    behind = proof.behind if proof is not None and proof.behind else _behind(told, spun, scene)
    if spun is not None and spun.proven and scene.still >= gpu.SPINS_AFTER and (proof is None or proof.verdict is Verdict.STALLED):
        here = set(ranks.values()) >= set(range(scene.sizes.world))
        verdict = Verdict.HUNG if here else Verdict.WAITING
        reason = spun.text if here else f"{spun.text}; ranks on other machines cannot be seen from here"
        base = proof if proof is not None else Proof(verdict=verdict, reason=reason)
        return replace(base, verdict=verdict, reason=reason, facts=(*base.facts, *facts[1:]), behind=behind)
    if proof is None:
        return Proof(verdict=Verdict.STALLED, reason=f"nothing moved for {scene.still:.0f} s; {facts[0]}", facts=facts, behind=behind)
    return replace(proof, facts=(*proof.facts, *facts), behind=behind)


def _facts(told: list[Comparison]) -> tuple[str, ...]:
    """Those first that name the ranks behind."""
    return tuple(
        f"{_SOURCES.get(one.source, one.source)}: {disagreement.text}"
        for one in told
        for disagreement in [d for d in one.disagreements if not one.behind or set(d.ranks) & set(one.behind)][:_MOST_TOLD]
    )


_SOURCES = {"flight_recorder": "torch's flight recorder", "nccl_ras": "NCCL's monitor"}


def _behind(told: list[Comparison], spun: Spin | None, scene: Scene) -> tuple[int, ...]:
    """Named by a recorder, else the ranks whose GPUs idle while the others' spin, if they are fewer."""
    for one in told:
        if one.behind and all(rank < scene.sizes.world for rank in one.behind):
            return one.behind
    return spun.idle if spun is not None and len(spun.idle) < len(spun.ranks) else ()
