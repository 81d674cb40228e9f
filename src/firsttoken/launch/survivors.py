"""What an observer does when its keeper has died: drain the server's output, go on recording, and stop the server where that was asked.

The observer holds the master of the server's terminal, so the keeper's death does not end the server. From then on the survivor is the
recorder: it appends to the same files in the same format and gives `seq` on. It is no subreaper, so it cannot learn how the server ends,
and finds the run's processes by session, cgroup, mark and by having seen them before.
"""

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from firsttoken.hosts.procfs import Procfs
from firsttoken.launch.cgroup import recorded
from firsttoken.launch.folder import Ended, Folder, KeeperRecord, Key, here, remove_socket
from firsttoken.launch.frames import LogFrame
from firsttoken.launch.segments import Writer, last_seq
from firsttoken.launch.spec import STOP, LadderWaits
from firsttoken.launch.stopping import Stopper
from firsttoken.launch.sweep import MarkSweep
from firsttoken.launch.tree import Claim, members

_READ, _READ_TURN = 256 << 10, 1 << 20
_ENVELOPE = frozenset({"seq", "t", "wall", "node"})


class NoRecord(Exception):
    """There is no keeper.json that names processes of this machine: nothing can be taken over."""


def keeper_gone(folder: Path, procfs: Procfs | None = None) -> bool:
    """Whether the keeper that the folder names no longer runs. True where there is none."""
    record = Folder(folder).read()
    return record is None or not (procfs or Procfs()).alive(record.pid, record.start)


class Survivor:
    """Takes over a run. Wait for `fileno()` to be readable and call `read`; call `turn` when `next_at` has come, until `finished`.

    Everything is synchronous and quick but for the disk. New events, those that it makes itself included, come from `take`.
    `received_events` and `received_log` are what the observer got last from the keeper: what the keeper had not yet written is written now.
    `known`: keys of the run's processes that the observer has seen; they count also when they have left tree and session.
    """

    def __init__(
        self,
        folder: Path,
        master: int,
        *,
        received_events: Iterable[dict[str, Any]] = (),
        received_log: Iterable[LogFrame] = (),
        known: Iterable[Key] = (),
        waits: LadderWaits | None = None,
        procfs: Procfs | None = None,
    ) -> None:
        """NoRecord where the folder names no run of this machine."""
        self._folder = Folder(folder)
        self._procfs = procfs or Procfs()
        record = self._folder.read()
        if record is None or record.server is None or not here(record, self._procfs):
            raise NoRecord(f"{folder} has no keeper.json of a server on this machine")
        self._record, self._server = record, record.server
        self._master = master
        self._waits = waits or LadderWaits()
        self._known = set(known)
        self._cgroup = recorded(record.cgroup)
        self._sweep = MarkSweep(self._procfs, record.mark, record.server.start, lambda: None)
        self._fresh: list[dict[str, Any]] = []
        self._stopper: Stopper | None = None
        self._server_lives = True
        self._writer: Writer | None = Writer(self._folder)
        self._seq = last_seq(self._folder)
        self.log_end = self._writer.end
        self.closed = self.finished = False
        self._next_tick = self._next_look = time.monotonic()
        os.set_blocking(master, False)
        self._write_received(received_events, received_log)
        self.post([{"kind": "gap", "what": "keeper", "amount": 0, "reason": "the keeper died; its observer records from here on"}])
        if record.on_observer_death == STOP:
            self.stop("death of the keeper", force=True)

    @property
    def next_at(self) -> float:
        """CLOCK_MONOTONIC seconds at which `turn` wants to be called."""
        ladder = self._stopper.next_at if self._stopper else None
        return min(self._next_tick, self._next_look, *(() if ladder is None else (ladder,)))

    @property
    def t(self) -> float:
        return time.monotonic() - self._record.origin

    def fileno(self) -> int:
        return self._master

    def read(self) -> LogFrame | None:
        """What the server wrote meanwhile (at most 1 MiB), recorded. None where there is nothing; `closed` where nothing can come."""
        parts: list[bytes] = []
        size = 0
        while size < _READ_TURN and not self.closed:
            try:
                data = os.read(self._master, _READ)
            except BlockingIOError:
                break
            except OSError:  # EIO: no process has the terminal open any more
                data = b""
            if not data:
                self.closed = True
                self._next_look = time.monotonic()
            parts.append(data)
            size += len(data)
        if not size:
            return None
        frame = LogFrame(offset=self.log_end, t=self.t, data=b"".join(parts))
        self._record_log(frame)
        return frame

    def post(self, bodies: Iterable[dict[str, Any]]) -> None:
        """Records event bodies, as the keeper would."""
        for body in bodies:
            self._seq += 1
            fields = {name: value for name, value in body.items() if name not in _ENVELOPE}
            head = {"seq": self._seq, "t": round(self.t, 6), "wall": round(time.time(), 6), "node": self._record.node}
            self._write_event({**head, **fields})
            if fields.get("kind") == "judged" and fields.get("verdict") == "ready" and not self._record.ready:
                self._record = replace(self._record, ready=True)

    def take(self) -> list[dict[str, Any]]:
        """Events since the last call, with their envelope."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def stop(self, by: str, *, force: bool) -> None:
        now = time.monotonic()
        self.post([{"kind": "stop_asked", "by": by}])
        if self._stopper is not None:
            self._stopper.ask_again(now, force=force)
            return
        self._stopper = Stopper(
            self._procfs, self._claim, lambda body: self.post([body]),
            now=now, ready=self._record.ready, force=force, terminates=self._record.terminates, waits=self._waits,
        )  # fmt: skip
        if not self._server_lives:
            self._stopper.root_ended(now)

    def turn(self) -> None:
        """What is due: a tick, the ladder, the look whether anybody is left. Sets `finished` when the run is empty."""
        now = time.monotonic()
        if self._stopper is not None:
            self._stopper.turn(now)
        calm = self._record.ready and self._stopper is None and self._server_lives
        if now >= self._next_tick:
            self.post([{"kind": "tick"}])
            self._next_tick = now + (10.0 if calm else 1.0)
        if now < self._next_look:
            return
        self._next_look = now + (0.2 if self._stopper or not self._server_lives else 1.0)
        live = members(self._procfs, self._claim())
        self._known = {Key(pid, stat.start) for pid, stat in live.items()}
        if self._server_lives and self._server not in self._known:
            self._server_lives = False
            self.post([{"kind": "member_gone", "process": [self._record.node, *self._server]}])
            if self._stopper is not None:
                self._stopper.root_ended(now)
        if not live and self._sweep.nothing_left():
            while self.read() is not None:
                pass
            self.post([{"kind": "emptied"}])
            self.finished = True

    def close(self) -> None:
        """After the last word: the folder says that the run has ended (where it has), and nothing of the keeper's stays."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if not self.finished:
            return
        if self._cgroup is not None:
            self._cgroup.remove()
        remove_socket(self._record, self._folder)
        with contextlib.suppress(OSError):
            ended = Ended(None, None, "observer")
            self._folder.write(replace(self._record, ended=ended, observer=None, master_holder=None, sessions=()))

    def _claim(self) -> Claim:
        known = tuple(self._known | set(self._sweep.found))
        sessions = frozenset(self._record.sessions)
        return Claim(server=self._server, cgroup=self._cgroup, sessions=sessions, marked=known, apart=frozenset({os.getpid()}))

    def _write_received(self, events: Iterable[dict[str, Any]], frames: Iterable[LogFrame]) -> None:
        for event in events:
            if isinstance(seq := event.get("seq"), int) and seq > self._seq:
                self._seq = seq
                self._write_event(event)
        self._fresh.clear()  # the observer has seen them
        for frame in frames:
            skip = max(0, self.log_end - frame.offset)
            if skip < len(frame.data):
                self._record_log(LogFrame(offset=frame.offset + skip, t=frame.t, data=frame.data[skip:]))

    def _record_log(self, frame: LogFrame) -> None:
        self.log_end = frame.offset + len(frame.data)
        if self._writer is not None:
            try:
                self._writer.log(frame.offset, frame.t, time.time(), frame.data)
            except OSError as error:
                self._stop_recording(error)

    def _write_event(self, event: dict[str, Any]) -> None:
        self._fresh.append(event)
        if self._writer is not None:
            try:
                self._writer.event(event)
            except OSError as error:
                self._stop_recording(error)

    def _stop_recording(self, error: OSError) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self.post([{"kind": "recording_stopped", "reason": f"writing to {self._folder.path} failed: {error.strerror or error}"}])


def append_events(folder: Path, record: KeeperRecord, bodies: Iterable[dict[str, Any]]) -> None:
    """Adds events to a run that nobody records any more. OSError where the disk does not let it."""
    place = Folder(folder)
    writer = Writer(place)
    seq = last_seq(place)
    try:
        for body in bodies:
            seq += 1
            t = round(time.monotonic() - record.origin, 6)
            writer.event({"seq": seq, "t": t, "wall": round(time.time(), 6), "node": record.node, **body})
    finally:
        writer.close()
