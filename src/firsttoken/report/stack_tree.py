"""Stacks of all ranks as one tree: from how they began down to where they part. What they share is told once."""

from collections.abc import Sequence
from dataclasses import dataclass

from firsttoken.model.stillness import Frame
from firsttoken.report.picture import Group, Picture, who


@dataclass(frozen=True, slots=True)
class Branch:
    """`frames` that the same processes share, outermost first. At the end of a stack: `who` stands there, and what it `means`."""

    frames: tuple[str, ...]
    branches: tuple["Branch", ...] = ()
    who: str = ""
    means: str = ""


def tree(picture: Picture) -> tuple[Branch, ...]:
    """Of main threads only."""
    return _branches([(group, tuple(reversed(group.frames))) for group in picture.groups if group.main], 0)


def _branches(rows: Sequence[tuple[Group, tuple[Frame, ...]]], depth: int) -> tuple[Branch, ...]:
    below: dict[Frame | None, list[tuple[Group, tuple[Frame, ...]]]] = {}
    for group, frames in rows:
        below.setdefault(frames[depth] if depth < len(frames) else None, []).append((group, frames))
    return tuple(_branch(part, depth) for part in below.values())


def _branch(rows: Sequence[tuple[Group, tuple[Frame, ...]]], depth: int) -> Branch:
    """As far as all of them go together."""
    shared: list[Frame] = []
    while all(len(frames) > depth for _, frames in rows) and len({frames[depth] for _, frames in rows}) == 1:
        shared.append(rows[0][1][depth])
        depth += 1
    texts = tuple(f"{frame.function} ({frame.file}{f':{frame.line}' if frame.line else ''})" for frame in shared)
    if len(rows) == 1:
        group = rows[0][0]
        return Branch(texts, who=who(group), means=group.meaning or "")
    return Branch(texts, _branches(rows, depth))
