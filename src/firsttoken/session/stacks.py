"""The stacks of all processes of a run, or of any process tree, taken once and merged.

It works beside whoever follows the run, on servers that firsttoken did not start, and stops nobody. What is told is what was seen: no
verdict follows from one look.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from firsttoken.history.runs import RunFolder
from firsttoken.hosts.procfs import Procfs
from firsttoken.judge import graph
from firsttoken.judge.closeup import Look, main_waits
from firsttoken.judge.ranks import world_rank
from firsttoken.knowledge.stacks import signature
from firsttoken.model.events import Body, Places, Stacks
from firsttoken.model.frames import group
from firsttoken.model.plan import Sizes
from firsttoken.model.process import Member, ProcessKey
from firsttoken.model.redact import mask_argv
from firsttoken.model.stillness import ThreadStack
from firsttoken.observe.closeup import CloseLook
from firsttoken.observe.native import NativeTaker
from firsttoken.observe.processes import ProcessWatcher
from firsttoken.report.picture import Group, Picture, Seen
from firsttoken.session.replay import replay

MOST = 256
"""processes, at most"""


class NothingToSee(Exception):
    """There is no process to look at; the text says why and what to do."""


async def run_stacks(folder: RunFolder, *, all_threads: bool = False, native: bool = False, procfs: Procfs | None = None) -> Picture:
    """Of a run's processes, as its events name them. NothingToSee where none of them lives here. `native`: with native frames, for which
    each process is stopped for about a second; never of a server that serves.
    """
    procfs = procfs or Procfs()
    state = replay(folder.events()).state
    members = [m for m in state.members.values() if m.process.node == state.node and procfs.alive(m.process.pid, m.process.start)]
    if not members or state.node != os.uname().nodename:
        where = f" on {state.node}" if state.node and state.node != os.uname().nodename else ""
        ended = "has ended" if state.emptied else f"has no process{where} that can be seen from here"
        raise NothingToSee(f"{folder.name} {ended}; `firsttoken explain {folder.name}` reads what was recorded")
    if native and state.ready_at is not None:
        raise NothingToSee(f"{folder.name} serves, and native frames would stop it for seconds; without --native nothing is stopped")
    sizes = state.plan.sizes
    titled = {m.process.pid: world_rank(m.tag, sizes) for m in members}
    ranks = {pid: rank if rank is not None else state.told_ranks.get(pid) for pid, rank in titled.items()}
    root = state.root.pid if state.root is not None else None
    return await _look(
        members, ranks, root, of=f"run {folder.name}", run=folder.name, all_threads=all_threads, native=native, procfs=procfs
    )


async def tree_stacks(
    pid: int,
    patterns: Sequence[re.Pattern[str]],
    sizes: Sizes,
    *,
    all_threads: bool = False,
    native: bool = False,
    procfs: Procfs | None = None,
) -> Picture:
    """Of a process and all that descends from it. `patterns` read ranks from titles. NothingToSee where `pid` is no process."""
    procfs = procfs or Procfs()
    node = os.uname().nodename
    key = procfs.key(node, pid)
    if key is None:
        raise NothingToSee(f"there is no process {pid} here; `firsttoken status` lists runs, `ps -ef` processes")
    watcher = ProcessWatcher(procfs, node, patterns, mask=mask_argv)
    watcher.exclude = {os.getpid()}
    watcher.scan([key])
    members = list(watcher.members)
    if not members:
        raise NothingToSee(f"process {pid} has ended")
    ranks = {m.process.pid: world_rank(m.tag, sizes) for m in members}
    return await _look(members, ranks, pid, of=f"process {pid}", run=None, all_threads=all_threads, native=native, procfs=procfs)


async def _look(
    members: Sequence[Member],
    ranks: Mapping[int, int | None],
    root: int | None,
    *,
    of: str,
    run: str | None,
    all_threads: bool,
    native: bool,
    procfs: Procfs,
) -> Picture:
    keys = [m.process for m in members]
    told = list(await CloseLook(procfs, os.uname().nodename).take(keys[:MOST], 1, in_run=keys))
    taker = NativeTaker(procfs=procfs)
    for number, body in enumerate(told):  # one after the other: they wait for each other anyway
        if native and isinstance(body, Stacks) and body.threads:
            found = await taker.take(body.process, 1)
            told[number] = found if found.threads else replace(body, error=found.error)
    return picture_of(members, ranks, root, told, of=of, run=run, all_threads=all_threads)


def picture_of(
    members: Sequence[Member],
    ranks: Mapping[int, int | None],
    root: int | None,
    told: Iterable[Body],
    *,
    of: str,
    run: str | None,
    all_threads: bool = False,
) -> Picture:
    """Of what one look at all `members` told, now or in a record. `ranks` by pid."""
    told = tuple(told)
    places = {body.process: body for body in told if isinstance(body, Places)}
    stacks = {body.process: body for body in told if isinstance(body, Stacks)}
    seen = [_seen(m, ranks[m.process.pid], root, places.get(m.process), stacks.get(m.process)) for m in members if m.process in stacks]
    seen.sort(key=lambda one: (one.rank is None, one.rank or 0, one.process.pid))
    return Picture(of=of, run=run, seen=tuple(seen), groups=_groups(seen, stacks, all_threads))


def _seen(member: Member, rank: int | None, root: int | None, places: Places | None, stacks: Stacks | None) -> Seen:
    look = Look(round=1, at=0.0, places=places, stacks=stacks)
    n = graph.node(member, rank, look, root)
    telling = n.wait if n.state != "R" else None
    waits = tuple(wait for wait in main_waits(look) if telling is not None and wait.kind == telling.kind)
    return Seen(
        process=member.process,
        title=member.title,
        label=n.label,
        rank=rank,
        state=n.state,
        waits=waits,
        error=stacks.error if stacks is not None else None,
    )


def _groups(seen: Iterable[Seen], stacks: Mapping[ProcessKey, Stacks], all_threads: bool) -> tuple[Group, ...]:
    """Main threads first, then the others; in both the largest group first."""
    rows = [(one, thread) for one in seen for thread in stacks[one.process].threads if thread.frames]
    found = _merged([row for row in rows if row[1].main])
    return (*found, *(_merged([row for row in rows if not row[1].main]) if all_threads else ()))


def _merged(rows: Sequence[tuple[Seen, ThreadStack]]) -> tuple[Group, ...]:
    return tuple(_group([rows[i] for i in places]) for places, _ in group({i: thread.frames for i, (_, thread) in enumerate(rows)}))


def _group(rows: Sequence[tuple[Seen, ThreadStack]]) -> Group:
    first = rows[0][1]
    names = {thread.name for _, thread in rows}
    known = signature(first.sign) if first.sign is not None else None
    return Group(
        pids=tuple(one.process.pid for one, _ in rows),
        labels=tuple(one.label for one, _ in rows),
        ranks=tuple(one.rank for one, _ in rows if one.rank is not None),
        frames=first.frames,
        thread=first.name if len(names) == 1 else None,
        main=first.main,
        sign=first.sign,
        doing=first.doing,
        meaning=known.meaning if known is not None else None,
        where=first.where,
    )
