"""World ranks from what prefixes and titles say: engines tag with TP, PP and DP ranks, a world rank is counted from them."""

import math
from collections.abc import Mapping

from firsttoken.model.events import LogLine
from firsttoken.model.plan import Sizes
from firsttoken.model.process import Member, RankTag


def world_rank(tag: RankTag | None, sizes: Sizes) -> int | None:
    """None where the tag names no rank. Data parallel ranks count only where they are ranks of their own (attention DP shares TP's)."""
    if tag is None:
        return None
    if tag.rank is not None:
        return tag.rank
    if tag.tp is None and tag.pp is None:
        if tag.dp is not None and sizes.tp * sizes.pp == 1:
            return tag.dp
        return tag.ep
    rank = (tag.pp or 0) * sizes.tp + (tag.tp or 0)
    if tag.dp is not None and sizes.world > sizes.tp * sizes.pp:
        rank += tag.dp * sizes.tp * sizes.pp
    return rank


def line_rank(line: LogLine, members: Mapping[int, Member], sizes: Sizes) -> int | None:
    """From the line's tag, from a rank that the message itself names, or from the title of the process that wrote it."""
    rank = world_rank(line.tag, sizes)
    if rank is not None:
        return rank
    told = line.values.get("rank")
    if isinstance(told, int | float) and math.isfinite(told):
        return int(told)
    if line.tag is not None and line.tag.pid is not None:
        member = members.get(line.tag.pid)
        if member is not None:
            return world_rank(member.tag, sizes)
    return None


def left_over(members: Mapping[int, Member], sizes: Sizes, told: Mapping[int, int]) -> dict[int, int]:
    """World ranks by pid of those that have not told theirs, by elimination.

    Only where as many processes of one role are there as there are ranks, and some of them told theirs: engines start their workers in the
    order of their ranks, and one that blocks early has often said nothing yet.
    """
    known = {pid: rank for pid, member in members.items() if (rank := _first(world_rank(member.tag, sizes), told.get(pid))) is not None}
    for name in {tag.name for pid in known if (tag := members[pid].tag) is not None and tag.name is not None}:
        peers = [member for member in members.values() if member.tag is not None and member.tag.name == name]
        if len(peers) != sizes.world:
            continue
        silent = sorted((m.process.start, m.process.pid) for m in peers if m.process.pid not in known)
        ranks = [rank for rank in range(sizes.world) if rank not in known.values()]
        if len(silent) == len(ranks):
            return {pid: rank for (_, pid), rank in zip(silent, ranks, strict=True)}
    return {}


def _first(titled: int | None, told: int | None) -> int | None:
    return titled if titled is not None else told
