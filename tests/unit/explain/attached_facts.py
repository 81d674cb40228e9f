"""Facts for tests of the explaining core, without files: a reading and what was attached, as values."""

from dataclasses import replace
from typing import Any

from firsttoken.explain.facts import Facts, gather
from firsttoken.knowledge.signs import signs
from firsttoken.model.attached import Attached, GpuLine, ProcessLine, StackDump
from firsttoken.model.events import LogLine
from firsttoken.model.plan import Plan, Sizes
from firsttoken.model.reading import Reading, Told
from firsttoken.model.stillness import Frame, ThreadStack
from firsttoken.model.words import Edge, Phase

TWO = Plan(engine="engine", sizes=Sizes(tp=2, world=2, ranks_here=2))


def facts(attached: Attached | None = None, *, plan: Plan = TWO, phase: Phase = Phase.GRAPH_CAPTURE, **reading: Any) -> Facts:
    attached = attached or Attached(log=b"x\n")
    log = (attached.log or b"").decode()
    read = replace(Reading(plan=plan, phase=phase, places=dict.fromkeys(range(plan.sizes.world), phase), log=log), **reading)
    return gather(attached, read, signs())


def process(
    pid: int, state: str = "S", cpu: float = 0.1, *, parent: int = 1, title: str = "worker", wchan: str | None = None
) -> ProcessLine:
    return ProcessLine(pid=pid, parent=parent, state=state, cpu=cpu, elapsed=1000.0, wchan=wchan, title=title)


def stack(pid: int, *functions: str, file: str = "engine/x.py") -> StackDump:
    frames = tuple(Frame(function, file, 1) for function in functions)
    return StackDump(pid=pid, threads=(ThreadStack(tid=pid, name="MainThread", main=True, frames=frames),))


def gpu(utilisation: float, power: float, name: str = "NVIDIA H100 80GB HBM3") -> GpuLine:
    return GpuLine(index=0, name=name, utilisation=utilisation, power=power, memory_used=500.0, memory_total=80000.0)


def error(text: str, kind: str = "python-error", *, rank: int | None = None, fatal: bool = False, t: float = 5.0, offset: int = 0) -> Told:
    return Told(t, rank, LogLine(offset=offset, length=1, text=text, error=kind, fatal=fatal))


def milestone(phase: Phase, edge: Edge = Edge.BEGIN, *, rank: int | None = None, t: float = 1.0, ready: bool = False) -> Told:
    return Told(t, rank, LogLine(offset=0, length=1, text=f"{phase} {edge}", phase=phase, edge=edge, milestone="m", claims_ready=ready))
