"""The command line as a user has it: subprocesses with a home of their own. No call may ever print a traceback."""

import functools
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firsttoken.hosts.procfs import Procfs
from firsttoken.launch.cleanup import find_left, finish
from firsttoken.launch.spec import LadderWaits

TARGETS = Path(__file__).parents[1] / "targets"
FIRSTTOKEN = (sys.executable, "-m", "firsttoken")
FAKE = (sys.executable, "-S", str(TARGETS / "fake_server.py"))
FUSE = (sys.executable, str(TARGETS / "fuse_mount.py"))
"""In front of a command: beside network storage of any temper."""


@functools.cache
def can_mount() -> bool:
    """Whether this machine lets us: root, /dev/fuse, a mount namespace; seen by doing it once."""
    if os.getuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return False
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place, name) for name in ("folder", "point")]
        for folder in folders:
            folder.mkdir()
        trial = [*FUSE, "--mode", "answers", "--seconds", "20", *map(str, folders), "ls", str(folders[1])]
        return subprocess.run(trial, capture_output=True, stdin=subprocess.DEVNULL, timeout=60).returncode == 0


SECONDS = 60.0
"""What no call needs on any machine."""

RESULT = {
    "schema", "kind", "run", "attempt", "folder", "started_at", "engine", "versions", "command", "role", "world_size", "verdict", "reason",
    "proof", "claims_ready", "phase", "detail", "elapsed_s", "still_s", "eta_s", "phases", "ranks", "members", "root_blocker", "waits",
    "cycle", "weights", "timers", "endpoint", "requests", "gpus", "exit", "next", "findings", "not_checked",
}  # fmt: skip
"""The keys of a result document: none may ever be missing."""


def until(condition: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """The condition's first true value; fails when there is none in time."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {condition}"
        time.sleep(0.02)
    return value


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)


@dataclass
class Call:
    """A command that is under way; its output goes to files, so that nobody has to read it meanwhile."""

    process: "subprocess.Popen[bytes]"
    out: Path
    err: Path

    def said(self, text: str) -> str:
        """Waits until stdout or stderr has the text."""
        found: str = until(lambda: (both := self.both) if text in (both := self.both) or self.process.poll() is not None else "")
        assert text in found, f"{text!r} never came: {found}"
        return found

    @property
    def both(self) -> str:
        return self.out.read_text(errors="replace") + self.err.read_text(errors="replace")

    @property
    def run(self) -> str:
        """The run's name, as soon as it is told on stderr."""
        return self.said("firsttoken: run ").split("firsttoken: run ", 1)[1].split()[0]

    def end(self, seconds: float = SECONDS) -> Said:
        self.process.wait(seconds)
        said = Said(self.process.returncode, self.out.read_text(errors="replace"), self.err.read_text(errors="replace"))
        assert_no_traceback(said.out + said.err)
        return said


@dataclass
class Cli:
    """`cli("status")` runs to the end; `cli.start("run", …)` gives the call while it runs."""

    home: Path
    calls: list[Call] = field(default_factory=list)

    def __call__(self, *arguments: str, seconds: float = SECONDS, **options: Any) -> Said:
        return self.start(*arguments, **options).end(seconds)

    def start(self, *arguments: str, argv: tuple[str, ...] = FIRSTTOKEN, env: dict[str, str] | None = None, **options: Any) -> Call:
        place = self.home.parent / f"{self.home.name}-calls"
        place.mkdir(exist_ok=True)
        out, err = place / f"{len(self.calls)}.out", place / f"{len(self.calls)}.err"
        with out.open("wb") as to_out, err.open("wb") as to_err:
            given = {"stdin": subprocess.DEVNULL, "stdout": to_out, "stderr": to_err, "cwd": self.home.parent, **options}
            process = subprocess.Popen([*argv, *arguments], env=self.environment(**(env or {})), **given)
        call = Call(process, out, err)
        self.calls.append(call)
        return call

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("FIRSTTOKEN", "COVERAGE"))}
        return {**kept, "FIRSTTOKEN_HOME": str(self.home), "COLUMNS": "100", **more}

    def shell(self, script: str) -> Said:
        """A shell line in which `firsttoken` is ours."""
        return self.shells(script)[0]

    def shells(self, *scripts: str) -> list[Said]:
        """Several at the same time."""
        define = f'firsttoken() {{ {shlex.join(FIRSTTOKEN)} "$@"; }}; '
        return [call.end() for call in [self.start(argv=("bash", "-c", define + script)) for script in scripts]]

    def folder(self, run: str) -> Path:
        return self.home / "runs" / run

    def keeper(self, run: str) -> dict[str, Any]:
        """keeper.json once it is there."""
        file = self.folder(run) / "keeper.json"
        return until(lambda: json.loads(file.read_text()) if file.exists() else None)

    def events(self, run: str, kind: str) -> list[dict[str, Any]]:
        file = self.folder(run) / "events.jsonl"
        lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
        return [event for event in map(json.loads, lines) if event["kind"] == kind]

    def log(self, run: str) -> str:
        file = self.folder(run) / "log" / "head.raw"
        return file.read_text(errors="replace") if file.exists() else ""

    def end_all(self) -> None:
        """Whatever a test left, ended; and then nothing is left."""
        for call in self.calls:
            if call.process.poll() is None:
                call.process.kill()
            call.process.wait(SECONDS)
        for folder in sorted((self.home / "runs").glob("*")) if (self.home / "runs").is_dir() else []:
            finish(folder, waits=LadderWaits(terminate=0, leftovers=0), seconds=20)
            assert not find_left(folder)
            assert not marked(folder.name)
            for name in ("keeper.log", "observer.log"):
                assert not (folder / name).exists() or (folder / name).read_text() == ""


@dataclass(frozen=True)
class Ready:
    """A detached run that is ready, in a home of its own; tests only read it."""

    cli: Cli
    run: str
    launched: Said


def assert_no_traceback(text: str) -> None:
    """Of ours: a server may print its own."""
    assert "runpy" not in text, text
    assert "Exception ignored" not in text, text


def marked(run: str) -> list[int]:
    """Living processes that carry the run's mark in their environment."""
    procfs = Procfs()
    found = []
    for pid in procfs.pids():
        stat = procfs.stat(pid)
        if stat is not None and not stat.dead and procfs.environ_has(pid, f"FIRSTTOKEN_RUN={run}".encode()):
            found.append(pid)
    return found


def lives(pid: int) -> bool:
    stat = Procfs().stat(pid)
    return stat is not None and not stat.dead
