"""One look at all processes of a server, for people and as a document: equal stacks merged, and what each process waits for.

Frames are told innermost first: where a thread stands, then who called it. Of a group the first process's own lines are shown; in the
innermost frame, ranks that poll may stand on different ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from firsttoken.model.process import ProcessKey
from firsttoken.model.stillness import WAIT_VERBS, Frame, Wait, WaitKind
from firsttoken.report.document import document

_FRAMES = 14
"""of one stack, for people; the document has all"""
_VERBS = {
    **WAIT_VERBS,
    WaitKind.STOPPED: "is",
    WaitKind.TRACED: "is stopped and waits for",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A process that was looked at. `label` names it in a sentence: `rank 3 (pid 123)`. `state` of its main thread as in /proc.
    `error`: why it has no stack."""

    process: ProcessKey
    title: str
    label: str
    rank: int | None = None
    state: str = "?"
    waits: tuple[Wait, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Threads with one normalised stack. `ranks` are those of `pids` that have one. `thread`: its name where all have the same.
    `meaning` ends the sentence "each …", from the frame signature `sign` found in the function `where`."""

    pids: tuple[int, ...]
    labels: tuple[str, ...]
    ranks: tuple[int, ...]
    frames: tuple[Frame, ...]
    thread: str | None = None
    main: bool = True
    sign: str | None = None
    doing: str | None = None
    meaning: str | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """`of`: the run or the process tree, in words; `run` its name where it is one."""

    of: str
    run: str | None = None
    seen: tuple[Seen, ...] = ()
    groups: tuple[Group, ...] = ()


def picture_document(picture: Picture) -> dict[str, Any]:
    """Kind `stacks`."""
    return document(
        "stacks",
        run=picture.run,
        processes=[
            {"process": one.process._asdict(), "title": one.title, "rank": one.rank, "state": one.state, "error": one.error}
            for one in picture.seen
        ],
        groups=[
            {
                "ranks": list(group.ranks),
                "pids": list(group.pids),
                "thread": group.thread,
                "main": group.main,
                "sign": group.sign,
                "doing": group.doing,
                "meaning": group.meaning,
                "where": group.where,
                "frames": [frame._asdict() for frame in group.frames],
            }
            for group in picture.groups
        ],
        waits=[_wait(one, wait) for one in picture.seen for wait in one.waits],
    )


def picture_text(picture: Picture) -> str:
    return "\n".join(_lines(picture))


def wait_line(one: Seen, wait: Wait) -> str:
    """`rank 3 (pid 123) waits for the file lock X held by pid 7 (title)`"""
    verb = _VERBS.get(wait.kind, "waits for")
    if wait.to is not None and wait.to.pid == one.process.pid:
        whom = ", which only its own other threads can end"
    elif wait.to is not None:
        holds = " held by" if wait.kind is WaitKind.FILE_LOCK else ", at whose other end is" if wait.kind is not WaitKind.CHILD else ","
        whom = f"{holds} pid {wait.to.pid} ({(wait.to_title or 'no title')[:100]})"
    elif wait.nobody:
        whom = ", and nobody has its other end"
    else:
        whom = "" if wait.observable else ", whose other end cannot be seen from here"
    again = f" (looks again every {wait.timeout_s:g} s)" if wait.timeout_s else ""
    return f"{one.label} {verb} {wait.what}{whom}{again}"


def _lines(picture: Picture) -> Iterator[str]:
    count = len(picture.seen)
    yield f"{picture.of}: {count} process{'es' if count != 1 else ''}; frames innermost first"
    for group in picture.groups:
        yield ""
        said = f"each {group.meaning}" if len(group.pids) > 1 else group.meaning
        thread = "" if group.main else f", thread {group.thread}" if group.thread else ", another thread"
        yield f"{who(group)}{thread}: {said or 'no known signature fits'}" + (f" [{group.where}]" if group.where else "")
        for frame in group.frames[:_FRAMES]:
            yield f"    {frame.function} ({frame.file}{f':{frame.line}' if frame.line else ''})"
        if len(group.frames) > _FRAMES:
            yield f"    … {len(group.frames) - _FRAMES} more"
    waits = [wait_line(one, wait) for one in picture.seen for wait in one.waits]
    if waits:
        yield from ("", *waits)
    running = [one.label for one in picture.seen if one.state == "R"]
    if running:
        yield from ("", f"running: {', '.join(running)}")
    unread = [one for one in picture.seen if one.error is not None]
    if unread:
        yield from ("", "no Python stack of:")
        yield from (f"  {one.label} [{one.state}] {one.title[:80]}: {one.error}" for one in unread)


def who(group: Group) -> str:
    if len(group.ranks) == len(group.pids) > 1:
        ranks = group.ranks
        span = len(ranks) > 2 and ranks == tuple(range(ranks[0], ranks[-1] + 1))
        told = f"{ranks[0]} to {ranks[-1]}" if span else ", ".join(map(str, ranks))
        return f"ranks {told} (pids {', '.join(map(str, group.pids))})"
    return ", ".join(group.labels)


def _wait(one: Seen, wait: Wait) -> dict[str, Any]:
    waiter = {"rank": one.rank, "pid": one.process.pid} if one.rank is not None else {"pid": one.process.pid}
    fields: dict[str, Any] = msgspec.to_builtins(wait)
    to = None if wait.to is None else {"pid": wait.to.pid, "title": wait.to_title}
    kept = {name: fields[name] for name in ("kind", "what", "tid", "in_run", "observable", "nobody", "timeout_s")}
    return {"from": waiter, **kept, "to": to, "text": wait_line(one, wait)}
