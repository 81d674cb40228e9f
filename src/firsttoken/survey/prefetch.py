"""Streams files into the page cache, in order, as fast as the storage gives them.

Key insight: `WILLNEED` asks for pages and returns, so a few threads keep many requests under way for hardly any processor time; but of
each call the kernel takes no more than the device's read-ahead, so pieces are no longer than that. Each thread waits for an earlier piece
(a read of its last byte), which bounds what is under way and tells what has come. Plain reads copy every byte, and several of them in one
file look random to the kernel; where a file system ignores `WILLNEED`, they are the faster way: that is tried for a moment, and measured.
Reads past the page cache are faster still on many drives, and leave nothing behind: they only measure.
"""

import mmap
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from firsttoken.survey.page_cache import by_cachestat, cached_bytes

_THREADS, _MANY_THREADS = 4, 8
_MANY_FROM = 3e9
"""bytes a second of a storage for which four threads cannot ask fast enough"""
_UNDER_WAY = 32 << 20
"""bytes that each thread has asked for and not yet waited for"""
_LONGEST_PIECE, _SHORTEST_PIECE = 4 << 20, 128 << 10
_PLAIN_PIECE = 8 << 20
_TRIED_AFTER, _TRIED_FOR = 3.0, 1.0
"""seconds; a shorter trial tells of the machine's mood"""
_GOOD, _BETTER = 0.3, 1.5
"""of the storage's known rate: then nothing else is tried; times as fast: then it is stayed with"""
_ROOM_EVERY = 0.5
_LOOK_EVERY = 2.0
_OPEN_LOOKED_AT = 4
"""files; counting their pages takes some milliseconds a gigabyte"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """`bytes` of all files; `done` of them are in the page cache; `read` of those came from the storage now, the rest was there.

    `ended`: None while it goes on; done, stopped, room (no more memory), error (`problem` says which)."""

    bytes: int
    done: int = 0
    read: int = 0
    seconds: float = 0.0
    way: str = "willneed"
    ended: str | None = None
    problem: str | None = None

    @property
    def bytes_per_s(self) -> float | None:
        return self.read / self.seconds if self.seconds > 0 and self.read else None


class Prefetch:
    """`room`: bytes that may still be put into memory, None where nothing limits it. `known`: the storage's rate, bytes a second."""

    def __init__(
        self,
        files: Sequence[tuple[str, int]],
        *,
        read_ahead: int = _LONGEST_PIECE,
        room: Callable[[], int | None] = lambda: None,
        known: float | None = None,
        threads: int | None = None,
    ) -> None:
        self._files = files
        self._piece = max(_SHORTEST_PIECE, min(read_ahead, _LONGEST_PIECE))
        self._under_way = max(2, _UNDER_WAY // self._piece)
        self._room, self._known = room, known
        self._threads = threads or (_MANY_THREADS if (known or 0.0) > _MANY_FROM else _THREADS)
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._now = Progress(bytes=sum(size for _, size in files))
        self._fds: dict[int, int] = {}
        self._next = (0, 0)
        self._left: int | None = None

    @property
    def progress(self) -> Progress:
        return self._now

    def stop(self) -> None:
        self._stop.set()

    def run(self, told: Callable[[Progress], None] = lambda progress: None, *, every: float = 0.2) -> Progress:
        """Until all is there, memory is full, an error comes or `stop` was called. Blocks where the file system does; `told` hears nothing
        while nothing comes from it."""
        self._left = self._room()
        began = time.perf_counter()
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self._threads)]
        for thread in threads:
            thread.start()
        chooser = _Chooser(self._known)
        room_at = looked_at = 0.0
        counted = come = -1
        while any(thread.is_alive() for thread in threads):
            next((thread for thread in threads if thread.is_alive()), threads[0]).join(every if chooser.settled else 0.05)
            seconds = time.perf_counter() - began
            with self._lock:
                self._now = replace(self._now, seconds=seconds, way=chooser.choose(seconds, self._now.read))
            if seconds - room_at >= _ROOM_EVERY:
                room_at = seconds
                room = self._room()  # pages of files count as free in it: ours are taken off
                with self._lock:
                    self._left = None if room is None else room - self._now.read
            moved = self._now.done != counted
            if not moved and seconds - looked_at >= _LOOK_EVERY:
                looked_at, now = seconds, self._come()
                moved = now > come >= 0  # what memory drops again, for others, has come before
                come = max(come, now)
            if moved:
                counted = self._now.done
                told(self._now)
        for fd in self._fds.values():
            os.close(fd)
        ended = self._now.ended or ("stopped" if self._stop.is_set() else "done")
        self._now = replace(self._now, seconds=time.perf_counter() - began, ended=ended)
        told(self._now)
        return self._now

    def _work(self) -> None:
        under_way: list[tuple[int, int]] = []
        try:
            with mmap.mmap(-1, _PLAIN_PIECE) as buffer:
                while not self._stop.is_set() and self._now.ended is None and (piece := self._take()) is not None:
                    fd, at, length, plain = piece
                    cached = cached_bytes(fd, at, length) or 0
                    if cached >= length:
                        self._count(length, 0)
                        continue
                    if plain:
                        os.preadv(fd, [memoryview(buffer)[:length]], at)
                    else:
                        os.posix_fadvise(fd, at, length, os.POSIX_FADV_WILLNEED)
                        under_way.append((fd, at + length - 1))
                        if len(under_way) > self._under_way:
                            _wait(*under_way.pop(0))
                    self._count(length, length - cached)
                for piece_under_way in under_way:
                    if self._stop.is_set():
                        break
                    _wait(*piece_under_way)
        except OSError as error:
            with self._lock:
                self._now = replace(self._now, ended="error", problem=f"{error.filename or 'a weight file'}: {error.strerror or error}")

    def _take(self) -> tuple[int, int, int, bool] | None:
        """The next piece: descriptor, offset, length, and whether to read it plainly."""
        with self._lock:
            number, at = self._next
            while number < len(self._files) and at >= self._files[number][1]:
                number, at = number + 1, 0
            if number >= len(self._files):
                return None
            if self._left is not None and self._left < self._piece:
                self._now = replace(self._now, ended="room")
                return None
            if number not in self._fds:
                self._fds[number] = os.open(self._files[number][0], os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            plain = self._now.way == "read"
            length = min(_PLAIN_PIECE if plain else self._piece, self._files[number][1] - at)
            self._next = (number, at + length)
            return self._fds[number], at, length, plain

    def _come(self) -> int:
        """Bytes in memory of the files that are read now: a storage may be too slow to bring a whole piece. No disk is asked."""
        with self._lock:
            fds = [(fd, self._files[number][1]) for number, fd in list(self._fds.items())[-_OPEN_LOOKED_AT:]]
        return sum(by_cachestat(fd, 0, size) or 0 for fd, size in fds)

    def _count(self, done: int, read: int) -> None:
        with self._lock:
            self._now = replace(self._now, done=self._now.done + done, read=self._now.read + read)
            if self._left is not None:
                self._left -= read


def _wait(fd: int, at: int) -> None:
    """Until that byte is there."""
    os.pread(fd, 1, at)


class _Chooser:
    """Read-ahead first; where it is far below what the storage is known to give, plain reads for a while; then the faster of both."""

    def __init__(self, known: float | None) -> None:
        self._known = known
        self._ahead = 0.0
        self._tried: tuple[float, int] | None = None
        self._way = "willneed"
        self.settled = False

    def choose(self, seconds: float, read: int) -> str:
        """`read`: bytes so far."""
        if self.settled or seconds < _TRIED_AFTER:
            return self._way
        if self._tried is None:
            self._ahead = read / seconds
            if self._known is None or self._ahead >= _GOOD * self._known:
                self.settled = True
            else:
                self._tried, self._way = (seconds, read), "read"
        elif seconds - self._tried[0] >= _TRIED_FOR:
            plain = (read - self._tried[1]) / (seconds - self._tried[0])
            self._way = "read" if plain > _BETTER * self._ahead else "willneed"
            self.settled = True
        return self._way
