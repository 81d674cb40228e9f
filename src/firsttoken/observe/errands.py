"""Work that may never come back, done in threads that can be left behind.

A read of `/proc/PID/cmdline` blocks while a stuck thread of that process holds its mmap lock, and a `stat` on a dead network mount blocks
for ever. Nothing in user space can end such a call, so it happens in a daemon thread: the caller waits up to a deadline and goes on without
it. How many threads may be stuck at one time is bounded; beyond that, errands are refused and the caller says that it could not look.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Errand(Generic[T]):
    """One piece of work under way. `result` is None until it is done, and where it failed (`error` says how)."""

    def __init__(self, work: Callable[[], T], name: str) -> None:
        self.result: T | None = None
        self.error: BaseException | None = None
        self.began = time.monotonic()
        self._done = threading.Event()
        threading.Thread(target=self._run, args=(work,), name=name, daemon=True).start()

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def wait(self, seconds: float) -> bool:
        return self._done.wait(seconds)

    def _run(self, work: Callable[[], T]) -> None:
        try:
            self.result = work()
        except Exception as error:  # told to whoever waits
            self.error = error
        finally:
            self._done.set()


class Errands:
    """Sends errands, at most `most` at a time. Not for use by several threads at once."""

    def __init__(self, name: str, *, most: int = 4) -> None:
        self._name = name
        self._most = most
        self._open: list[Errand[None]] = []
        self._stuck: dict[int, Errand[None]] = {}

    @property
    def stuck(self) -> frozenset[int]:
        """Pids at which a read by `each` hangs at this moment."""
        self._stuck = {pid: errand for pid, errand in self._stuck.items() if not errand.done}
        return frozenset(self._stuck)

    def send(self, work: Callable[[], T]) -> Errand[T] | None:
        """None: refused, since too many earlier ones have not come back."""
        self._open = [errand for errand in self._open if not errand.done]
        if len(self._open) >= self._most:
            return None
        errand = Errand(work, self._name)
        self._open.append(errand)  # type: ignore[arg-type]  # only `done` is asked of it
        return errand

    def each(self, read: Callable[[int], T], pids: Iterable[int], *, seconds: float) -> dict[int, T]:
        """`read(pid)` for every pid, in order, within `seconds` in all. A pid whose read hangs is passed over until that read has ended;
        the pids after it are read next time. Pids are missing from the answer where there was none."""
        stuck = self.stuck
        todo = [pid for pid in pids if pid not in stuck]
        if not todo:
            return {}
        found: dict[int, T] = {}
        at: list[int] = [todo[0]]
        left = threading.Event()

        def work() -> None:
            for pid in todo:
                if left.is_set():
                    return
                at[0] = pid
                found[pid] = read(pid)

        errand = self.send(work)
        if errand is not None and not errand.wait(seconds):
            left.set()
            self._stuck[at[0]] = errand
        return dict(found)
