"""One close look at a still run: the stacks of all its processes, then their places and what they wait for.

Stacks come first, since they tell what no place in the kernel does: which lock file a thread polls.
"""

import asyncio
from collections.abc import Collection, Iterable

from firsttoken.hosts.procfs import Procfs
from firsttoken.model.events import Places, Stacks
from firsttoken.model.process import ProcessKey
from firsttoken.observe.places import PlaceFinder
from firsttoken.observe.stacks import DEADLINE, StackTaker


class CloseLook:
    """One instance a run: it remembers what hangs, so that it is not asked again."""

    def __init__(self, procfs: Procfs, node: str, *, stacks: StackTaker | None = None) -> None:
        self._places = PlaceFinder(procfs, node)
        self._stacks = stacks or StackTaker(procfs=procfs)

    async def take(
        self, keys: Iterable[ProcessKey], round: int, *, in_run: Collection[ProcessKey] = (), deadline: float = DEADLINE
    ) -> list[Places | Stacks]:
        """For each process a `Places` (unless it is gone) and a `Stacks`, all of `round`. `in_run`: all members, by default `keys`.

        Always returns: within `deadline` seconds for every four processes, and some for places that hang.
        """
        order = tuple(dict.fromkeys(keys))
        stacks = await self._stacks.take(order, round, deadline)
        polled = dict(self._stacks.polled)
        places = await asyncio.to_thread(self._places.look, order, round, in_run=in_run, polled=polled)
        return [*places, *stacks]
