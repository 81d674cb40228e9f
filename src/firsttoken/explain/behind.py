"""The ranks behind: singled out by the strongest sign there is, and nobody where all are alike. Pure."""

import re

from firsttoken.explain.deaths import root_error
from firsttoken.explain.facts import Facts
from firsttoken.model.events import LogLine
from firsttoken.model.reading import Told
from firsttoken.model.words import Edge, Verdict


def behind(facts: Facts, verdict: Verdict) -> tuple[int, ...]:
    """Ranks that are singled out by the strongest sign there is; empty where all are alike."""
    match verdict:
        case Verdict.READY:
            return ()
        case Verdict.FAILED | Verdict.CRASHED:
            return _first_dead(facts)
        case _:
            found = _stopped(facts) or _recorded(facts) or _compiling(facts) or late(facts)
            return found or _unended(facts, verdict) or _unsaid(facts, verdict) or _odd(facts)


def _stopped(facts: Facts) -> tuple[int, ...]:
    return tuple(sorted(s.rank for s in facts.ranks if s.rank is not None and s.process is not None and s.process.state[:1] in ("T", "t")))


def _recorded(facts: Facts) -> tuple[int, ...]:
    """By torch's flight recorder."""
    told, world = facts.attached.flight_recorder, facts.reading.plan.sizes.world
    if told is None or (world > 1 and any(rank >= world for rank in told.behind)):
        return ()
    return told.behind


def _compiling(facts: Facts) -> tuple[int, ...]:
    ranks = sorted(seen.rank for seen in facts.ranks if seen.compiling and seen.rank is not None)
    if not ranks and facts["stack_lock"]:
        ranks = sorted(seen.rank for seen in facts.ranks if seen.sign == "compile" and seen.rank is not None)
    return tuple(ranks) if len(ranks) < len(facts.ranks) else ()


def late(facts: Facts) -> tuple[int, ...]:
    """By the log: ranks in an earlier phase than the furthest; and ranks that never said a word, where some are still missing."""
    reading = facts.reading
    order = {phase: number for number, phase in enumerate(reading.plan.phases)}
    placed = {rank: order.get(phase, 0) for rank, phase in reading.places.items()}
    if not placed:
        return ()
    furthest = max(placed.values())
    return tuple(sorted(rank for rank, place in placed.items() if place < furthest))


def _unended(facts: Facts, verdict: Verdict) -> tuple[int, ...]:
    """By the log: ranks that began the phase all are in and have not told its end, where others have (and wait in it for them)."""
    reading = facts.reading
    if verdict is Verdict.STARTING or _FOLDED.search(reading.log):
        return ()
    own = [one for one in reading.told if one.rank is not None and one.line.scope == "rank" and one.line.phase is reading.phase]
    ended = {one.rank for one in own if one.line.edge is Edge.END}
    begun = {one.rank for one in own if one.line.edge is Edge.BEGIN}
    return tuple(sorted(rank for rank in begun - ended if rank is not None)) if ended else ()


def _unsaid(facts: Facts, verdict: Verdict) -> tuple[int, ...]:
    """By the log of a start that stands still: the fewer ranks that began the phase and have not said in it what most others have."""
    reading = facts.reading
    if verdict not in (Verdict.STALLED, Verdict.HUNG) or _FOLDED.search(reading.log):
        return ()
    said: dict[str, set[int]] = {}
    for one in reading.told:
        if one.rank is not None and one.line.scope == "rank" and one.line.phase is reading.phase:
            said.setdefault(_shape(one.line.text), set()).add(one.rank)
    everybody = set().union(*said.values())
    most = [ranks for ranks in said.values() if len(everybody) / 2 < len(ranks) < len(everybody) and len(ranks) > 1]
    return tuple(sorted(everybody - set().union(*most))) if most else ()


def _odd(facts: Facts) -> tuple[int, ...]:
    """By processes and stacks: the ranks, fewer than half or half, that do something else than the others, which wait for them."""
    ranked = [seen for seen in facts.ranks if seen.rank is not None]
    if len(ranked) < 2:
        return ()
    sleeping = [
        seen
        for seen in ranked
        if seen.sign in ("sleep", "lock") or (seen.process is not None and "nanosleep" in (seen.process.wchan or ""))
    ]
    if sleeping and len(sleeping) < len(ranked):
        return tuple(sorted(seen.rank for seen in sleeping if seen.rank is not None))
    at_work = [seen for seen in ranked if seen.sign in _WORK]
    waiting = [seen for seen in ranked if seen.sign in ("collective", "comm_init", "device")]
    if at_work and len(at_work) <= len(waiting) and len(at_work) + len(waiting) == len(ranked):
        return tuple(sorted(seen.rank for seen in at_work if seen.rank is not None))
    busy = [seen for seen in ranked if seen.process is not None and (seen.process.cpu or 0) >= 90.0]
    calm = [seen for seen in ranked if seen.process is not None and (seen.process.cpu or 0) < 5.0]
    if busy and calm and len(busy) + len(calm) == len(ranked):
        return tuple(sorted(seen.rank for seen in busy if seen.rank is not None))
    return ()


def _first_dead(facts: Facts) -> tuple[int, ...]:
    """The rank whose own error came first, where it is one rank's; none where several have the same."""
    errors = [one for one in facts.reading.told if one.line.error is not None]
    if not errors:
        return ()
    named = next((one for one in errors if isinstance(one.line.values.get("rank"), int | float) and _own_death(one.line, facts)), None)
    if named is not None:
        before = errors[: errors.index(named)]
        if named.line.values.get("signal") == _ABORT and any(_WAITED_IN_VAIN.search(one.line.text) for one in before):
            # its own watchdog ended it: it waited for others
            return ()
        return (int(named.line.values["rank"]),)
    left = _without_fallout(facts)
    if left is not None:
        return (left,)
    root = root_error(facts)
    if root is None or root.rank is None or facts.reading.plan.sizes.world < 2 or root.line.values.get("signal") in _OUTSIDE:
        return ()
    at = errors.index(root)
    if any(_WAITED_IN_VAIN.search(one.line.text) for one in errors[at : at + 3]):
        # who times out waiting for others is not the one that is behind
        return _not_waiting(facts, errors)
    alike = {one.rank for one in errors if one.line.error == root.line.error and _shape(one.line.text) == _shape(root.line.text)}
    return (root.rank,) if alike == {root.rank} else ()


def _not_waiting(facts: Facts, errors: list[Told]) -> tuple[int, ...]:
    """The few ranks that spoke before and are not among those whose waiting timed out, which are most of them."""
    vain = [_WAITED_IN_VAIN.search(one.line.text) is not None for one in errors]
    waited = {one.rank for number, one in enumerate(errors) if any(vain[number : number + 2])} - {None}
    spoke = {one.rank for one in facts.reading.told if one.rank is not None and one.line.scope == "rank"}
    rest = spoke - waited
    return tuple(sorted(rest)) if len(waited) >= 3 and 0 < len(rest) * 3 <= len(waited) else ()


def _own_death(line: LogLine, facts: Facts) -> bool:
    """The line tells how its rank ended, of itself."""
    signal = line.values.get("signal")
    return "code" in line.values or (facts.reading.plan.sizes.world > 1 and signal is not None and signal not in _OUTSIDE)


_WORK = ("compile", "read", "import")
_ABORT = 6
_OUTSIDE = (9, 15)
"""signals from outside: the kernel's memory killer takes any of the ranks"""
_FOLDED = re.compile(r"\[repeated \d+x across cluster\]")
"""Ray prints one line for many workers"""
_WAITED_IN_VAIN = re.compile(r"(?i)timed out|times out|time-?out|failed to pass")
_LOST_PEER = re.compile(r"\[rank(?P<rank>\d{1,6})\]:[^\n]*(?:Broken pipe|Connection reset|[Cc]onnection closed|recvBytes failed)")


def _without_fallout(facts: Facts) -> int | None:
    """The one rank that does not complain of a broken connection, where all others of the world do."""
    world = facts.reading.plan.sizes.world
    lost = {int(match["rank"]) for match in _LOST_PEER.finditer(facts.reading.log)}
    left = set(range(world)) - lost
    return left.pop() if len(lost) >= 2 and len(left) == 1 else None


def _shape(text: str) -> str:
    return "".join(char for char in text if not char.isdigit())[:120]
