"""Beside a start: what of the weights lies in memory before they are loaded, and, where asked for, a prefetch of them.

The look changes nothing and measures nothing: a storage's rate is told only where it is remembered. The prefetch runs ahead of the engine
in the order in which that reads, and ends when the load is done, the server has ended, or memory is full.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from firsttoken.judge.load import is_over
from firsttoken.judge.state import State
from firsttoken.model.events import Body, Missed, Prefetched, WeightStorage
from firsttoken.session.loading.prefetch import PrefetchProcess
from firsttoken.session.loading.weights import CHILD, Found, WeightsUnknown, find, remembered
from firsttoken.survey.prefetch import Progress

_TOLD_EVERY = 1.0
_LOOKED_EVERY = 0.5


class WeightsBeside:
    """`paths`: where the plan says that the weights are; where that is nowhere, the first weight file that is seen open tells."""

    def __init__(self, paths: Sequence[str], *, prefetch: bool = False, child: Sequence[str] = CHILD) -> None:
        self._paths, self._prefetch, self._child = tuple(paths), prefetch, child

    async def __call__(self, post: Callable[[Body], None], state: Callable[[], State]) -> None:
        """What is found goes to `post`. Once a run: an observer that was started again does not look again."""
        if state().load.storage is not None:
            return
        path = self._paths[0] if self._paths else await _opened(state)
        if path is None:
            if self._prefetch:
                post(Missed(request="prefetch", reason="the command names no weights that are on this machine, and none were seen open"))
            return
        try:
            found = await find({"path": path}, child=self._child)
        except WeightsUnknown as error:
            if self._prefetch or error.silent:
                post(Missed(request="prefetch" if self._prefetch else "page cache", reason=str(error)))
            return
        post(_seen(found))
        if self._prefetch:
            await self._stream(found, post, state)

    async def _stream(self, found: Found, post: Callable[[Body], None], state: Callable[[], State]) -> None:
        """In a thread: what the child says must be read without delay, and its end must not wait for us."""
        loop, left = asyncio.get_running_loop(), asyncio.Event()
        latest: list[Progress] = [Progress(bytes=found.bytes)]
        with PrefetchProcess(found, child=self._child) as process:

            def work() -> None:
                for now in process.updates():
                    latest[0] = now
                if not loop.is_closed():
                    loop.call_soon_threadsafe(left.set)

            threading.Thread(target=work, name="firsttoken-prefetch", daemon=True).start()
            over = False
            told = 0.0
            while not left.is_set():
                try:
                    async with asyncio.timeout(0.25):
                        await left.wait()
                except TimeoutError:
                    pass
                if not over and is_over(state()):
                    over = True
                    process.stop()
                if loop.time() - told >= _TOLD_EVERY and not left.is_set():
                    told = loop.time()
                    post(_row(latest[0]))
            last = latest[0]
        post(_row(replace(last, ended="loaded") if over and last.ended == "stopped" else last))


async def _opened(state: Callable[[], State]) -> str | None:
    """The folder of the first weight file that some process is seen to open, where the command names none; None where none ever was."""
    while not is_over(state()):
        progress = state().weights
        if progress is not None and progress.files:
            return os.path.dirname(progress.files[0].path)
        await asyncio.sleep(_LOOKED_EVERY)
    return None


def _seen(found: Found) -> WeightStorage:
    rate = remembered(found)
    return WeightStorage(
        shards=len(found.files),
        bytes=found.bytes,
        cached=found.cached_bytes,
        path=found.path,
        place=found.words,
        network=found.network,
        bytes_per_s=rate.bytes_per_s if rate is not None else None,
        age_s=round(rate.age_s) if rate is not None else None,
    )


def _row(now: Progress) -> Prefetched:
    return Prefetched(bytes=now.bytes, done=now.done, read=now.read, seconds=round(now.seconds, 3), ended=now.ended, problem=now.problem)
