"""Carries the output of a server that we did not start into our record: files are read as they grow, helpers' output as it comes.

Reads of files happen in threads that can be left behind: a dead network mount blocks for ever. Helpers are processes of ours, ended by us.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from firsttoken.observe.errands import Errand
from firsttoken.session.attaching.log_source import LogCommand, LogFile, LogSource

_CHUNK = 1 << 20
_POLL = 0.25
_SOON = 0.01
_QUIET = 1.0
"""Seconds in which a helper prints nothing: then it has told the past."""
_LEAVES = 2.0
_LINE_LIMIT = 1 << 16
T = TypeVar("T")


async def aside(work: Callable[[], T], name: str) -> T:
    """The result of a call that may block for ever, without blocking the loop; what it raised is raised. Cancelling leaves it behind."""
    errand = Errand(work, name)
    pause = _SOON / 10
    while not errand.done:
        await asyncio.sleep(pause)
        pause = min(2 * pause, _POLL)
    if errand.error is not None:
        raise errand.error
    return errand.result  # type: ignore[return-value]  # it is what `work` returned


@dataclass(slots=True, kw_only=True)
class LogPump:
    """`put` gets bytes in order, of several sources whole lines only. `starts`: where in a file to begin, by its path.

    `caught_up` is set when all that had been written before is told. `problems`: what could not be read, as sentences' parts.
    """

    sources: tuple[LogSource, ...]
    put: Callable[[bytes], None]
    starts: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    told: int = 0
    """bytes that were put so far"""
    caught_up: asyncio.Event = field(default_factory=asyncio.Event)
    _behind: set[int] = field(default_factory=set)

    async def run(self) -> None:
        """Until it is cancelled."""
        self._behind = set(range(len(self.sources)))
        if not self.sources:
            self.caught_up.set()
            return
        await asyncio.gather(*(self._carry(number, source) for number, source in enumerate(self.sources)))

    async def _carry(self, number: int, source: LogSource) -> None:
        try:
            match source:
                case LogFile():
                    await self._file(number, source)
                case LogCommand():
                    await self._command(number, source)
        except OSError as error:
            self.problems.append(f"{source.shown}: {error.strerror or error}")
        finally:
            self._is_told(number)

    async def _file(self, number: int, source: LogFile) -> None:
        fd = await aside(lambda: os.open(source.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY), "firsttoken-log")
        at = self.starts.get(source.path, 0)
        lines = _Lines(self._put, whole=len(self.sources) > 1)
        try:
            while True:
                data = await aside(lambda fd=fd, at=at: os.pread(fd, _CHUNK, at), "firsttoken-log")  # type: ignore[misc]  # a lambda with defaults
                if data:
                    at += len(data)
                    lines.take(data)
                    continue
                self._is_told(number)
                await asyncio.sleep(_POLL)
                if await aside(lambda fd=fd, at=at: os.fstat(fd).st_size < at, "firsttoken-log"):  # type: ignore[misc]  # a lambda with defaults
                    at = 0  # cut short, as log rotation does
                elif source.follow_name and await aside(lambda fd=fd: _replaced(source.path, fd), "firsttoken-log"):  # type: ignore[misc]  # a lambda with defaults
                    fresh = await aside(lambda: os.open(source.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY), "firsttoken-log")
                    os.close(fd)
                    fd, at = fresh, 0
        finally:
            os.close(fd)

    async def _command(self, number: int, source: LogCommand) -> None:
        process = await asyncio.create_subprocess_exec(
            *source.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,  # a container's client tells its standard error there
            start_new_session=True,
        )
        assert process.stdout is not None
        held = bytearray()  # until we know that it is the log, and not why there is none
        sure = False
        try:
            while True:
                try:
                    async with asyncio.timeout(None if number not in self._behind else _QUIET):
                        data = await process.stdout.read(_CHUNK)
                except TimeoutError:
                    sure = True
                    self._put(bytes(held))
                    held.clear()
                    self._is_told(number)
                    continue
                if not data:
                    break
                held += data
                if sure or len(held) > _LINE_LIMIT:
                    sure = True
                    self._put(bytes(held))
                    held.clear()
            async with asyncio.timeout(_LEAVES):
                code = await process.wait()
            if code == 0:
                self._put(bytes(held))
            last = bytes(held).decode("utf8", "replace").strip().rpartition("\n")[2][:300]
            told = "it is not followed any more" if sure else f"{last}: give --log FILE"
            self.problems.append(f"`{source.shown}` ended with status {code}: {told}")
        except TimeoutError:
            self.problems.append(f"`{source.shown}` closed its output: it is not followed any more")
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LEAVES):
                        await process.wait()

    def _put(self, data: bytes) -> None:
        if not data:
            return
        self.told += len(data)
        self.put(data)

    def _is_told(self, number: int) -> None:
        self._behind.discard(number)
        if not self._behind:
            self.caught_up.set()


class _Lines:
    """Bytes as they come, or up to the last line's end where other sources write into the same record."""

    def __init__(self, put: Callable[[bytes], None], *, whole: bool) -> None:
        self._put, self._whole = put, whole
        self._rest = b""

    def take(self, data: bytes) -> None:
        if not self._whole:
            self._put(data)
            return
        data = self._rest + data
        cut = data.rfind(b"\n") + 1 or (len(data) if len(data) > _LINE_LIMIT else 0)
        self._rest = data[cut:]
        if cut:
            self._put(data[:cut])


def _replaced(path: str, fd: int) -> bool:
    try:
        now, ours = os.stat(path), os.fstat(fd)
    except OSError:
        return False
    return (now.st_dev, now.st_ino) != (ours.st_dev, ours.st_ino)


def last_bytes(path: str, most: int) -> tuple[int, bytes]:
    """Offset and content of a file's end, from a line's begin. OSError where it cannot be read."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        begin = max(size - most, 0)
        file.seek(begin)
        data = file.read(size - begin)
    cut = data.find(b"\n") + 1 if begin else 0
    return begin + cut, data[cut:]


def shown(sources: Iterable[LogSource]) -> str:
    return ", ".join(source.shown for source in sources)
