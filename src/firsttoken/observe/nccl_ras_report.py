"""What NCCL's monitor (RAS) answers, as JSON or as text, into who is behind. Never raises.

The monitor counts the operations that each rank of a communicator has launched, by kind. In a start that stands still the counts of all
ranks are equal but for those that never launched what the others wait in. Shapes: NCCL 2.30.7, `src/ras/client_support.cc`; older ones
know no JSON.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from firsttoken.model.collectives import Comparison, Disagreement, Discord

SOURCE = "nccl_ras"
_MOST_TOLD = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RasRank:
    """`rank` within its communicator. `counts`: operations launched, by kind; empty where nothing is known but that others miss it."""

    rank: int
    pid: int
    counts: Mapping[str, int] = field(default_factory=dict)
    silent: bool = False
    """the monitor has no answer from its process"""
    dead: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Communicator:
    name: str
    size: int
    ranks: tuple[RasRank, ...]


def read_report(text: str) -> tuple[Communicator, ...]:
    """From JSON, or from the text that older versions print; empty where it is neither."""
    if text.lstrip().startswith("{"):
        try:
            raw = json.loads(text)
        except (ValueError, RecursionError):
            return ()
        rows = raw.get("communicators") if isinstance(raw, dict) else None
        return tuple(_communicator(row) for row in rows if isinstance(row, dict)) if isinstance(rows, list) else ()
    return tuple(_from_text(text))


def compared(communicators: Iterable[Communicator], rank_of: Mapping[int, int], pids: Iterable[int], world: int) -> Comparison | None:
    """None where none of the communicators is of the run, whose processes are `pids`. `rank_of`: world ranks by pid, where they are known;
    in a communicator of all ranks its own numbers are the world's."""
    members = set(pids)
    found: list[Disagreement] = []
    heard: set[int] = set()
    for one in communicators:
        if not any(rank.pid in members for rank in one.ranks):
            continue
        world_of = {rank.rank: rank_of.get(rank.pid, rank.rank if one.size == world else None) for rank in one.ranks}
        heard |= {rank for rank in world_of.values() if rank is not None}
        found += _silent(one, world_of)
        found += _late(one, world_of)
    if not heard and not found:
        return None
    behind = {rank for one in found for rank in one.ranks}
    others = {rank for one in found for rank in one.others}
    return Comparison(
        source=SOURCE,
        ranks=tuple(sorted(heard)),
        behind=tuple(sorted(behind - others or behind)),
        disagreements=tuple(found[:_MOST_TOLD]),
    )


def _silent(one: Communicator, world_of: Mapping[int, int | None]) -> Iterator[Disagreement]:
    silent = [rank for rank in one.ranks if rank.silent or rank.dead]
    if silent:
        who = ", ".join(f"rank {_shown(rank, world_of)} (pid {rank.pid})" for rank in silent)
        how = "is dead to it" if all(rank.dead for rank in silent) else "does not answer it"
        ranks = tuple(sorted(told for rank in silent if (told := world_of[rank.rank]) is not None))
        yield Disagreement(kind=Discord.UNRESPONSIVE, group=one.name, seq=None, ranks=ranks, text=f"{who} {how}")


def _late(one: Communicator, world_of: Mapping[int, int | None]) -> Iterator[Disagreement]:
    for kind in sorted({kind for rank in one.ranks for kind in rank.counts}):
        counts = {rank.rank: rank.counts[kind] for rank in one.ranks if kind in rank.counts}
        most = max(counts.values())
        late = [rank for rank, count in counts.items() if count < most]
        if not late:
            continue
        ranks, others = (
            tuple(sorted(told for rank in counts if (counts[rank] < most) is behind and (told := world_of[rank]) is not None))
            for behind in (True, False)
        )
        shown = ", ".join(f"rank {world_of[rank] if world_of[rank] is not None else rank}: {counts[rank]}" for rank in sorted(late)[:8])
        text = f"in communicator {one.name} of {one.size} ranks {most} {kind} operations were launched, but by {shown}"
        yield Disagreement(kind=Discord.MISSING, group=one.name, seq=most, ranks=ranks, others=others, text=text)


def _shown(rank: RasRank, world_of: Mapping[int, int | None]) -> int:
    told = world_of[rank.rank]
    return rank.rank if told is None else told


def _communicator(raw: Mapping[str, Any]) -> Communicator:
    ranks: list[RasRank] = []
    for key in ("ranks", "missing_ranks"):
        rows = raw.get(key)
        for row in rows if isinstance(rows, list) else ():
            if not isinstance(row, dict) or not _is_count(row.get("rank")):
                continue
            status, counts = row.get("status"), row.get("collective_counts")
            status = status if isinstance(status, dict) else {}
            pid = row.get("pid")
            ranks.append(
                RasRank(
                    rank=row["rank"],
                    pid=pid if _is_count(pid) else -1,
                    counts={str(k): v for k, v in counts.items() if _is_count(v)} if isinstance(counts, dict) else {},
                    silent=status.get("unresponsive") is True,
                    dead=status.get("considered_dead") is True,
                )
            )
    size = raw.get("size")
    return Communicator(name=str(raw.get("hash", "?"))[:40], size=size if _is_count(size) else len(ranks), ranks=tuple(ranks))


def _is_count(told: Any) -> TypeGuard[int]:
    return isinstance(told, int) and not isinstance(told, bool) and 0 <= told < 1 << 63


_HEAD = re.compile(r"^#\S+ \((?P<name>[0-9a-f]+)\) (?P<what>MISMATCH|INCOMPLETE|ERROR)")
_KIND = re.compile(r"^  Communicator ranks have different (?P<kind>\w+) operation counts")
_MANY = re.compile(r"^  \d{1,7} ranks have (?:launched up to operation (?P<count>\d{1,18})|not launched any operations)")
_ONE = re.compile(
    r"^  Rank (?P<rank>\d{1,7})(?P<said> has (?:launched up to operation (?P<count>\d{1,18})|not launched any operations))?"
    r" -- GPU [^\n]{1,80}? managed by process (?P<pid>\d{1,9}) on node"
)


def _from_text(text: str) -> Iterator[Communicator]:
    """The verbose text lists ranks only where something differs: one communicator for each kind of operation."""
    name, what, kind, count = "?", "", "", 0
    most, ranks = 0, list[RasRank]()
    for line in (*text.splitlines(), "#end (0) ERROR"):
        head, starts = _HEAD.match(line), _KIND.match(line)
        if (head or starts) and ranks:
            usual = RasRank(rank=-1, pid=-1, counts={kind: most}) if what == "MISMATCH" else None
            yield Communicator(name=name, size=0, ranks=(*ranks, *((usual,) if usual is not None else ())))
        if head or starts:
            most, ranks, count = 0, [], 0
        if head:
            name, what, kind = head["name"], head["what"], ""
        elif starts:
            kind = starts["kind"]
        elif many := _MANY.match(line):
            count = int(many["count"] or 0)
            most = max(most, count)
        elif one := _ONE.match(line):
            own = int(one["count"] or 0) if one["said"] else count
            most = max(most, own)
            if what == "INCOMPLETE":
                ranks.append(RasRank(rank=int(one["rank"]), pid=int(one["pid"]), silent=True))
            elif what == "MISMATCH" and kind:
                ranks.append(RasRank(rank=int(one["rank"]), pid=int(one["pid"]), counts={kind: own}))
