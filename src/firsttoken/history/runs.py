"""Runs on disk. The folders are the index: a run is found by its name, any unique part of it, or as the latest.

`$FIRSTTOKEN_HOME`, else the platform's state folder. Folders are 0700: raw logs may hold what only their owner may read.
"""

import contextlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import platformdirs

from firsttoken.model import codec
from firsttoken.model.events import Event


class RunNotFound(LookupError):
    """No run, or several, answer to the name; the message lists what there is."""


def home() -> Path:
    given = os.environ.get("FIRSTTOKEN_HOME")
    return Path(given).expanduser() if given else Path(platformdirs.user_state_dir("firsttoken"))


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths and small reads of one run's folder; see docs/decisions/0001 for who writes what."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def events_file(self) -> Path:
        return self.path / "events.jsonl"

    def keeper(self) -> dict[str, Any]:
        """keeper.json, or {} where it is not there (the keeper never started) or not readable."""
        return _read_json(self.path / "keeper.json")

    def attached(self) -> dict[str, Any]:
        """attached.json, in the folder of a server that somebody else started; {} in any other."""
        return _read_json(self.path / "attached.json")

    def spec(self) -> dict[str, Any]:
        return _read_json(self.path / "spec.json")

    def result(self) -> dict[str, Any]:
        return _read_json(self.path / "result.json")

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        """Atomically: a reader sees the old or the new content, whatever happens to us."""
        target, partial = self.path / name, self.path / f".{name}.{os.getpid()}"
        with open(partial, "w", encoding="utf8", opener=lambda p, flags: os.open(p, flags, 0o600)) as file:
            json.dump(content, file, indent=1)  # ASCII: arguments that are no UTF-8 come back as they were
        partial.replace(target)

    def events(self) -> Iterator[Event]:
        """What is recorded so far; a torn last line is left out. OSError where the file cannot be read."""
        try:
            file = self.events_file.open("rb")
        except FileNotFoundError:
            return
        with file:
            yield from codec.read(file)

    def log_segments(self) -> list[tuple[int, Path]]:
        """(offset of the first byte, file), in order."""
        found = [(0, self.path / "log" / "head.raw")]
        for file in (self.path / "log").glob("tail-*.raw"):
            offset = re.fullmatch(r"tail-(\d+)\.raw", file.name)
            if offset:
                found.append((int(offset[1]), file))
        return sorted(pair for pair in found if pair[1].exists())

    def log(self, start: int = 0) -> Iterator[tuple[int, bytes]]:
        """(offset, bytes) from `start`; a dropped middle shows as a jump in the offsets."""
        for offset, file in self.log_segments():
            try:
                raw = file.open("rb")
            except FileNotFoundError:
                continue  # dropped meanwhile, to stay within bounds
            with raw:
                at = max(start, offset)
                raw.seek(at - offset)
                while block := raw.read(1 << 20):
                    yield at, block
                    at += len(block)

    def log_times(self) -> list[tuple[int, float]]:
        """(offset, seconds since launch when the bytes from there on were read), in order, by the keeper's index; torn lines left out."""
        try:
            lines = (self.path / "log" / "index").read_bytes().splitlines()
        except OSError:
            return []
        found = []
        for line in lines:
            with contextlib.suppress(ValueError, IndexError):
                offset, t = line.split()[:2]
                found.append((int(offset), float(t)))
        return sorted(found)


def create(command: str, now: datetime) -> RunFolder:
    """A new run's folder; its name is time, command and four random hex digits: `20261129-181145-vllm-7f3a`."""
    word = re.sub(r"[^a-z0-9]+", "-", command.lower()).strip("-")[:24] or "run"
    root = home() / "runs"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        path = root / f"{now:%Y%m%d-%H%M%S}-{word}-{secrets.token_hex(2)}"
        try:
            path.mkdir(mode=0o700)
            return RunFolder(path)
        except FileExistsError:
            continue


def runs() -> list[RunFolder]:
    """All runs, oldest first."""
    root = home() / "runs"
    if not root.is_dir():
        return []
    return [RunFolder(path) for path in sorted(root.iterdir()) if path.is_dir()]


def find(name: str | None) -> RunFolder:
    """By path, name or unique part of it; None is the latest."""
    if name is not None and (Path(name) / "events.jsonl").exists():
        return RunFolder(Path(name).resolve())
    known = runs()
    if not known:
        raise RunNotFound(f"there is no run yet under {home() / 'runs'}; `firsttoken run -- COMMAND` makes one")
    if name is None:
        return known[-1]
    exact = [run for run in known if run.name == name]
    found = exact or [run for run in known if name in run.name]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(run.name for run in (found or known)[-8:])
    problem = f"{len(found)} runs answer to {name!r}" if found else f"no run is called {name!r} under {home() / 'runs'}"
    raise RunNotFound(f"{problem}; try one of: {listed}")


def remove(run: RunFolder) -> int:
    """Deletes an ended run's folder; bytes freed."""
    size = sum(file.stat().st_size for file in run.path.rglob("*") if file.is_file())
    shutil.rmtree(run.path)
    return size


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
