"""Starting servers for measuring: under `firsttoken run` in a home of its own, or plainly, and watching their processes from outside.

Key insight: both ways are told by the same outside observer. A process's start is read from the kernel, its log from the file that it ends
up in, so neither way is measured by its own account.
"""

import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cells import CellFailed
from firsttoken.history.runs import RunFolder
from firsttoken.hosts.procfs import Procfs, Stat
from firsttoken.launch.cleanup import finish

Key = tuple[int, int]
"""pid and start ticks"""

HZ = os.sysconf("SC_CLK_TCK")
ENGINE = (sys.executable, "-m", "firsttoken.rehearsal")
FIRSTTOKEN = (sys.executable, "-m", "firsttoken")
_STEP = 0.01
_STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\.(\d{3})[\] ]")


def free_port() -> int:
    """Below the ephemeral range: a server's own rendezvous may get any port in that, and takes a poller's greeting ill."""
    while True:
        port = random.randrange(15000, 30000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def wait_for(found: Callable[[], bool], seconds: float, what: str, step: float = 0.05) -> None:
    """CellFailed where it does not come within so many seconds."""
    deadline = time.monotonic() + seconds
    while not found():
        if time.monotonic() > deadline:
            raise CellFailed(f"{what} did not come within {seconds:.0f} s")
        time.sleep(step)


@dataclass(slots=True)
class Run:
    """A run that `firsttoken run` was asked for. `face` is the command itself, its output in `said`."""

    home: Path
    folder: RunFolder
    face: "subprocess.Popen[bytes]"
    said: Path
    commanded_at: float
    """wall clock just before `firsttoken run` was started"""

    @property
    def server(self) -> Key:
        return self.key("server") or (0, 0)

    def key(self, part: str) -> Key | None:
        """keeper, server or observer as keeper.json names it now."""
        record = self.folder.keeper()
        found = record if part == "keeper" else record.get(part)
        return (int(found["pid"]), int(found["start"])) if isinstance(found, dict) and "pid" in found else None

    def verdict(self) -> str | None:
        told = self.folder.result().get("verdict")
        return told if isinstance(told, str) else None

    def ask(self, *words: str, seconds: float = 90.0) -> "subprocess.CompletedProcess[bytes]":
        """One command of firsttoken about runs in this home."""
        try:
            return subprocess.run([*FIRSTTOKEN, *words], env=_env(self.home), capture_output=True, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise CellFailed(f"`firsttoken {' '.join(words)}` did not return within {seconds:.0f} s") from error


@contextlib.contextmanager
def launched(argv: Sequence[str], *words: str, seconds: float = 30.0) -> Iterator[Run]:
    """`firsttoken run WORDS -- ARGV` in a home of its own, once the server is spawned. Nothing of it is left afterwards."""
    home = Path(tempfile.mkdtemp(prefix="firsttoken-bench-"))
    said = home / "said"
    run: Run | None = None
    try:
        with said.open("wb") as output:
            began = time.time()
            command = [*FIRSTTOKEN, "run", *words, "--", *argv]
            # without the waiting of Popen's own context: the face may be killed, or end by itself
            face = subprocess.Popen(command, env=_env(home), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
        try:
            wait_for(lambda: _server_known(home) or face.poll() is not None, seconds, "the server's process", _STEP)
            if not _server_known(home):
                raise CellFailed(f"firsttoken run ended with {face.returncode}: {said.read_text(errors='replace')[-500:]}")
            run = Run(home, _only_run(home), face, said, began)
            yield run
        finally:
            if run is not None:
                finish(run.folder.path, seconds=30)
            end(face)
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def plain(argv: Sequence[str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The same command without us, its output in a file."""
    with log.open("wb") as output:
        process = subprocess.Popen(list(argv), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
    try:
        yield process
    finally:
        end(process)


def end(process: "subprocess.Popen[bytes]", seconds: float = 15.0) -> None:
    """Terminates, then kills; reaps."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
    if process.poll() is None:
        raise CellFailed(f"pid {process.pid} does not end")


def started_wall(key: Key) -> float:
    """Unix time at which a process was started, by the kernel (to a clock tick, 10 ms)."""
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - key[1] / HZ)


def descendants(root: int, procfs: Procfs, *, below: bool = True) -> dict[int, Stat]:
    """Living processes of the tree (and session) of `root`, itself included."""
    stats = {pid: stat for pid in procfs.pids() if (stat := procfs.stat(pid)) is not None and not stat.dead}
    found = {pid: stat for pid, stat in stats.items() if pid == root or stat.sid == root}
    more = below
    while more:
        fresh = {pid: stat for pid, stat in stats.items() if stat.ppid in found and pid not in found}
        found |= fresh
        more = bool(fresh)
    return found


@dataclass(slots=True)
class Tail:
    """Notes when a growing file grew (wall clock, end), a hundred times a second: arrival times of log lines of any engine."""

    path: Path
    marks: list[tuple[float, int]] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "Tail":
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join(5.0)

    def said(self, pattern: str) -> float | None:
        """Wall time of the first line that matches: by the line's own stamp where it tells milliseconds, else by its arrival."""
        try:
            data = self.path.read_bytes()
        except OSError:
            return None
        for match in re.finditer(rb"[^\r\n]+", data):
            line = match.group().decode("utf8", "replace")
            if re.search(pattern, line):
                stamp = _STAMP.search(line)
                if stamp is not None:
                    return time.mktime(time.strptime(stamp[1], "%Y-%m-%d %H:%M:%S")) + int(stamp[2]) / 1000
                return next((at for at, size in self.marks if size >= match.end()), None)
        return None

    def _watch(self) -> None:
        last = 0
        while not self._over.wait(_STEP):
            with contextlib.suppress(OSError):
                size = self.path.stat().st_size
                if size != last:
                    last = size
                    self.marks.append((time.time(), size))


def _env(home: Path) -> dict[str, str]:
    return {**os.environ, "FIRSTTOKEN_HOME": str(home)}


def _only_run(home: Path) -> RunFolder:
    return RunFolder(next(iter((home / "runs").iterdir())))


def _server_known(home: Path) -> bool:
    with contextlib.suppress(OSError, StopIteration):
        return _only_run(home).keeper().get("server") is not None
    return False
