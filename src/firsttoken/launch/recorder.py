"""The keeper's recorder: one thread between a bounded queue and the run's folder, so that a disk never slows the forwarding.

A full queue drops (and counts) what comes; a disk that fails, or does not answer for `BLOCKED_AFTER` seconds, ends the recording for good,
and the keeper goes on in memory. Nothing here raises into the loop: it asks `news` after each wake-up and each second.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from firsttoken.launch.folder import Folder
from firsttoken.launch.segments import Writer

QUEUE_BYTES = 16 << 20
BLOCKED_AFTER = 10.0


class News(NamedTuple):
    """Since the last call: log bytes and events that were not recorded, old bytes dropped, and (once) why recording stopped."""

    lost_log: int
    lost_events: int
    dropped: int
    stopped: str | None


class _Log(NamedTuple):
    offset: int
    t: float
    wall: float
    data: bytes


class _Job(NamedTuple):
    run: Callable[[], object]


_Item = _Log | _Job | bytes


class Recorder:
    """`wake` is called from the thread whenever there is news."""

    def __init__(self, folder: Folder, wake: Callable[[], None], queue_bytes: int = QUEUE_BYTES) -> None:
        self._folder = folder
        self._wake = wake
        self._limit = queue_bytes
        self._condition = threading.Condition()
        self._queue: deque[_Item] = deque()
        self._queued = 0
        self._busy_since: float | None = None
        self._closing = False
        self._lost_log = self._lost_events = self._dropped = 0
        self._failed: str | None = None
        self._told = False
        self._index_interval: float | None = None
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    @property
    def failed(self) -> str | None:
        return self._failed

    def log(self, offset: int, t: float, wall: float, data: bytes) -> None:
        with self._condition:
            if self._failed is not None or self._queued + len(data) > self._limit:
                self._lost_log += len(data)
                return
            self._put(_Log(offset, t, wall, data), len(data))

    def event(self, line: bytes) -> None:
        """A whole encoded line. Events have as much room again as the log, so that a storm of output does not push them out."""
        with self._condition:
            if self._failed is not None or self._queued + len(line) > 2 * self._limit:
                self._lost_events += 1
                return
            self._put(line, len(line))

    def job(self, run: Callable[[], object]) -> None:
        """Something else that touches the disk, done in turn; its OSError counts as the disk's failure. Runs after a failure too."""
        with self._condition:
            self._put(_Job(run), 0)

    def calm(self, index_interval: float) -> None:
        """From now on at most one index line in so many seconds."""
        self._index_interval = index_interval

    def news(self) -> News:
        with self._condition:
            busy = self._busy_since
            if self._failed is None and busy is not None and time.monotonic() - busy > BLOCKED_AFTER:
                self._fail(f"the disk of {self._folder.path} has not answered for {BLOCKED_AFTER:.0f} s")
            stopped = self._failed if not self._told else None
            self._told = self._failed is not None
            news = News(self._lost_log, self._lost_events, self._dropped, stopped)
            self._lost_log = self._lost_events = self._dropped = 0
            return news

    def close(self, seconds: float) -> bool:
        """Writes what is queued; False where that takes longer than so many seconds (the thread is left behind)."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _put(self, item: _Item, size: int) -> None:
        self._queue.append(item)
        self._queued += size
        self._condition.notify()

    def _fail(self, reason: str) -> None:
        """With the lock held: the reason, and what was queued counts as lost."""
        if self._failed is None:
            self._failed = reason
        kept: deque[_Item] = deque()
        for item in self._queue:
            if isinstance(item, _Log):
                self._lost_log += len(item.data)
            elif isinstance(item, bytes):
                self._lost_events += 1
            else:
                kept.append(item)
        self._queue = kept
        self._queued = 0

    def _run(self) -> None:
        writer: Writer | None = None
        while True:
            with self._condition:
                while not self._queue and not self._closing:
                    self._condition.wait()
                if not self._queue:
                    break
                batch, self._queue = self._queue, deque()
                self._busy_since = time.monotonic()
            try:
                if writer is None:
                    writer = Writer(self._folder)
                if self._index_interval is not None:
                    writer.index_interval = self._index_interval
                self._write(writer, batch)
            except (OSError, ValueError) as error:
                with self._condition:
                    self._queue.extendleft(item for item in reversed(batch))
                    self._fail(f"writing to {self._folder.path} failed: {error.strerror if isinstance(error, OSError) else error}")
                self._wake()
            finally:
                with self._condition:
                    self._busy_since = None
        if writer is not None:
            writer.close()

    def _write(self, writer: Writer, batch: deque[_Item]) -> None:
        """Takes what it wrote out of the batch, so that a failure leaves what is lost."""
        while batch:
            item = batch[0]
            self._busy_since = time.monotonic()
            if isinstance(item, _Job):
                batch.popleft()
                if self._failed is None:
                    item.run()
                else:
                    with contextlib.suppress(OSError):
                        item.run()
                continue
            if self._failed is not None:
                with self._condition:
                    self._queue.extendleft(reversed(batch))
                    batch.clear()
                    self._fail(self._failed)
                return
            if isinstance(item, bytes):
                lines = [item]
                while len(lines) < len(batch) and isinstance(nxt := batch[len(lines)], bytes):
                    lines.append(nxt)
                writer.events(b"".join(lines))
                size = sum(map(len, lines))
                for _ in lines:
                    batch.popleft()
            else:
                dropped = writer.log(item.offset, item.t, item.wall, item.data)
                with self._condition:  # `news` takes and clears it from the keeper's own thread
                    self._dropped += dropped
                size = len(item.data)
                batch.popleft()
            with self._condition:
                self._queued = max(0, self._queued - size)
