"""A server under test: started as users start it, watched by its log, and always ended."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).resolve().parents[3] / "src"
DEADLINE_S = 30.0
_QUICK = [f"--pace={phase}=0.03" for phase in ("config", "weights", "post_load", "kv_cache", "compile", "graph_capture", "warmup")]


def until(holds: Callable[[], Any], what: str, seconds: float = DEADLINE_S) -> Any:
    """The first true value of `holds`; fails with `what` at the deadline."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := holds():
            return found
        time.sleep(0.02)
    raise AssertionError(f"never came: {what}")


class Running:
    """One `python -m firsttoken.rehearsal` on a free port."""

    def __init__(self, folder: Path, cache: Path, *args: str) -> None:
        self.temp = folder / "tmp"
        self.temp.mkdir(exist_ok=True)
        self._fault_log = folder / "faults.jsonl"
        env = os.environ | {"PYTHONPATH": str(SOURCE), "XDG_CACHE_HOME": str(cache), "TMPDIR": str(self.temp)}
        env["REHEARSE_FAULT_LOG"] = str(self._fault_log)
        command = [sys.executable, "-m", "firsttoken.rehearsal", "--port", "0", "--shard-mb", "1", "--shards", "3", *_QUICK, *args]
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.log = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self._seen: set[int] = set()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first match in the log."""
        found = until(lambda: re.search(pattern, self.log) or self.process.poll() is not None, f"{pattern} in\n{self.log}")
        if found is True:
            self._reader.join(5)
            found = re.search(pattern, self.log)
        assert found, f"{pattern} not in\n{self.log}"
        return found

    def url(self) -> str:
        address = self.wait_for(r"Listening on (http://\S+)")[1]
        self.wait_for("ready to serve")
        return address

    def ask(self, path: str, body: Any = None, *, timeout: float = 10, key: str = "") -> tuple[int, str]:
        """Status and text of a GET, or of a POST where there is a body."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url() + path, data, {"Authorization": f"Bearer {key}"})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def fault(self) -> dict[str, Any]:
        """The first note of a fault, once it is there."""
        return until(self.faults, f"a fault's note in\n{self.log}")[0]

    def faults(self) -> list[dict[str, Any]]:
        """The notes of all faults that have begun."""
        return [json.loads(line) for line in self._fault_log.read_text().splitlines()] if self._fault_log.exists() else []

    def members(self) -> set[int]:
        """Pids of main's descendants and of the bystander that are alive now."""
        pids = {pid for pid in _pids() if _belongs(pid, self.process.pid, str(self.temp))}
        self._seen |= pids
        return pids

    def assert_nothing_left(self) -> None:
        """All that ever were members are gone, and so are the run-time files."""
        until(lambda: not [pid for pid in self._seen if _state(pid) not in ("", "Z")], f"the end of {self._seen}", 5)
        until(lambda: not list(self.temp.iterdir()), f"an empty {self.temp}", 5)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(15)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(5)
        self._reader.join(5)
        if self.process.stderr is not None:
            self.process.stderr.close()

    def _read(self) -> None:
        assert self.process.stderr is not None
        while piece := os.read(self.process.stderr.fileno(), 65536):
            self.log += piece.decode()


Start = Callable[..., Running]


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def start(tmp_path: Path, cache: Path) -> Iterator[Start]:
    runs: list[Running] = []

    def begin(*args: str) -> Running:
        runs.append(Running(tmp_path, cache, *args))
        return runs[-1]

    yield begin
    for run in runs:
        run.end()


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _state(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def _belongs(pid: int, main: int, temp: str) -> bool:
    try:
        if str(temp) in " ".join(os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")):
            return True
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return False
    return parent == main or (parent > 1 and _belongs(parent, main, temp))
