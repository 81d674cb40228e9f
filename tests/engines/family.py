"""Everything that a test's runs started, so that the test can ask what is left of it.

A mark in the environment is not enough: a process that sets its title overwrites the memory that /proc shows its environment from. So the
family is gathered while it lives: who carries our home or mark, and the children of whoever belongs to it, from look to look.
"""

import os
import signal
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

_EVERY = 0.3
"""Seconds between looks: shorter than anything lives that could leave a child behind and be missed."""


class Member(NamedTuple):
    """pid and start time in clock ticks: a pid alone may be somebody else's by now."""

    pid: int
    start: int


class Family:
    """A context in which a thread watches. `home`: the FIRSTTOKEN_HOME that the runs were started with."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._known: dict[Member, str] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="family", daemon=True)

    def __enter__(self) -> Self:
        self._watcher.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._watcher.join(10)

    def left(self) -> dict[Member, str]:
        """Members that still run, with their command lines. Zombies do not count: they wait for a parent's call, not for us."""
        self._look()
        with self._lock:
            return {member: title for member, title in self._known.items() if _start(member.pid) == member.start}

    def left_after(self, grace: float) -> dict[Member, str]:
        """The same, where what is about to end has `grace` seconds to do so."""
        until = time.monotonic() + grace
        while (left := self.left()) and time.monotonic() < until:
            time.sleep(_EVERY)
        return left

    def end(self) -> None:
        """Kills what is left, so that one failure does not become the next test's."""
        for member in self.left():
            try:
                os.kill(member.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def _watch(self) -> None:
        while not self._over.wait(_EVERY):
            self._look()

    def _look(self) -> None:
        with self._lock:
            now = {pid: row for pid in _pids() if pid != os.getpid() and (row := _stat(pid))}
            family = {pid for pid, (_, start) in now.items() if Member(pid, start) in self._known or self._marked(pid)}
            grown = True
            while grown:
                children = {pid for pid, (parent, _) in now.items() if parent in family} - family
                family |= children
                grown = bool(children)
            for pid in family:
                self._known[Member(pid, now[pid][1])] = _title(pid)

    def _marked(self, pid: int) -> bool:
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False
        runs = self._home / "runs"
        marks = [b"FIRSTTOKEN_RUN=" + os.fsencode(name) for name in (os.listdir(runs) if runs.is_dir() else ())]
        return b"FIRSTTOKEN_HOME=" + os.fsencode(self._home) in environment or any(mark in environment for mark in marks)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> tuple[int, int] | None:
    """Parent and start time; None where the process is gone or only waits to be reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if len(fields) < 20 or fields[0] in (b"Z", b"X") else (int(fields[1]), int(fields[19]))


def _start(pid: int) -> int | None:
    row = _stat(pid)
    return row[1] if row else None


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")[:200]
    except OSError:
        return "?"
