"""Starting a keeper from a face, and the handle by which the face holds it.

The keeper runs isolated from the caller's Python settings (`-I -S`: no site packages, no PYTHONPATH, no user folder), both for speed and so
that nothing in the server's surroundings can break it; the environment itself is passed on untouched, since the server inherits it.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from firsttoken.hosts.procfs import Procfs
from firsttoken.launch.folder import Key
from firsttoken.launch.spec import LaunchSpec

REPORT_WITHIN = 45.0
"""Seconds. A keeper reports in a few hundredths; a machine that swaps, or a program on storage that is slow to answer, may need longer."""

_PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from firsttoken.launch.keeper import main; main()"
_COERCED = (b"C.UTF-8", b"C.utf8", b"UTF-8")
"""Values that Python (PEP 538) gives to its own LC_CTYPE in a C locale."""


class StartError(Exception):
    """The server was not started. `code` is the shell's: 127 not found, 126 not executable or otherwise not startable."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


@dataclass(slots=True)
class KeeperHandle:
    """A started keeper. `release` (or the end of this process) lets go of it; it never ends it.

    As long as the handle is held, the keeper knows that the face lives. Say `bye` on the control socket before letting go on purpose.
    """

    keeper: Key
    server: Key
    socket: str
    folder: Path
    life_fd: int
    _reaped: bool = False

    def wait(self, seconds: float) -> bool:
        """Waits for the keeper's end; False where it has not come within so many seconds."""
        deadline = time.monotonic() + seconds
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(self.keeper.pid)
            try:
                select.select([fd], [], [], max(0.0, seconds))
            finally:
                os.close(fd)
        while not self._gone():
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        return True

    def release(self) -> None:
        """Closes our end of the pipe that says that we live. Without a `bye` before it, the keeper takes that for our death."""
        if self.life_fd >= 0:
            os.close(self.life_fd)
            self.life_fd = -1

    def _gone(self) -> bool:
        if not self._reaped:
            try:
                self._reaped = os.waitpid(self.keeper.pid, os.WNOHANG)[0] != 0
            except ChildProcessError:
                self._reaped = True
        return self._reaped and not Procfs().alive(*self.keeper)


def start_keeper(spec: LaunchSpec, folder: Path, *, seconds: float = REPORT_WITHIN) -> KeeperHandle:
    """Starts the keeper and with it the server. StartError with a sentence where the server could not be started.

    `spec.stdin_fd`, if given, must be open here. The handle must be released.
    """
    if not sys.executable:
        raise StartError("the Python that runs firsttoken does not know its own path, so the keeper cannot be started with it", 126)
    life_read, life_write = os.pipe()
    spec_read, spec_write = os.pipe()
    report_read, report_write = os.pipe()
    passed = (life_read,) if spec.stdin_fd is None else (life_read, spec.stdin_fd)
    try:
        pid = _spawn(folder, spec_read, report_write, passed)
    except OSError as cause:
        for fd in (life_read, life_write, spec_read, spec_write, report_read, report_write):
            os.close(fd)
        raise StartError(f"the keeper could not be started with {sys.executable}: {cause.strerror or cause}", 126) from cause
    for fd in (life_read, spec_read, report_write):
        os.close(fd)
    try:
        report = _exchange(replace(spec, life_fd=life_read).to_json(), spec_write, report_read, seconds)
    except BaseException:
        os.close(life_write)
        raise
    finally:
        os.close(report_read)
    if not report.get("ok"):
        os.close(life_write)
        _end(pid, kill=not report)
        silence = f"the keeper (pid {pid}) did not report within {seconds:.0f} s and was killed"
        advice = f"see {folder / 'keeper.log'}, and end what it may have begun with `firsttoken cleanup`"
        text = report.get("error") or f"{silence}; {advice}"
        raise StartError(str(text), int(report.get("code", 126)))
    server = report["server"]
    keys = Key(report["pid"], report["start"]), Key(server["pid"], server["start"])
    return KeeperHandle(keeper=keys[0], server=keys[1], socket=report["socket"], folder=folder, life_fd=life_write)


def caller_environment() -> dict[bytes, bytes]:
    """Ours, without what Python itself put into it."""
    env = dict(os.environb)
    if env.get(b"LC_CTYPE") in _COERCED:
        original = Procfs().environ(os.getpid()) or b""
        if b"PATH=" in original and b"\0LC_CTYPE=" not in b"\0" + original:
            del env[b"LC_CTYPE"]
    return env


def _spawn(folder: Path, stdin: int, stdout: int, passed: tuple[int, ...]) -> int:
    """The keeper's pid, in a session of its own, with standard error ours until it has reported.

    Not by posix_spawn: glibc's leaves its internal signals (32, 33) ignored, and the server would inherit that.
    """
    root = Path(__file__).resolve().parents[2]
    argv = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(root), str(folder)]
    process = subprocess.Popen(argv, stdin=stdin, stdout=stdout, env=caller_environment(), pass_fds=passed, start_new_session=True)
    process.returncode = 0  # the handle waits for it; the object is not to complain that nobody does
    return process.pid


def _exchange(spec: bytes, to: int, back: int, seconds: float) -> dict[str, Any]:
    """Sends the specification and reads the report; empty where none came in time."""
    deadline = time.monotonic() + seconds
    view = memoryview(spec)
    os.set_blocking(to, False)
    try:
        while view and select.select([], [to], [], max(0.0, deadline - time.monotonic()))[1]:
            view = view[os.write(to, view) :]
    except OSError:
        return {}
    finally:
        os.close(to)
    line = b""
    while not line.endswith(b"\n") and select.select([back], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(back, 65536)
        if not part:
            break
        line += part
    try:
        report = json.loads(line)
    except ValueError:
        return {}
    return report if isinstance(report, dict) else {}


def _end(pid: int, *, kill: bool) -> None:
    """Reaps a keeper that started nothing; one that has not reported is ended first, and leaves what it began to the cleanup."""
    with contextlib.suppress(OSError):
        if kill:
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
