"""What the keeper knows and writes down: output and events, each first into its ring for the clients, then to the recorder.

`seq`, `t`, `wall` and `node` are given here and nowhere else, so the order of a run's events is that of one loop.
"""

import json
import os
import time
from collections.abc import Callable
from typing import Any

from firsttoken.launch.folder import Folder
from firsttoken.launch.recorder import Recorder
from firsttoken.launch.rings import EventRing, LogRing

_CALM_INDEX = 1.0
_ORPHAN_EXITS_A_SECOND = 50
EVENTS_BYTES = 128 << 20
"""on disk, of a run; from then on what comes at regular intervals goes to the clients only (a server of a month must not fill a disk)"""
_REGULAR = frozenset({"counters", "engine_counters", "tick"})


class Journal:
    """`origin` is CLOCK_MONOTONIC at launch, set by `begin`. Until `record` nothing goes to the disk."""

    def __init__(self, folder: Folder, node: str, wake: Callable[[], None]) -> None:
        self.log, self.events = LogRing(), EventRing()
        self.origin, self.started_at = time.monotonic(), time.time()
        self.recording = True
        self._folder, self._node, self._wake = folder, node, wake
        self._recorder: Recorder | None = None
        self._orphan_second, self._orphan_exits = 0, 0
        self._written, self._thinned = 0, False

    @property
    def t(self) -> float:
        return time.monotonic() - self.origin

    def begin(self) -> None:
        """Now is the launch."""
        self.origin, self.started_at = time.monotonic(), time.time()

    def record(self) -> None:
        """Starts the recorder's thread: not before the server was forked."""
        self._recorder = Recorder(self._folder, self._wake)

    def output(self, data: bytes) -> None:
        t, wall, offset = self.t, time.time(), self.log.end
        self.log.add(t, data)
        if self._recorder is not None:
            self._recorder.log(offset, t, wall, data)

    def emit(self, fields: dict[str, Any], *, t: float | None = None) -> None:
        """Records one event body: `kind` and its fields. `t` None: now."""
        written = self._written < EVENTS_BYTES or fields.get("kind") not in _REGULAR
        if not written and not self._thinned:
            self._thinned = True
            self._gap("events", 1, f"the record has {EVENTS_BYTES >> 20} MiB: from here on counters are not written")
        line = self.encode(fields, t=t)
        if self._recorder is not None and written:
            self._recorder.event(line + b"\n")
            self._written += len(line)
        self.events.add(line, self.log.end)

    def exited(self, process: list[Any], code: int | None, number: int | None, *, root: bool) -> None:
        """Adopted processes may end by the thousand: a second's first fifty are told one by one, the others as a gap."""
        second = int(self.t)
        if second != self._orphan_second:
            lost = self._orphan_exits - _ORPHAN_EXITS_A_SECOND
            self._orphan_second, self._orphan_exits = second, 0
            if lost > 0:
                self._gap("exits", lost, "adopted processes ended faster than they are recorded")
        self._orphan_exits += not root
        if root or self._orphan_exits <= _ORPHAN_EXITS_A_SECOND:
            self.emit({"kind": "exited", "process": process, "code": code, "signal": number, "root": root})

    def encode(self, fields: dict[str, Any], *, t: float | None = None) -> bytes:
        head = {"seq": self.events.next, "t": round(self.t if t is None else t, 6), "wall": round(time.time(), 6), "node": self._node}
        return json.dumps({**head, **fields}, separators=(",", ":")).encode()

    def calm(self) -> None:
        """The server is ready: a coarser index will do."""
        if self._recorder is not None:
            self._recorder.calm(_CALM_INDEX)

    def job(self, run: Callable[[], object]) -> None:
        """Something else that touches the disk: the loop does not."""
        if self._recorder is not None:
            self._recorder.job(run)

    def hear(self) -> None:
        """Turns what the recorder has to tell into events. Cheap; call it at each wake-up and each second."""
        if self._recorder is None:
            return
        news = self._recorder.news()
        if news.dropped:
            self._gap("log", news.dropped, "only the first and the last 64 MiB of output are kept")
        if news.stopped is not None:
            self._last_words(news.stopped)
        if self.recording or news.stopped is not None:
            reason = news.stopped or "the disk was slower than what came"
            if news.lost_log:
                self._gap("log", news.lost_log, reason)
            if news.lost_events:
                self._gap("events", news.lost_events, reason)
        self.recording = self._recorder.failed is None

    def close(self, seconds: float) -> bool:
        """Writes what is queued; False where the disk does not get done in time."""
        return self._recorder is None or self._recorder.close(seconds)

    def _gap(self, what: str, amount: int, reason: str) -> None:
        self.emit({"kind": "gap", "what": what, "amount": amount, "reason": reason})

    def _last_words(self, reason: str) -> None:
        """Tried on the disk once more, past the recorder that has given up: a line may fit where a chunk did not."""
        line = self.encode({"kind": "recording_stopped", "reason": reason})
        self.events.add(line, self.log.end)
        self.job(lambda: _append(self._folder, line + b"\n"))


def _append(folder: Folder, line: bytes) -> None:
    fd = os.open(folder.events, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)
