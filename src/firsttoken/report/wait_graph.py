"""Who waits for whom, laid out for drawing.

Ranks that wait alike are one node, and what is waited for stands to the right of who waits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firsttoken.model.result import Result
from firsttoken.report.live_text import ranks_text
from firsttoken.report.picture import Picture

_MOST_NODES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """`column`, `row` from 0. `blocker`: nothing inside the run can move it."""

    name: str
    detail: str = ""
    column: int = 0
    row: int = 0
    blocker: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """By the nodes' places in the list. `back`: against the columns, as in a cycle."""

    begin: int
    end: int
    text: str
    back: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """`left_out`: nodes for which there was no room."""

    nodes: tuple[Node, ...] = ()
    arrows: tuple[Arrow, ...] = ()
    left_out: int = 0


_Key = tuple[str, Any]
_Seen = tuple[int | None, int, str]
"""rank, pid and title of a process"""


def graph(result: Result, picture: Picture | None = None) -> Graph:
    """Empty where nothing is known to wait. `picture` tells of processes that have ended since."""
    seen = [(one.rank, one.process.pid, one.title) for one in picture.seen] if picture is not None else []
    seen += [(member.rank, int(member.process.get("pid") or 0), member.title) for member in result.members]
    told = [(_key(wait.get("from")), _target(wait), _said(wait)) for wait in (*result.waits, *result.cycle)]
    edges = list(dict.fromkeys((begin, end, text) for begin, end, text in told if begin is not None))
    alike = _merged(edges)
    names = _names(result, seen, edges, alike)
    edges = list(dict.fromkeys((alike.get(begin, begin), alike.get(end, end), text) for begin, end, text in edges))
    keys = list(dict.fromkeys(key for begin, end, _ in edges for key in (begin, end)))
    kept = keys[:_MOST_NODES]
    edges = [edge for edge in edges if edge[0] in kept and edge[1] in kept]
    columns = _columns(kept, edges)
    rows: dict[int, int] = {}
    nodes = []
    blocker = _blocker(result, seen)
    for key in kept:
        row = rows.get(columns[key], 0)
        rows[columns[key]] = row + 1
        name, detail = names[key]
        nodes.append(Node(name=name, detail=detail, column=columns[key], row=row, blocker=key == blocker or alike.get(blocker) == key))
    place = {key: number for number, key in enumerate(kept)}
    arrows = tuple(Arrow(begin=place[begin], end=place[end], text=text, back=columns[end] <= columns[begin]) for begin, end, text in edges)
    return Graph(nodes=tuple(nodes), arrows=arrows, left_out=len(keys) - len(kept))


def _key(end: object) -> _Key | None:
    if not isinstance(end, Mapping):
        return None
    if end.get("rank") is not None:
        return ("rank", end["rank"])
    return ("pid", end.get("pid"))


def _target(wait: Mapping[str, Any]) -> _Key:
    """Who is waited for; where nobody is named, what."""
    return _key(wait.get("to")) or ("what", str(wait.get("what")))


def _said(wait: Mapping[str, Any]) -> str:
    return str(wait.get("kind", "")).replace("_", " ")


def _merged(edges: list[tuple[_Key, _Key, str]]) -> dict[_Key, _Key]:
    """Ranks for which nobody waits and that wait for the same, by the first of them."""
    waited_for = {end for _, end, _ in edges}
    outgoing: dict[_Key, list[tuple[_Key, str]]] = {}
    for begin, end, text in edges:
        outgoing.setdefault(begin, []).append((end, text))
    first: dict[tuple[str, ...], _Key] = {}
    alone = {key: out for key, out in outgoing.items() if key[0] == "rank" and key not in waited_for}
    return {key: first.setdefault(tuple(sorted(map(str, out))), key) for key, out in alone.items()}


def _names(
    result: Result, seen: Sequence[_Seen], edges: list[tuple[_Key, _Key, str]], alike: Mapping[_Key, _Key]
) -> dict[_Key, tuple[str, str]]:
    titles: dict[object, str] = {pid: title for _, pid, title in seen}
    pids = {rank: pid for rank, pid, _ in seen if rank is not None}
    for wait in result.waits:
        end = wait.get("to")
        if isinstance(end, Mapping) and end.get("title"):
            titles.setdefault(end.get("pid"), str(end["title"]))
    where = {rank: group.where for group in result.ranks.groups for rank in group.ranks}
    names: dict[_Key, tuple[str, str]] = {}
    for key in dict.fromkeys(key for begin, end, _ in edges for key in (begin, end)):
        kind, value = key
        if kind == "rank":
            ranks = [other[1] for other, first in alike.items() if first == key] or [value]
            name = f"rank {value}" if len(ranks) == 1 else f"ranks {ranks_text(ranks)}"
            pid = pids.get(value)
            names[key] = (name, " · ".join(filter(None, (where.get(value), f"pid {pid}" if pid and len(ranks) == 1 else ""))))
        elif kind == "pid":
            names[key] = (f"pid {value}", titles.get(value, ""))
        else:
            names[key] = (str(value), "nobody is named who could end it")
    return names


def _columns(keys: list[_Key], edges: list[tuple[_Key, _Key, str]]) -> dict[_Key, int]:
    """The longest way that leads to each; a cycle is cut where it comes back to where it was."""
    columns = dict.fromkeys(keys, 0)
    for _ in range(len(keys)):
        moved = False
        for begin, end, _text in edges:
            if columns[end] <= columns[begin] and columns[begin] + 1 < len(keys):
                if _leads_to(end, begin, edges):
                    continue
                columns[end] = columns[begin] + 1
                moved = True
        if not moved:
            break
    return columns


def _leads_to(begin: _Key, end: _Key, edges: list[tuple[_Key, _Key, str]]) -> bool:
    """Whether `end` can be reached: then both are in a cycle, and neither is before the other."""
    seen, todo = {begin}, [begin]
    while todo:
        at = todo.pop()
        if at == end:
            return True
        fresh = [to for source, to, _ in edges if source == at and to not in seen]
        seen.update(fresh)
        todo += fresh
    return False


def _blocker(result: Result, seen: Sequence[_Seen]) -> _Key:
    """By rank where it has one."""
    process = (result.root_blocker or {}).get("process")
    pid = process.get("pid") if isinstance(process, Mapping) else None
    rank = next((rank for rank, known, _ in seen if rank is not None and known == pid), None)
    return ("rank", rank) if rank is not None else ("pid", pid)
