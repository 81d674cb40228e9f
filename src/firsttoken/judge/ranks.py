"""World ranks from what prefixes and titles say: engines tag with TP, PP and DP ranks, a world rank is counted from them."""

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
    if isinstance(told, int | float):
        return int(told)
    if line.tag is not None and line.tag.pid is not None:
        member = members.get(line.tag.pid)
        if member is not None:
            return world_rank(member.tag, sizes)
    return None
