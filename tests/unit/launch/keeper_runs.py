"""Real keepers with small servers: starting them, waiting for what they say, reading what they wrote."""

import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firsttoken.hosts.procfs import Procfs
from firsttoken.launch.control import Control
from firsttoken.launch.folder import Folder, KeeperRecord
from firsttoken.launch.frames import JsonFrame, LogFrame
from firsttoken.launch.segments import segments
from firsttoken.launch.spec import LadderWaits
from firsttoken.launch.start import KeeperHandle

TARGETS = Path(__file__).parents[2] / "targets"
PYTHON = (sys.executable, "-S")
QUICK = LadderWaits(terminate=0.3, leftovers=0.3)


def until(condition: Callable[[], Any], seconds: float = 10.0) -> Any:
    """The condition's first true value; fails when there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds} s: {condition}"
        time.sleep(0.01)


@dataclass
class Run:
    handle: KeeperHandle
    folder: Path
    controls: list[Control] = field(default_factory=list)

    @property
    def record(self) -> KeeperRecord:
        record = Folder(self.folder).read()
        assert record is not None
        return record

    def control(self, role: str = "control", **cursors: int) -> Control:
        control = Control(self.handle.socket)
        control.hello(role, **cursors)
        self.controls.append(control)
        return control

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        with suppress(FileNotFoundError):
            lines = (self.folder / "events.jsonl").read_bytes().split(b"\n")
            found = [json.loads(line) for line in lines[:-1] if line]
            return [event for event in found if kind is None or event["kind"] == kind]
        return []

    def log(self) -> bytes:
        return b"".join((self.folder / "log" / part.name).read_bytes() for part in segments(Folder(self.folder)))

    def said(self, text: bytes) -> bytes:
        """Waits for the text in the recorded log; the log."""
        return until(lambda: self.log() if text in self.log() else b"")

    def ended(self, seconds: float = 15.0) -> KeeperRecord:
        assert self.handle.wait(seconds), f"the keeper still runs; its last events: {self.events()[-5:]}"
        return self.record


def target(name: str, *arguments: str) -> tuple[str, ...]:
    return (*PYTHON, str(TARGETS / name), *arguments)


def collect(control: Control, seconds: float = 20.0) -> tuple[bytes, list[dict[str, Any]], list[dict[str, Any]]]:
    """All that a client gets until the end: log bytes, events, other objects."""
    log, events, others = b"", [], []
    for frame in control.frames(seconds=seconds):
        if isinstance(frame, LogFrame):
            log += frame.data
        elif isinstance(frame, JsonFrame) and "events" in frame.value:
            events += frame.value["events"]
        else:
            others.append(frame.value)
    return log, events, others


def alive(pid: int) -> bool:
    stat = Procfs().stat(pid)
    return stat is not None and not stat.dead
