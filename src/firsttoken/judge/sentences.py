"""What a blocked process waits for, in a sentence that a person believes."""

from collections.abc import Iterable

from firsttoken.judge.graph import Edge, Node
from firsttoken.model.stillness import WAIT_VERBS, WaitKind


def waits_for(last: Node, edge: Edge) -> str:
    """`rank 1 (pid 7) waits for the file lock /x, held by pid 9 (job, asleep) (in flock)`."""
    wait = edge.outside
    to = (
        f", held by pid {wait.to.pid} ({wait.to_title})"
        if wait is not None and wait.to is not None and edge.kind == WaitKind.FILE_LOCK
        else ""
    )
    nobody = ", which nobody holds any more: it was left behind" if edge.kind == WaitKind.FILE_LOCK else ", and nobody has its other end"
    nobody = nobody if wait is not None and wait.nobody else ""
    verb = WAIT_VERBS.get(WaitKind(edge.kind), "waits for")
    if not to and wait is not None and wait.to not in (None, wait.waiter):
        to = f", pid {wait.to.pid} ({wait.to_title})"
    return f"{last.label} {verb} {edge.what}{to}{nobody} (in {last.where})"


def as_well(told: Node, on: Edge, ends: Iterable[tuple[Node, Node, Edge | None]]) -> str:
    """What is said of other ranks that wait for the very same thing; empty where there are none."""
    same = [last for _, last, edge in ends if edge is not None and (edge.kind, edge.what) == (on.kind, on.what) and last.rank is not None]
    others = tuple(sorted({last.rank for last in same if last.rank is not None and last.process != told.process}))
    return f"; so {'does' if len(others) == 1 else 'do'} {list_ranks(others)}" if others else ""


def list_ranks(ranks: tuple[int, ...]) -> str:
    """`rank 1`, `ranks 0, 2`, `ranks 0 to 6`. Sorted ones are given."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 2 and ranks == tuple(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    return "ranks " + ", ".join(map(str, ranks))
