"""Programs that may never come back: each runs as a child with a deadline, is killed after it, and left behind where even that is in vain.

Output goes to a memory file, so that nobody has to read from a child that hangs. A child in uninterruptible sleep outlives its SIGKILL, and
one with a thread in it its own exit: it is remembered, reaped when it ends, and while too many are about, no more are started.
Whoever starts one must have no file of a network mount open: what is forked closes its copies, which a dead mount does not let it do, and
until then all threads of the caller wait for it.
"""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass

_GRACE = 0.5
_LOOK_EVERY = 0.05
_MOST_OUTPUT = 16 << 20
_MOST_ERROR = 1 << 16
_MOST_LEFT = 4
_NUMBER = re.compile(r"^\d+: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`error` None: it ended with status 0. `late`: it had not ended in time. `left_behind`: it is still there."""

    output: bytes = b""
    error: str | None = None
    late: bool = False
    left_behind: bool = False


class Expendable:
    def __init__(self) -> None:
        self._left: list[subprocess.Popen[bytes]] = []

    @property
    def left_behind(self) -> tuple[int, ...]:
        """Pids of children that were killed and have not ended."""
        self._left = [child for child in self._left if child.poll() is None]
        return tuple(child.pid for child in self._left)

    async def run(self, command: Sequence[str], seconds: float, *, line: bool = False) -> Outcome:
        """Never raises for what the child does; a cancelled wait kills it. `line`: its answer is one line, and is taken when that is there,
        whether the child can end or not."""
        if len(self.left_behind) >= _MOST_LEFT:
            return Outcome(error=f"not run: {len(self._left)} earlier ones hang and cannot be killed", left_behind=True)
        output, told = os.memfd_create("firsttoken-output"), os.memfd_create("firsttoken-errors")
        try:
            try:
                child = _started(command, output, told)
            except OSError as error:
                return Outcome(error=f"{command[0]} cannot be run: {error.strerror or error}")
            answered = False
            try:
                ended = await _ended(child, max(seconds, 0.01), output if line else None)
                answered = line and _is_line(output)
                if answered and not ended:
                    ended = await _ended(child, _GRACE)
            finally:
                if child.poll() is None:
                    child.kill()
                    self._left.append(child)
            if answered and not ended:
                return Outcome(output=_all(output, _MOST_OUTPUT), left_behind=child.poll() is None)
            if not ended:
                gone = await _ended(child, _GRACE)
                name = os.path.basename(command[0])
                return Outcome(error=f"{name} gave no answer within {seconds:.1f} s", late=True, left_behind=not gone)
            if child.returncode == 0:
                return Outcome(output=_all(output, _MOST_OUTPUT))
            return Outcome(error=_reason(command[0], child.returncode, _all(told, _MOST_ERROR)))
        finally:
            os.close(output)
            os.close(told)

    def run_blocking(self, command: Sequence[str], seconds: float) -> Outcome:
        """The same for whoever has no event loop, or is in the midst of one: in a loop of its own, in a thread."""
        found: list[Outcome] = []
        thread = threading.Thread(target=lambda: found.append(asyncio.run(self.run(command, seconds))))
        thread.start()
        thread.join()
        return found[0] if found else Outcome(error=f"{command[0]} was not run")


def _started(command: Sequence[str], output: int, told: int) -> subprocess.Popen[bytes]:
    """In a process group of its own, since Ctrl-C at the terminal is not for it; in our session, by which a keeper tells an observer's
    children from the server's, also when they outlive it."""
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=told, process_group=0)


async def _ended(child: subprocess.Popen[bytes], seconds: float, answer: int | None = None) -> bool:
    """Whether it ends in time; its status is then known. `answer`: a file that is looked into meanwhile; a line in it ends the wait."""
    if child.poll() is not None:
        return True
    loop = asyncio.get_running_loop()
    try:
        fd = os.pidfd_open(child.pid)
    except OSError:
        return await _polled(child, seconds, answer)
    over = asyncio.Event()
    loop.add_reader(fd, over.set)
    try:
        async with asyncio.timeout(seconds):
            while answer is not None and not _is_line(answer) and not over.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), _LOOK_EVERY)
            if answer is None:
                await over.wait()
    except TimeoutError:
        pass
    finally:
        loop.remove_reader(fd)
        os.close(fd)
    return child.poll() is not None


async def _polled(child: subprocess.Popen[bytes], seconds: float, answer: int | None) -> bool:
    """Where the kernel has no pidfd."""
    until = asyncio.get_running_loop().time() + seconds
    while child.poll() is None and (answer is None or not _is_line(answer)):
        if asyncio.get_running_loop().time() >= until:
            return False
        await asyncio.sleep(0.01)
    return child.poll() is not None


def _is_line(fd: int) -> bool:
    size = os.fstat(fd).st_size
    return size > 0 and os.pread(fd, 1, size - 1) == b"\n"


def _all(fd: int, most: int) -> bytes:
    return os.pread(fd, most, 0)


def _reason(program: str, code: int, told: bytes) -> str:
    """The child's own words without its backtrace, in one line."""
    text = told.decode("utf8", "replace").split("Stack backtrace")[0]
    lines = [_NUMBER.sub("", line.strip().removeprefix("Error: ")) for line in text.splitlines()]
    words = "; ".join(dict.fromkeys(line for line in lines if line and line not in ("Caused by:", "Reason:")))
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    return f"{os.path.basename(program)} {how}: {words[:300]}" if words else f"{os.path.basename(program)} {how}"
