"""Servers that are started by hand, served from, and then partly frozen: what a user finds at 3 a.m. and attaches to."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .install import HERE
from .launches import Launch
from .life import START_DEADLINE, Face

_STEP = 0.1
_ANSWERS_WITHIN = 60.0
_FROZEN_AT_MOST = 240.0
_REQUESTS = 2


@dataclass(frozen=True, slots=True)
class Server:
    process: "subprocess.Popen[bytes]"
    port: int

    @property
    def pid(self) -> int:
        return self.process.pid

    def get(self, path: str) -> int:
        """The status of one GET."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=_ANSWERS_WITHIN) as answer:
            return int(answer.status)

    def complete(self) -> None:
        """One generation, for its work."""
        body = json.dumps({"prompt": "hello", "max_tokens": 50}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions", data=body, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=_ANSWERS_WITHIN) as answer:
            answer.read()

    def busiest_thread(self) -> int:
        """The thread, other than the main one where there is one, that works most while tokens are made: the first of those alike."""
        before = self._ticks()
        for _ in range(_REQUESTS):
            self.complete()
        after = self._ticks()
        worked = {tid: ticks - before.get(tid, 0) for tid, ticks in after.items() if tid != self.pid}
        most = max(worked.values())
        return min(tid for tid, ticks in worked.items() if ticks * 2 >= most)

    def _ticks(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for name in os.listdir(f"/proc/{self.pid}/task"):
            try:
                fields = Path(f"/proc/{self.pid}/task/{name}/stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            found[int(name)] = int(fields[11]) + int(fields[12])
        return found


@contextmanager
def serving(face: Face, launch: Launch, ready: str) -> Iterator[Server]:
    """A server that firsttoken did not start, with its output in a file, once its log has said `ready`."""
    face.home.mkdir(parents=True, exist_ok=True)
    log = face.home / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            launch.command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**os.environ, **launch.env}, start_new_session=True
        )
    try:
        until = time.monotonic() + START_DEADLINE
        while ready not in log.read_text(errors="replace"):
            assert process.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < until, log.read_text(errors="replace")
            time.sleep(_STEP)
        yield Server(process, launch.port)
    finally:
        process.kill()
        process.wait(_ANSWERS_WITHIN)


@contextmanager
def frozen(thread: int) -> Iterator[None]:
    """One thread stands still meanwhile, and runs on afterwards."""
    with subprocess.Popen(
        [sys.executable, str(HERE / "freeze_thread.py"), str(thread), str(_FROZEN_AT_MOST)], stdout=subprocess.PIPE, text=True
    ) as freezer:
        try:
            assert freezer.stdout is not None
            assert freezer.stdout.readline().split() == ["frozen", str(thread)]
            yield
        finally:
            freezer.terminate()
            freezer.wait(_ANSWERS_WITHIN)
