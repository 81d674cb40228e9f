"""A foreground run: the server's output passes through, signals pass on, and the end is the server's own.

Before ready, a signal to us starts the stop ladder (engines swallow the first SIGTERM while they start). After ready it is forwarded one to
one and never escalated: engines drain. A closed terminal (SIGHUP) is treated as the server would have been: it ends it.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable
from dataclasses import dataclass

from firsttoken.model.exits import server_status
from firsttoken.model.words import Verdict
from firsttoken.session.follow import Follower, Seen
from firsttoken.session.link import KeeperGone, Link
from firsttoken.session.tend import stop

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_END_WITHIN = 120.0


@dataclass(slots=True)
class Foreground:
    """`until_ready`: leave at the first decision, with its code, and take the server along. `stop_on_hung`: end a server proven hung."""

    follower: Follower
    until_ready: bool = False
    stop_on_hung: bool = False
    said: Callable[[str], None] = lambda text: None
    _asked_to_end: int = 0

    async def run(self) -> tuple[Seen, int]:
        """What was seen last, and the exit status."""
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[None]] = set()

        def on_signal(number: signal.Signals) -> None:
            task = loop.create_task(self._pass_on(number))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        for number in PASSED_ON:
            loop.add_signal_handler(number, on_signal, number)
        try:
            if not self.until_ready:
                return self._ended(await self._to_the_end())
            seen = await self.follower.until_decided()
            code = seen.code if seen.code is not None else 1
            if seen.ended is None:
                await self._send({"stop": {"by": "run --until ready", "force": False}})
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_END_WITHIN):
                        await self.follower.resume_until_end()
            return seen, code
        finally:
            for number in PASSED_ON:
                loop.remove_signal_handler(number)

    async def _to_the_end(self) -> Seen:
        if not self.stop_on_hung:
            return await self.follower.until_end()
        seen = await self.follower.until_decided()
        if seen.ended is None and seen.result.verdict is Verdict.HUNG:
            self.said("the server is hung and is stopped (--on-hung stop)")
            await self._send({"stop": {"by": "--on-hung stop", "force": True}})
        return seen if seen.ended is not None else await self.follower.resume_until_end()

    def _ended(self, seen: Seen) -> tuple[Seen, int]:
        exit_ = seen.result.exit
        if exit_.code is None and exit_.signal is None:
            return seen, 1
        return seen, server_status(exit_.code, exit_.signal)

    async def _pass_on(self, number: signal.Signals) -> None:
        ready = self.follower.state.ready_at is not None
        if number not in _ENDING or ready:
            await self._send({"signal": int(number)})
            return
        self._asked_to_end += 1
        if self._asked_to_end == 1:
            self.said(f"{number.name}: stopping the server, which is still starting; once more to kill it")
        if not await self._send({"stop": {"by": f"signal {number.name}", "force": self._asked_to_end > 1}}):
            await stop(self.follower.folder, force=True, max_wait=_END_WITHIN)

    async def _send(self, message: dict[str, object]) -> bool:
        """On a link of its own, so that a decision or a slow log never delays a signal. False where no keeper takes it."""
        try:
            link = await Link.connect(self.follower.socket(), "control", events_from=None, log_from=None)
            await link.send(message)
            await link.close()
        except KeeperGone as error:
            self.said(f"the keeper did not take our message: {error}")
            return False
        return True
