"""A foreground run: the server's output passes through, signals pass on, and the end is the server's own.

Before ready, a signal to us starts the stop ladder (engines swallow the first SIGTERM while they start). After ready it is forwarded one to
one and never escalated: engines drain; what such a server leaves behind when it has ended is ended too. A closed terminal (SIGHUP) is
treated as the server would have been: it ends it. What we were told to ignore (`nohup`), we ignore.
"""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType

from firsttoken.model.events import Event, Exited, Missed
from firsttoken.model.exits import TIMED_OUT, UNKNOWN, server_status
from firsttoken.model.words import Verdict
from firsttoken.session.far_files import FAR
from firsttoken.session.follow import Follower, Seen
from firsttoken.session.link import KeeperGone, Link
from firsttoken.session.tend import signal_server, stop

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_END_WITHIN = 120.0
_LEFT_AFTER = 20.0
"""seconds after which a server that SIGKILL does not end is left to its keeper: it waits in the kernel, for a dead mount or a driver"""


@contextmanager
def held_signals() -> Iterator[list[signal.Signals]]:
    """Signals that come during a launch end nobody: they are kept in the list, for whoever takes over the server.

    Without this, a Ctrl-C between the server's start and our event loop would end us and leave the server.
    """
    held: list[signal.Signals] = []

    def keep(number: int, _: FrameType | None) -> None:
        held.append(signal.Signals(number))

    before = {number: signal.getsignal(number) for number in PASSED_ON}
    handled = [number for number, action in before.items() if action is not signal.SIG_IGN]
    for number in handled:
        signal.signal(number, keep)
    try:
        yield held
    finally:
        for number in handled:
            if signal.getsignal(number) is keep:
                signal.signal(number, before[number])


@dataclass(slots=True)
class Foreground:
    """`until_ready`: leave at the first decision (or after `max_wait` seconds), with its code, and take the server along.
    `stop_on_hung`: end a server proven hung. `held`: signals that came before `run` was called.
    """

    follower: Follower
    until_ready: bool = False
    max_wait: float | None = None
    stop_on_hung: bool = False
    said: Callable[[str], None] = lambda text: None
    held: list[signal.Signals] = field(default_factory=list)
    _asked_to_end: int = 0
    _ended_by: signal.Signals | None = None
    """the signal to us that began the stop of a server that was starting"""
    _forwarded_end: str | None = None
    _cannot_end: bool = False
    _root_ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> tuple[Seen, int]:
        """What was seen last, and the exit status."""
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[None]] = set()

        def on_signal(number: signal.Signals) -> None:
            task = loop.create_task(self._pass_on(number))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        handled = [number for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
        for number in handled:
            loop.add_signal_handler(number, on_signal, number)
        for number in self.held:
            on_signal(number)
        self.follower.on_event = self._watch_end(self.follower.on_event)
        sweeping = loop.create_task(self._end_leftovers())
        try:
            return await (self._to_the_decision() if self.until_ready else self._to_the_end())
        finally:
            for task in (sweeping, *tasks):
                task.cancel()
            await asyncio.gather(sweeping, *tasks, return_exceptions=True)
            for number in handled:
                loop.remove_signal_handler(number)
            await self.follower.leave()

    async def _to_the_decision(self) -> tuple[Seen, int]:
        seen = await self.follower.until_decided(max_wait=self.max_wait)
        if seen.ended is None:
            await self._send({"stop": {"by": "run --until ready", "force": False}})
            end = await self.follower.until_end(max_wait=_END_WITHIN)
            if end.ended is None and not self._cannot_end:
                self.said(f"the server is still ending; `firsttoken stop --force {self.follower.folder.name}` cuts that short")
            else:  # what was seen stays, but nothing is left to stop or to wait for
                seen = replace(seen, result=replace(seen.result, next=end.result.next))
        if self._ended_by is not None and seen.result.verdict is Verdict.UNKNOWN:
            return seen, 128 + self._ended_by
        return seen, seen.code if seen.code is not None else TIMED_OUT

    async def _to_the_end(self) -> tuple[Seen, int]:
        if self.stop_on_hung:
            seen = await self.follower.until_decided()
            if seen.ended is None and seen.result.verdict is Verdict.HUNG:
                self.said("the server is hung and is stopped (--on-hung stop)")
                await self._send({"stop": {"by": "--on-hung stop", "force": True}})
        seen = await self.follower.until_end()
        exit_ = seen.result.exit
        if exit_.code is None and exit_.signal is None:
            return seen, 128 + self._ended_by if self._cannot_end and self._ended_by is not None else seen.code or UNKNOWN
        if self._ended_by is not None and exit_.signal is not None:
            return seen, 128 + self._ended_by  # it died of our ladder, and that of the signal to us
        return seen, server_status(exit_.code, exit_.signal)

    async def _pass_on(self, number: signal.Signals) -> None:
        serves = self.follower.state.ready_at is not None and self.follower.state.root_exit is None
        if number not in _ENDING or serves:
            if number in _ENDING:
                self._forwarded_end = number.name
            if not await self._send({"signal": int(number)}):
                signal_server(self.follower.folder, number)
            return
        self._asked_to_end += 1
        self._ended_by = self._ended_by or number
        if self._asked_to_end == 1:
            what = "what the server left" if self.follower.state.root_exit is not None else "the server, which is still starting"
            self.said(f"{number.name}: stopping {what}; once more to kill it")
        if not await self._send({"stop": {"by": f"signal {number.name}", "force": self._asked_to_end > 1}}):
            await stop(self.follower.folder, force=True, max_wait=_END_WITHIN)

    async def _end_leftovers(self) -> None:
        """A terminal signals all of a foreground job, we only the launched command: what that leaves when it goes is ended as well."""
        await self._root_ended.wait()
        if self._forwarded_end is not None and not self.follower.state.emptied:
            await self._send({"stop": {"by": f"signal {self._forwarded_end}", "force": False}})

    def _watch_end(self, told: Callable[[Event], None]) -> Callable[[Event], None]:
        def on_event(event: Event) -> None:
            told(event)
            if isinstance(event.body, Exited) and event.body.root:
                self._root_ended.set()
            if isinstance(event.body, Missed) and event.body.request == "stop":
                self._leave_it(event.body.reason)

        return on_event

    def _leave_it(self, why: str) -> None:
        """The kernel does not let go of the server: our own end does not wait for its."""
        self.said(f"{why} Its keeper waits for that; we do not, beyond {_LEFT_AFTER:.0f} s")
        self._cannot_end = True
        stream, until = self.follower.stream, asyncio.get_running_loop().time() + _LEFT_AFTER
        stream.until = until if stream.until is None else min(stream.until, until)

    async def _send(self, message: dict[str, object]) -> bool:
        """On a link of its own, so that a decision or a slow log never delays a signal. False where no keeper takes it. The way to it leads
        through the run's folder: where that is on a network, which may be dead by now, the link that there is must do."""
        try:
            if self.follower.stream.link is not None and FAR.far(str(self.follower.folder.path)):
                await self.follower.stream.link.send(message)
                return True
            link = await Link.connect(self.follower.socket(), "control", events_from=None, log_from=None)
            await link.send(message)
            await link.close()
        except KeeperGone as error:
            self.said(f"the keeper did not take our message: {error}")
            return False
        return True
