"""Named predicates for the ranks that a cause singles out: what a rule's `behind` may ask for. Pure."""

import re
from collections.abc import Callable

from firsttoken.explain.facts import Facts
from firsttoken.explain.nccl import communicator_init
from firsttoken.model.words import Edge, Phase

_LOCAL_RANK = re.compile(r"\[(?P<rank>\d{1,4})\] [^\n]*NCCL WARN")
_ADDRESS = re.compile(r"pid=\d+, ip=(?P<ip>[\d.]+)\)[^\n]*(?:loopback|connectFullMesh failed)")
_LINK_RANK = re.compile(r"\|\s*[\d.]+\((?P<rank>\d{1,6})\)\s*\|[^\n]*time ?out", re.IGNORECASE)


def singled_out(name: str, facts: Facts) -> tuple[int, ...] | None:
    """None where the predicate says nothing; empty where it says that nobody can be singled out. KeyError: a defect of the data."""
    return _PREDICATES[name](facts)


def _missing(facts: Facts) -> tuple[int, ...] | None:
    """Ranks of the world that no line, process or title ever showed: those of the other nodes."""
    return _other_nodes(facts) or None


def _other_nodes(facts: Facts) -> tuple[int, ...] | None:
    """All ranks of the nodes whose output this is not."""
    sizes = facts.reading.plan.sizes
    if sizes.nodes < 2 and not 0 < sizes.ranks_here < sizes.world:
        return None
    here = range(sizes.node_rank * sizes.ranks_here, (sizes.node_rank + 1) * sizes.ranks_here)
    return tuple(rank for rank in range(sizes.world) if rank not in here)


def _not_loaded(facts: Facts) -> tuple[int, ...] | None:
    done = {
        one.rank for one in facts.reading.told if one.line.phase is Phase.WEIGHTS and one.line.edge is Edge.END and one.rank is not None
    }
    world = facts.reading.plan.sizes.world
    return tuple(rank for rank in range(world) if rank not in done) if done and len(done) < world else None


def _nobody(_: Facts) -> tuple[int, ...]:
    return ()


def _unfinished(facts: Facts) -> tuple[int, ...] | None:
    """The rank that a link table names as not answering, else those whose communicator is not complete while others' is."""
    named = sorted({int(match["rank"]) for match in _LINK_RANK.finditer(facts.reading.log)})
    if named:
        return tuple(named)
    init = communicator_init(facts.reading.log)
    return init.unfinished if init.state == "some" else None


def _loopback(facts: Facts) -> tuple[int, ...] | None:
    """With Ray: the ranks of the other node, whose workers fell back to the loopback."""
    if len({match["ip"] for match in _ADDRESS.finditer(facts.reading.log)}) == 1:
        return _other_nodes(facts)
    return None


def _first_line(facts: Facts) -> tuple[int, ...] | None:
    """The rank of the first warning of the collective library."""
    match = _LOCAL_RANK.search(facts.reading.log)
    return (int(match["rank"]),) if match is not None else None


def _lock_waiters(facts: Facts) -> tuple[int, ...] | None:
    """Ranks that sleep and retry, where others spin: those are what the others wait for."""
    ranked = [seen for seen in facts.ranks if seen.rank is not None]
    waiting = [s for s in ranked if s.sign == "lock" or (s.process is not None and "nanosleep" in (s.process.wchan or ""))]
    return tuple(sorted(s.rank for s in waiting if s.rank is not None)) if 0 < len(waiting) < len(ranked) else None


def _stopped(facts: Facts) -> tuple[int, ...] | None:
    stopped = [s.rank for s in facts.ranks if s.process is not None and s.process.state[:1] in ("T", "t") and s.rank is not None]
    return tuple(sorted(stopped)) or None


def _at_work(facts: Facts) -> tuple[int, ...] | None:
    """The rank that did not time out, of those that the log shows: it was at work while the others waited."""
    timed_out = {one.rank for one in facts.reading.told if one.line.error == "collective-timeout" and one.rank is not None}
    shown = {one.rank for one in facts.reading.told if one.rank is not None} | set(facts.reading.rank_of.values())
    working = sorted(shown - timed_out)
    return (working[0],) if timed_out and working and working[0] == 0 else None


def _without_card(facts: Facts) -> tuple[int, ...] | None:
    """The ranks that have no device of their number, where others have."""
    named = {one.rank for one in facts.reading.told if one.line.error is not None and "invalid device ordinal" in one.line.text}
    ranks = sorted(rank for rank in named if rank is not None)
    return tuple(ranks) if 0 < len(ranks) < facts.reading.plan.sizes.world else None


def _never_born(facts: Facts) -> tuple[int, ...] | None:
    """The first child of a driver that is rank 0 itself."""
    return (1,) if facts.reading.plan.sizes.world == 2 else None


_PREDICATES: dict[str, Callable[[Facts], tuple[int, ...] | None]] = {
    "missing": _missing,
    "other_nodes": _other_nodes,
    "not_loaded": _not_loaded,
    "nobody": _nobody,
    "unfinished": _unfinished,
    "loopback": _loopback,
    "first_line": _first_line,
    "lock_waiters": _lock_waiters,
    "stopped": _stopped,
    "at_work": _at_work,
    "never_born": _never_born,
    "without_card": _without_card,
}
PREDICATES = frozenset(_PREDICATES)
