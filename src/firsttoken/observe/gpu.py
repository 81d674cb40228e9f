"""GPU counters, asked from a process that may never answer.

A wedged GPU puts whoever asks about it into a sleep that no signal ends. So a child asks (`gpu_probe`), one question on its standard input,
one line of JSON on its standard output; the observer only ever looks whether an answer has come, and takes it one round later. Where there
is no GPU there is no child.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from firsttoken.model.events import Body, Gpus, Missed
from firsttoken.model.gpu import GpuSample

PROBE = (sys.executable, "-P", "-m", "firsttoken.observe.gpu_probe")
LIBRARY = "FIRSTTOKEN_NVML"
"""environment variable: the NVML library to load in place of the driver's own"""
ANSWERS_WITHIN = 8.0
"""seconds; the first question initialises the driver on machines without persistence mode"""
AGAIN_AFTER = 60.0
_GOES_WITHIN = 0.5
_EARLY = 0.5
"""seconds: looks come once a second at best"""
_MOST_TRIES = 3
_MOST_LINE = 1 << 20


def present(dev: Path = Path("/dev")) -> bool:
    """Whether this machine has a GPU that can be asked; looks at names only and calls into no driver."""
    return bool(os.environ.get(LIBRARY)) or any(next(dev.glob(name), None) is not None for name in ("nvidia[0-9]*", "nvidiactl", "dxg"))


class GpuWatcher:
    """One instance a run. `command` starts a probe."""

    def __init__(
        self, command: Sequence[str] = PROBE, *, present: Callable[[], bool] = present, answers_within: float = ANSWERS_WITHIN
    ) -> None:
        self._command = tuple(command)
        self._present = present
        self._within = answers_within
        self._probe: subprocess.Popen[bytes] | None = None
        self._left: list[subprocess.Popen[bytes]] = []
        self._read = b""
        self._asked_at: float | None = None
        self._last_ask = float("-inf")
        self._tries = 0
        self._next_try = 0.0
        self._over = False

    def look(self, interval: float) -> list[Body]:
        """Never waits. What the last question brought; asks the next one `interval` seconds after it."""
        self._left = [child for child in self._left if child.poll() is None]
        if self._over or (self._probe is None and not self._start()):
            return []
        found = self._answers(interval)
        probe = self._probe
        if probe is None:
            return found
        if probe.poll() is not None and not found:
            return [self._ended(probe)]
        if self._asked_at is not None and time.monotonic() - self._asked_at > self._within:
            return [*found, self._given_up(probe)]
        if self._asked_at is None and time.monotonic() - self._last_ask >= interval - _EARLY:
            self._ask(probe)
        return found

    def close(self) -> None:
        """Lets the probe go; one that hangs stays behind until its driver lets it die."""
        self._over = True
        if self._probe is not None:
            self._drop(self._probe, kill=True)
        for child in self._left:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_GOES_WITHIN)

    def _start(self) -> bool:
        if time.monotonic() < self._next_try:
            return False
        if not self._present():
            self._over = True
            return False
        self._tries += 1
        try:
            self._probe = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0
            )
        except OSError:
            self._over = True
            return False
        assert self._probe.stdout is not None
        os.set_blocking(self._probe.stdout.fileno(), False)
        self._read = b""
        return True

    def _ask(self, probe: subprocess.Popen[bytes]) -> None:
        assert probe.stdin is not None
        with contextlib.suppress(OSError):
            os.write(probe.stdin.fileno(), b"\n")
            self._asked_at = self._last_ask = time.monotonic()

    def _answers(self, interval: float) -> list[Body]:
        probe = self._probe
        assert probe is not None
        assert probe.stdout is not None
        with contextlib.suppress(BlockingIOError, OSError):
            while block := os.read(probe.stdout.fileno(), 1 << 16):
                self._read += block
                if len(self._read) > _MOST_LINE:
                    self._read = b""
        *lines, self._read = self._read.split(b"\n")
        found: list[Body] = []
        for line in lines:
            self._asked_at = None
            body = _body(line, interval)
            if isinstance(body, str):
                self._drop(probe, kill=True)
                self._over = True
                return [*found, Missed(request="GPU counters", reason=body)]
            if body is not None:
                self._tries = 0
                found.append(body)
        return found

    def _ended(self, probe: subprocess.Popen[bytes]) -> Missed:
        code = probe.returncode
        self._drop(probe)
        return self._missed(f"the process that asks NVML ended with status {code}")

    def _given_up(self, probe: subprocess.Popen[bytes]) -> Missed:
        """A GPU that does not answer is news by itself."""
        self._drop(probe, kill=True)
        asked = f"asked by pid {probe.pid}"
        return self._missed(f"the driver gave no answer for {self._within:.0f} s ({asked}): a GPU of this machine may hang")

    def _missed(self, reason: str) -> Missed:
        self._next_try = time.monotonic() + AGAIN_AFTER
        self._over = self._tries >= _MOST_TRIES
        return Missed(request="GPU counters", reason=reason)

    def _drop(self, probe: subprocess.Popen[bytes], *, kill: bool = False) -> None:
        if kill and probe.poll() is None:
            probe.kill()
        for stream in (probe.stdin, probe.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        if probe.poll() is None:
            self._left.append(probe)
        self._probe, self._asked_at, self._read = None, None, b""


def _body(line: bytes, interval: float) -> Gpus | str | None:
    """A sample, in words why there is none, or None for a line that is neither."""
    try:
        told = json.loads(line)
        if "error" in told:
            return str(told["error"])
        samples = msgspec.convert(told["gpus"], tuple[GpuSample, ...])
        return Gpus(interval=interval, samples=samples, source=str(told["source"]), driver=told.get("driver"))
    except (ValueError, TypeError, KeyError, msgspec.ValidationError, RecursionError):
        return None
