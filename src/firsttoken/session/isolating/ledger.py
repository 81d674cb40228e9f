"""What an isolation has done, one JSON line at a time: whoever finds it goes on where it broke off and repeats no trial.

It holds names of settings and masked commands only; the real command is given again by whoever resumes.
"""

import fcntl
import json
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from firsttoken.history.runs import home
from firsttoken.model.isolation import Setting, Trial

_FILE = "ledger.jsonl"


@dataclass(slots=True)
class Ledger:
    """`unfinished`: the launches that have no trial, as they were written, by number: whoever made them was killed. `broken`: how many of
    those there were."""

    folder: Path
    begun: dict[str, Any] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)
    suspects: dict[str, tuple[float, str]] | None = None
    unfinished: dict[int, Trial] = field(default_factory=dict)
    broken: int = 0
    ended: str | None = None
    _held: int | None = None

    @property
    def name(self) -> str:
        return self.folder.name

    @classmethod
    def open(cls, folder: Path) -> "Ledger":
        """What the file holds; a torn last line is left out. OSError where it cannot be read."""
        ledger = cls(folder)
        for line in (folder / _FILE).read_bytes().splitlines():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict):
                ledger._take(row)
        return ledger

    def hold(self) -> bool:
        """Whether it is ours from now on, until we end: two that go on with one isolation would stop each other's trials."""
        fd = os.open(self.folder / _FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        self._held = fd
        return True

    def leave(self) -> None:
        """Somebody else may go on with it; our end does the same."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def begin(self, command: Sequence[str], about: Mapping[str, Any]) -> None:
        self._add({"kind": "begin", "command": list(command), **about})

    def suspect(self, settings: Sequence[Setting]) -> None:
        """The settings that the search is about, in its order, once the baseline has failed."""
        self._add({"kind": "suspects", "settings": [[one.label, one.suspicion, one.because] for one in settings]})

    def launch(self, trial: Trial, run: str) -> None:
        """Before anything has come out of it."""
        self._add({"kind": "launch", "number": trial.number, "trial": msgspec.to_builtins(replace(trial, run=run))})

    def broke_off(self, number: int) -> None:
        self._add({"kind": "broken", "number": number})

    def trial(self, trial: Trial) -> None:
        self._add({"kind": "trial", "trial": msgspec.to_builtins(trial)})

    def end(self, state: str) -> None:
        self._add({"kind": "end", "state": state})

    def _add(self, row: dict[str, Any]) -> None:
        """On disk before anything follows from it."""
        path = self.folder / _FILE
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            torn = os.fstat(fd).st_size > 0 and _last_byte(path) != b"\n"
            left = (b"\n" if torn else b"") + json.dumps(row).encode() + b"\n"
            while left:  # of a disk that is nearly full a part comes back first, the error with the next
                left = left[os.write(fd, left) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        self._take(row)

    def _take(self, row: dict[str, Any]) -> None:
        try:
            match row.get("kind"):
                case "begin":
                    self.begun = row
                case "suspects":
                    self.suspects = {str(label): (float(share), str(why)) for label, share, why in row["settings"]}
                case "launch":
                    self.unfinished[int(row["number"])] = msgspec.convert(row["trial"], Trial)
                case "broken":
                    self.unfinished.pop(int(row["number"]), None)
                    self.broken += 1
                case "trial":
                    trial = msgspec.convert(row["trial"], Trial)
                    self.trials.append(trial)
                    self.unfinished.pop(trial.number, None)
                case "end":
                    self.ended = str(row["state"])
                case _:
                    pass
        except (KeyError, TypeError, ValueError, msgspec.ValidationError):
            pass
        if row.get("kind") in ("launch", "trial"):
            self.ended = None


def create(engine: str) -> Ledger:
    """OSError where no folder can be made."""
    word = re.sub(r"[^a-z0-9]+", "-", engine.lower()).strip("-")[:24] or "command"
    folder = _root() / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{word}-{secrets.token_hex(2)}"
    folder.mkdir(mode=0o700, parents=True)
    ledger = Ledger(folder)
    ledger.hold()
    return ledger


def unfinished(command: Sequence[str], about: Mapping[str, Any]) -> Ledger | None:
    """The latest isolation of just this command, with just these wishes, that has no answer yet and that nobody is at."""
    root = _root()
    for folder in sorted(root.iterdir(), reverse=True) if root.is_dir() else ():
        try:
            ledger = Ledger.open(folder)
        except OSError:
            continue
        wanted = {"kind": "begin", "command": list(command), **about}
        if ledger.begun == json.loads(json.dumps(wanted)):
            return ledger if ledger.ended is None and ledger.hold() else None
    return None


def _root() -> Path:
    return home() / "isolations"


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1)
