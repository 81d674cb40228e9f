"""The last look before a run is called empty: does any process carry its mark that neither descent nor the cgroup shows?

Reading an environment takes a lock that a stuck process may hold, so this runs in a thread that is left behind when it takes too long.
"""

import threading
import time
from collections.abc import Callable

from firsttoken.hosts.procfs import Procfs
from firsttoken.launch.folder import Key
from firsttoken.launch.tree import find_marked

PATIENCE = 2.0
"""Seconds. After them the run counts as empty without this look."""


class MarkSweep:
    """`wake` is called from the thread when it is done."""

    def __init__(self, procfs: Procfs, mark: str | None, since: int, wake: Callable[[], None]) -> None:
        self._procfs, self._mark, self._since, self._wake = procfs, mark, since, wake
        self._thread: threading.Thread | None = None
        self._until = 0.0
        self.found: tuple[Key, ...] = ()

    def nothing_left(self) -> bool:
        """True once a sweep has ended and what it found is gone. Starts one where none runs, and waits for it no longer than 0.1 s."""
        if self._mark is None:
            return True
        if self._thread is None:
            self._until = time.monotonic() + PATIENCE
            self._thread = threading.Thread(target=self._run, args=(self._mark.encode(),), name="sweep", daemon=True)
            self._thread.start()
            self._thread.join(0.1)
        if self._thread.is_alive():
            return time.monotonic() > self._until
        self._thread = None
        return not any(self._procfs.alive(*key) for key in self.found)

    def _run(self, mark: bytes) -> None:
        self.found = find_marked(self._procfs, mark, since=self._since)
        self._wake()
