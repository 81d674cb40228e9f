"""One server's life under firsttoken, from its command line alone: launched, decided, asked about, stopped, replayed.

It is lived once and then looked at by many tests: a real engine takes a minute to start. Nothing is asserted here; what went wrong is
kept, so that each test says its own sentence about it.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .family import Family
from .launches import Launch

START_DEADLINE = 420.0
"""Seconds from a launch to the decision, generous: the slowest healthy start seen took 178 s on two shared cores."""
STOP_DEADLINE = 150.0
ANSWER_DEADLINE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One call of the command line. `code` None: it did not return within its deadline and was killed."""

    arguments: tuple[str, ...]
    code: int | None
    out: str
    err: str
    seconds: float

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        try:
            document: dict[str, Any] = json.loads(self.out)
        except ValueError:
            raise AssertionError(f"no JSON document on stdout: {self}") from None
        return document

    def __str__(self) -> str:
        return (
            f"firsttoken {' '.join(self.arguments)}\nstatus {self.code} after {self.seconds:.1f} s\n{self.out[-3000:]}\n{self.err[-6000:]}"
        )


class Face:
    """The command line with a home of its own. Output goes to files: a server that inherits a pipe would keep us reading."""

    def __init__(self, home: Path, family: Family) -> None:
        self.home, self.family = home, family

    def __call__(self, *arguments: str, env: Mapping[str, str] | None = None, deadline: float = ANSWER_DEADLINE) -> Said:
        self.home.mkdir(parents=True, exist_ok=True)
        out, err = self.home / "stdout", self.home / "stderr"
        began = time.monotonic()
        with out.open("wb") as stdout, err.open("wb") as stderr:
            call = subprocess.Popen(
                [sys.executable, "-m", "firsttoken", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, **(env or {}), "FIRSTTOKEN_HOME": str(self.home)},
            )
            try:
                code: int | None = call.wait(deadline)
            except subprocess.TimeoutExpired:
                call.kill()
                call.wait()
                code = None
        seconds = time.monotonic() - began
        return Said(arguments=arguments, code=code, out=_text(out), err=_text(err), seconds=seconds)

    def run(self, launch: Launch, *options: str, deadline: float = START_DEADLINE) -> Said:
        return self("run", *options, "--json", "--", *launch.command, env=launch.env, deadline=deadline)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """`left`: command lines of what still ran when `stop` had returned."""

    launch: Launch
    run: Said
    wait: Said
    status: Said
    log: str
    stop: Said
    replay: Said
    left: tuple[str, ...]

    @property
    def result(self) -> dict[str, Any]:
        return self.run.document

    def __str__(self) -> str:
        return f"{self.run}\n--- the end of the server's log\n{self.log[-6000:]}"


def live(face: Face, launch: Launch) -> Life:
    run = face.run(launch, "--detach")
    wait = face("wait", "--json", "--max-wait", "5")
    status = face("status", _name(face), "--json")
    log = face("logs")
    stop = face("stop", "--json", deadline=STOP_DEADLINE)
    left = tuple(face.family.left().values())
    replay = face("replay", "--check", "--json")
    return Life(launch=launch, run=run, wait=wait, status=status, log=log.out, stop=stop, replay=replay, left=left)


def _name(face: Face) -> str:
    """The name of the latest run, or one that nobody has."""
    runs = face.home / "runs"
    return max(os.listdir(runs), default="none") if runs.is_dir() else "none"


def _text(path: Path) -> str:
    return path.read_bytes().decode(errors="replace")
