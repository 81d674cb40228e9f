"""What goes to one of our own streams while a run is followed, written by a thread of its own.

A terminal that was stopped (Ctrl-S), a pager or a slow pipe blocks whoever writes to it. That must be neither the server, which the keeper
sees to, nor the loop that hears our signals. A reader that went away (`| head -1`) costs nothing but the output.
"""

import os
import threading
from collections import deque

MOST_BYTES = 64 << 20
"""Waiting for a slow reader. What comes on top is not shown; it stands in the run's log."""


class Outlet:
    """`write` never blocks and never fails. `lost` counts bytes that were not shown because the reader was too slow."""

    def __init__(self, fd: int, most_bytes: int = MOST_BYTES) -> None:
        self._fd, self._most = fd, most_bytes
        self._condition = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._bytes = self._written = 0
        self._closing = self._broken = False
        self._thread: threading.Thread | None = None
        self.lost = 0

    @property
    def waiting(self) -> int:
        """Bytes that the reader has not taken yet."""
        return self._bytes

    def write(self, data: bytes) -> None:
        with self._condition:
            if self._broken or not data:
                return
            if self._bytes + len(data) > self._most:
                self.lost += len(data)
                return
            self._waiting.append(data)
            self._bytes += len(data)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"outlet-{self._fd}", daemon=True)
                self._thread.start()
            self._condition.notify_all()

    def line(self, text: str) -> None:
        self.write(text.encode("utf8", "replace") + b"\n")

    def close(self, patience: float = 60.0) -> None:
        """Waits until all is written, or until the reader has taken nothing for `patience` seconds."""
        with self._condition:
            self._closing = True
            self._condition.notify_all()
        while self._thread is not None and self._thread.is_alive():
            before = self._written
            self._thread.join(patience)
            if self._written == before:
                break
        with self._condition:
            self.lost += self._bytes

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._waiting and not self._closing:
                    self._condition.wait()
                if not self._waiting:
                    return
                data = self._waiting.popleft()
            try:
                view = memoryview(data)
                while view:
                    done = os.write(self._fd, view)
                    self._written += done
                    view = view[done:]
            except OSError:  # nobody reads any more
                with self._condition:
                    self._broken = True
                    self._waiting.clear()
                    self._bytes = 0
                return
            with self._condition:
                self._bytes -= len(data)
