"""Writing a run's log and events to its folder: head, tail segments, index, events. Synchronous; the keeper runs it in a thread.

The log is kept once, raw and bounded: its first 64 MiB in `head.raw`, what follows in segments of 16 MiB named by the offset of their first
byte, of which the last 64 MiB stay. A jump in offsets (something could not be recorded) begins a new segment, so a name always tells the
truth. A writer that takes over after a death goes on where the files end, behind a torn line if there is one.
"""

import contextlib
import json
import os
import re
from typing import Any, NamedTuple

from firsttoken.launch.folder import Folder

HEAD_BYTES = 64 << 20
SEGMENT_BYTES = 16 << 20
TAIL_BYTES = 64 << 20
INDEX_INTERVAL = 0.05
"""Seconds between two index lines at the least."""

_LAST_BYTES = 4 << 20
"""An event is far smaller; a chunk of this size ends in at least one whole one."""

_SEGMENT = re.compile(r"tail-(\d{20})\.raw")


class Segment(NamedTuple):
    """A stretch of the log in one file: offset of its first byte, bytes, file name within `log/`."""

    offset: int
    size: int
    name: str

    @property
    def end(self) -> int:
        return self.offset + self.size


def segments(folder: Folder) -> list[Segment]:
    """What of the log is in the folder, in order. Empty where there is none."""
    found = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder.log):
            match = _SEGMENT.fullmatch(entry.name)
            if entry.name == "head.raw":
                found.append(Segment(0, entry.stat().st_size, entry.name))
            elif match:
                found.append(Segment(int(match[1]), entry.stat().st_size, entry.name))
    return sorted(found, key=lambda item: (item.offset, item.name != "head.raw"))


def last_seq(folder: Folder) -> int:
    """The highest `seq` near the end of the events file, 0 where there is none; a torn last line does not count."""
    try:
        with open(folder.events, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST_BYTES))
            lines = file.read(_LAST_BYTES).split(b"\n")
    except OSError:
        return 0
    found = 0
    for line in lines:
        with contextlib.suppress(ValueError, TypeError, KeyError):
            found = max(found, int(json.loads(line)["seq"]))
    return found


class Writer:
    """Appends to a folder that is prepared. Every method may raise OSError; after that, close it."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._kept = [item for item in segments(folder) if item.name != "head.raw"]
        self.end = max((item.end for item in segments(folder)), default=0)
        self.index_interval = INDEX_INTERVAL
        self._index_at = float("-inf")
        self._fds: dict[str, int] = {}
        self._current: Segment | None = None
        self._events_size: int | None = None

    def log(self, offset: int, t: float, wall: float, data: bytes) -> int:
        """Appends output that was read at `t`. Returns how many old bytes were dropped to stay within bounds."""
        if t - self._index_at >= self.index_interval:
            self._index_at = t
            _write(self._fd("log/index"), f"{offset} {t:.3f} {wall:.3f}\n".encode())
        view = memoryview(data)
        while view:
            segment, room = self._segment(offset)
            part = view[:room]
            _write(self._fd(f"log/{segment.name}"), part)
            offset += len(part)
            self._current = segment._replace(size=segment.size + len(part))
            self.end = offset
            view = view[len(part) :]
        return self._drop_old()

    def events(self, lines: bytes) -> None:
        """Appends whole lines; a line that could only be written in part is taken back."""
        fd = self._fd("events.jsonl")
        if self._events_size is None:
            self._events_size = os.fstat(fd).st_size
            if _last_byte(self._folder) not in (None, b"\n"):
                lines = b"\n" + lines
        try:
            _write(fd, lines)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, self._events_size)
            raise
        self._events_size += len(lines)

    def event(self, event: dict[str, Any]) -> None:
        """One event with its envelope."""
        self.events(json.dumps(event, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        for fd in self._fds.values():
            with contextlib.suppress(OSError):
                os.close(fd)
        self._fds.clear()

    def _segment(self, offset: int) -> tuple[Segment, int]:
        """The segment that takes the byte at `offset`, and how many bytes it takes."""
        current = self._current
        if current is None:
            last = segments(self._folder)
            current = last[-1] if last else Segment(0, 0, "head.raw")
        limit = HEAD_BYTES if current.name == "head.raw" else SEGMENT_BYTES
        if current.end == offset and current.size < limit:
            return current, limit - current.size
        if self._current is not None:
            self._close(f"log/{current.name}")
        if current.name != "head.raw" and current not in self._kept:
            self._kept.append(current)
        return Segment(offset, 0, f"tail-{offset:020}.raw"), SEGMENT_BYTES

    def _drop_old(self) -> int:
        dropped = 0
        current = self._current
        if current is not None and current.name == "head.raw":
            return 0
        others = [item for item in self._kept if current is None or item.name != current.name]
        total = sum(item.size for item in others) + (current.size if current else 0)
        while others and total - others[0].size >= TAIL_BYTES:
            oldest = others.pop(0)
            os.unlink(self._folder.log / oldest.name)
            total -= oldest.size
            dropped += oldest.size
        self._kept = others
        return dropped

    def _fd(self, name: str) -> int:
        fd = self._fds.get(name)
        if fd is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY
            fd = self._fds[name] = os.open(self._folder.path / name, flags, 0o600)
        return fd

    def _close(self, name: str) -> None:
        fd = self._fds.pop(name, None)
        if fd is not None:
            os.close(fd)


def _write(fd: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _last_byte(folder: Folder) -> bytes | None:
    """None where there is no byte."""
    try:
        with open(folder.events, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1)
    except OSError:
        return None
