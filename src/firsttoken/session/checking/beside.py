"""The quick checks of a run, beside its start: made by a child of the observer, so that they delay neither the server nor the watching."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from firsttoken.model.events import Body, Checked, Missed
from firsttoken.session.checking.apart import CHILD, CheckFailed, check_apart

_PATIENCE = 10.0
_SPAWNED_WITHIN = 5.0


class ChecksBeside:
    """`argv` and `cwd` as they were launched: a server that runs may have given itself another title, over both. `keeper`: what the keeper
    says of itself, the server's pid among it."""

    def __init__(self, argv: Sequence[str], cwd: str, keeper: Callable[[], Mapping[str, Any]], *, child: Sequence[str] = CHILD) -> None:
        self._argv, self._cwd, self._keeper, self._child = tuple(argv), cwd, keeper, child

    async def __call__(self) -> Sequence[Body]:
        """What was found, or that it was not found in time; nothing where no server was ever spawned."""
        pid = await self._server()
        if pid is None:
            return ()
        try:
            report = await check_apart(
                self._argv, cwd=self._cwd, quick=True, without=(pid, os.getpid()), patience=_PATIENCE, child=self._child
            )
        except CheckFailed as error:  # a probe that fails says so and never stops the run
            return (Missed(request="checks", reason=str(error)),)
        return (Checked(checks=report.checks, seconds=round(report.seconds, 3)),)

    async def _server(self) -> int | None:
        """Once it is spawned."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _SPAWNED_WITHIN
        while loop.time() < until:
            keeper = self._keeper()
            server = keeper.get("server")
            if isinstance(server, dict) and isinstance(server.get("pid"), int):
                return int(server["pid"])
            if keeper.get("ended") is not None:
                return None
            await asyncio.sleep(0.05)
        return None
