"""The quick checks of a run, beside its start: in a thread of the observer, so that they delay neither the server nor the watching."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from firsttoken.hosts.procfs import Procfs
from firsttoken.model.events import Body, Checked, Missed
from firsttoken.plan.world import World

_PATIENCE = 10.0
_SPAWNED_WITHIN = 5.0


class ChecksBeside:
    """`argv` and `world` as they were launched: a server that runs may have given itself another title, over both. `keeper`: what the
    keeper says of itself, the server's pid among it."""

    def __init__(self, argv: Sequence[str], world: World, keeper: Callable[[], Mapping[str, Any]], procfs: Procfs | None = None) -> None:
        self._argv, self._world, self._keeper = tuple(argv), world, keeper
        self._procfs = procfs or Procfs()

    async def __call__(self) -> Sequence[Body]:
        """What was found, or that it was not found in time; nothing where no server was ever spawned."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        found: list[Body] = []

        def work() -> None:
            try:
                found.extend(self._look())
            except Exception as error:  # a probe that fails says so and never stops the run
                found.append(Missed(request="checks", reason=f"{type(error).__name__}: {error}"))
            if not loop.is_closed():
                loop.call_soon_threadsafe(done.set)

        threading.Thread(target=work, daemon=True).start()
        try:
            async with asyncio.timeout(_SPAWNED_WITHIN + 2 * _PATIENCE):
                await done.wait()
        except TimeoutError:
            return (Missed(request="checks", reason=f"no answer within {2 * _PATIENCE:.0f} s"),)
        return found

    def _look(self) -> Sequence[Body]:
        from firsttoken.session.checking.check import Wanted, check  # loaded here: the observer itself is not to wait for it

        pid = self._server()
        if pid is None:
            return ()

        def family() -> frozenset[int]:
            return frozenset({pid, os.getpid(), *self._procfs.family([pid])})

        wanted = Wanted(quick=True, without=family, procfs=self._procfs, patience=_PATIENCE)
        report = check(self._argv, wanted, world=self._world)
        return (Checked(checks=report.checks, seconds=round(report.seconds, 3)),)

    def _server(self) -> int | None:
        """Once it is spawned."""
        until = time.monotonic() + _SPAWNED_WITHIN
        while time.monotonic() < until:
            keeper = self._keeper()
            server = keeper.get("server")
            if isinstance(server, dict) and isinstance(server.get("pid"), int):
                return int(server["pid"])
            if keeper.get("ended") is not None:
                return None
            time.sleep(0.05)
        return None
