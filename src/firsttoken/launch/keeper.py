"""The keeper: one small process per run that starts the server, forwards and records its output, and is there when it ends.

`python -m firsttoken.launch.keeper FOLDER` with a `LaunchSpec` as JSON on stdin answers one JSON line on stdout and then lets go of its
caller. Standard library only, one loop, no judgement: what can fail lives in the observer. Nothing in the loop waits for a disk, a client
or a process; the recorder has a thread, clients have cursors, and the sweep for marked processes has a thread that may be left behind.
"""

import contextlib
import json
import os
import selectors
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from firsttoken.hosts.procfs import Procfs
from firsttoken.launch import cgroup as cgroups
from firsttoken.launch.clients import ControlServer
from firsttoken.launch.detach import Signals, let_go, settle
from firsttoken.launch.folder import MARK, Ended, Folder, KeeperRecord, Key, pid_namespace, remove_socket, socket_path
from firsttoken.launch.journal import Journal
from firsttoken.launch.minder import Minder
from firsttoken.launch.segments import Writer
from firsttoken.launch.spawn import Refused, original_environment, server_environment, spawn_server
from firsttoken.launch.spec import STOP, LaunchSpec, SpecError, from_json
from firsttoken.launch.stopping import Stopper
from firsttoken.launch.sweep import MarkSweep
from firsttoken.launch.terminal import open_outlet
from firsttoken.launch.tree import Claim, is_empty

TICK_STARTING, TICK_READY = 1.0, 10.0
FAREWELL, DRAIN, OBSERVER_LEAVE, DISK_CLOSE = 10.0, 3.0, 2.0, 3.0
"""Seconds, at the end: for the observer's last word, for slow clients, for the observer's own end, for the disk."""
_READ_TURN = 1 << 20
_READ = 256 << 10
_CHECK = 1.0
_LAST_BYE = 0.2
"""Seconds that a `bye` on its way to us is waited for after the end of the face's pipe."""
_ENVELOPE = frozenset({"seq", "t", "wall", "node"})


def launch(folder: Folder, spec: LaunchSpec, procfs: Procfs) -> "Keeper | Refused":
    """Starts the server, with everything ready to hear it. OSError where this machine does not let us (no socket, terminal or fork)."""
    selector = selectors.DefaultSelector()
    keeper = Keeper(folder, spec, procfs, selector)
    group = cgroups.create(f"{spec.run}-{spec.attempt}") if spec.cgroup else None
    outlet = open_outlet(pipe=spec.pipe, rows=spec.rows, columns=spec.columns)
    procs = group.open_procs() if group else None
    keeper.journal.begin()
    spawned = spawn_server(spec, server_environment(spec, keeper.environment), outlet.write, procs)
    for fd in (procs, outlet.write, spec.stdin_fd):
        if fd is not None:
            os.close(fd)
    if isinstance(spawned, Refused):
        keeper.refuse(spawned)
        if group is not None:
            group.remove()
        return spawned
    stat = procfs.stat(spawned)
    if group is not None and spawned not in group.pids() and stat is not None and not stat.dead:
        group.remove(0)
        group = None
    keeper.take(Key(spawned, stat.start if stat else 0), outlet.read, group)
    return keeper


class Keeper:
    """One run, from the spawned server until no process of it is left. Implements `clients.Commands`."""

    def __init__(self, folder: Folder, spec: LaunchSpec, procfs: Procfs, selector: selectors.BaseSelector) -> None:
        self.environment = original_environment()
        self._folder, self._spec, self._procfs, self._selector = folder, spec, procfs, selector
        self._signals = Signals(selector, self._on_wake)
        self.journal = Journal(folder, spec.node, self._signals.wake)
        self._control = ControlServer(socket_path(folder), selector, self.journal.log, self.journal.events, self)
        self._terminates = spec.terminates
        self._face_left = self._observer_left = self._finished = False
        self._exit: Ended | None = None
        self._stopper: Stopper | None = None
        self._cgroup: cgroups.Cgroup | None = None
        self._life_ended_at: float | None = None
        self._emptied_at: float | None = None
        self._said_ended_at: float | None = None
        self._next_tick = self._next_check = 0.0
        own = procfs.stat(os.getpid())
        self.record = KeeperRecord(
            run=spec.run, node=spec.node, boot_id=procfs.boot_id(), pid_namespace=pid_namespace(), pid=os.getpid(),
            start=own.start if own else 0, socket=self._control.path, started_at=0.0, origin=0.0,
            mark=f"{MARK}={spec.run}" if spec.mark else None, cgroup=None, on_observer_death=spec.on_observer_death,
            attempt=spec.attempt, terminates=spec.terminates, pty=not spec.pipe,
        )  # fmt: skip

    def refuse(self, refused: Refused) -> None:
        """Nothing runs: the folder tells it, and nothing of ours stays."""
        self.record = replace(self.record, ended=Ended(refused.code, None), started_at=self.journal.started_at, origin=self.journal.origin)
        with contextlib.suppress(OSError):
            writer = Writer(self._folder)
            writer.events(self.journal.encode({"kind": "launch_failed", "error": refused.error, "code": refused.code}) + b"\n")
            writer.close()
            self._folder.write(self.record)
        self._control.close()
        remove_socket(self.record, self._folder)

    def take(self, server: Key, output: int, group: cgroups.Cgroup | None) -> None:
        """The server runs: writes down who it is, before anything else can go wrong."""
        self._server, self._output, self._cgroup = server, output, group
        self._sweep = MarkSweep(self._procfs, self.record.mark, server.start, self._signals.wake)
        self.record = replace(
            self.record, server=server, cgroup=str(group.path) if group else None,
            started_at=self.journal.started_at, origin=self.journal.origin,
        )  # fmt: skip
        with contextlib.suppress(OSError):  # a full disk: the recorder will say so
            self._folder.write(self.record)

    def run(self) -> None:
        """Until no process of the run is left and everybody has been told."""
        self.journal.record()
        self.journal.emit(
            {"kind": "launched", "process": [self._spec.node, *self._server], "argv": self._spec.shown_argv, "pty": self.record.pty,
             "cgroup": self.record.cgroup, "run": self._spec.run, "attempt": self._spec.attempt},
            t=0.0,
        )  # fmt: skip
        self._minder = Minder(
            self._procfs, self.journal.emit, self._spec.observer_argv, self.environment,
            master=self._output, log=_observer_log(self._folder), told=json.dumps(self._spec.secrets).encode(),
            silence=self._spec.observer_silence,
        )  # fmt: skip
        self._selector.register(self._output, selectors.EVENT_READ, self._on_output)
        if self._spec.life_fd is not None:
            self._selector.register(self._spec.life_fd, selectors.EVENT_READ, self._on_life)
        self._minder.start(time.monotonic())
        self._save()
        self._reap()
        more = False
        while not self._finished:
            for key, mask in self._selector.select(0 if more else self._patience()):
                key.data(mask)
            more = self._turn(time.monotonic())
        self._close()

    # What clients ask (clients.Commands).

    def post(self, bodies: list[dict[str, Any]]) -> None:
        self._minder.heard(time.monotonic())
        for body in bodies:
            fields = {name: value for name, value in body.items() if name not in _ENVELOPE}
            kind, plan = fields.get("kind"), fields.get("plan")
            if not isinstance(kind, str):
                continue
            self.journal.emit(fields)
            if kind == "judged" and fields.get("verdict") == "ready" and not self.record.ready:
                self.record = replace(self.record, ready=True)
                self.journal.calm()
                self._save()
            if kind == "plan" and isinstance(plan, dict) and isinstance(plan.get("terminates"), int):
                self._terminates = max(1, min(plan["terminates"], 5))

    def forward(self, number: int) -> None:
        if self._exit is not None or not 0 < number < signal.NSIG:
            return
        # Our own child, not reaped yet: its pid cannot be anybody else's.
        with contextlib.suppress(OSError):
            os.kill(self._server.pid, number)
            self.journal.emit({"kind": "signal_sent", "signal": number, "pid": self._server.pid, "why": "forwarded"})

    def stop(self, by: str, *, force: bool) -> None:
        if self._emptied_at is not None:
            return
        now = time.monotonic()
        self.journal.emit({"kind": "stop_asked", "by": by})
        if self._stopper is not None:
            self._stopper.ask_again(now, force=force)
            return
        self._stopper = Stopper(
            self._procfs, self._claim, self.journal.emit,
            now=now, ready=self.record.ready, force=force, terminates=self._terminates, waits=self._spec.waits,
        )  # fmt: skip
        if self._exit is not None:
            self._stopper.root_ended(now)

    def state(self) -> dict[str, Any]:
        return {
            **self.record.to_json(), "seq": self.journal.events.next - 1, "log_end": self.journal.log.end,
            "stopping": self._stopper is not None, "stuck": [stat.pid for stat in self._stopper.stuck] if self._stopper else [],
            "recording": self.journal.recording,
        }  # fmt: skip

    def left(self, role: str, *, politely: bool) -> None:
        if role == "observer" and politely and self._emptied_at is not None:
            self._observer_left = True
            self._next_check = 0.0
        elif role == "face" and politely:
            self._face_left = True
        elif role == "face":
            self._face_died()

    # What happens.

    def _on_output(self, _mask: int) -> bool:
        """Reads at most 1 MiB. True where there may be more."""
        parts: list[bytes] = []
        size, still_open, more = 0, True, True
        while more and size < _READ_TURN:
            try:
                data = os.read(self._output, _READ)
            except BlockingIOError:
                more = False
            except OSError:  # EIO: no process has the terminal open any more
                more = still_open = False
            else:
                parts.append(data)
                size += len(data)
                more = still_open = bool(data)
        if size:
            self.journal.output(b"".join(parts))
        if not still_open:
            with contextlib.suppress(KeyError):
                self._selector.unregister(self._output)
        return more

    def _on_wake(self, signals: set[signal.Signals]) -> None:
        for item in signals - {signal.SIGCHLD}:
            self.stop(f"{item.name} to the keeper", force=False)
        self._reap()
        self._next_check = 0.0
        self.journal.hear()

    def _on_life(self, _mask: int) -> None:
        assert self._spec.life_fd is not None
        if os.read(self._spec.life_fd, 64) == b"":
            self._selector.unregister(self._spec.life_fd)
            os.close(self._spec.life_fd)
            self._life_ended_at = time.monotonic()

    def _face_died(self) -> None:
        if not self._face_left and self._spec.on_observer_death == STOP and self._stopper is None:
            self.stop("death of the face", force=True)
        self._face_left = True

    def _reap(self) -> None:
        """The one place that waits for processes: the server, its orphans, the observer and what that left."""
        while True:
            try:
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if info is None:
                return
            stat = self._procfs.stat(info.si_pid)
            root = info.si_pid == self._server.pid
            if root:
                for _ in range(4):  # what it said before its end comes before its end
                    if not self._on_output(0):
                        break
            pid, status = os.waitpid(info.si_pid, 0)
            self._reaped(Key(pid, stat.start if stat else 0), stat.sid if stat else 0, status, root=root)

    def _reaped(self, key: Key, session: int, status: int, *, root: bool) -> None:
        now = time.monotonic()
        needed = self._emptied_at is None
        if self._minder.ended(key.pid, status, now, again=needed):
            if self._minder.given_up and needed and self._spec.on_observer_death == STOP:
                self.stop("death of the observer", force=True)
            self._save()
            return
        if session in self._minder.sessions:
            self._minder.buried(session)
            return
        code = os.waitstatus_to_exitcode(status)
        ended = Ended(code, None) if code >= 0 else Ended(None, -code)
        if root:
            self._exit = ended
            if self._stopper is not None:
                self._stopper.root_ended(now)
        self.journal.exited([self._spec.node, *key], ended.code, ended.signal, root=root)

    # What is due.

    def _patience(self) -> float:
        """Seconds until something is due."""
        due = [self._next_tick]
        if self._exit is not None:
            due.append(self._next_check)
        if self._stopper is not None and self._stopper.next_at is not None and self._emptied_at is None:
            due.append(self._stopper.next_at)
        if self._minder.next_at is not None and self._emptied_at is None:
            due.append(self._minder.next_at)
        if self._life_ended_at is not None:
            due.append(self._life_ended_at + _LAST_BYE)
        return max(0.0, min(due) - time.monotonic())

    def _turn(self, now: float) -> bool:
        """Does what is due. True where a client can be sent more at once."""
        if now >= self._next_tick:
            self._next_tick = now + (TICK_READY if self.record.ready else TICK_STARTING)
            if self._emptied_at is None:
                self.journal.emit({"kind": "tick"})
                self._minder.look(now)
            self.journal.hear()
        if self._life_ended_at is not None and now - self._life_ended_at >= _LAST_BYE:
            self._life_ended_at = None
            self._face_died()
        if self._stopper is not None and self._emptied_at is None:
            self._stopper.turn(now)
        if self._minder.next_at is not None and now >= self._minder.next_at and self._emptied_at is None:
            self._minder.turn(now)
            self._save()
        if self._exit is not None and now >= self._next_check:
            self._next_check = now + (_CHECK if self._emptied_at is None else 0.05)
            self._look_for_end(now, self._exit)
        return self._control.pump()

    def _look_for_end(self, now: float, ended: Ended) -> None:
        """Empty, then the observer's last word, then ours, then the clients' time to read it."""
        if self._emptied_at is None:
            self._reap()
            if is_empty(self._procfs, self._claim()) and self._sweep.nothing_left():
                self._on_output(0)
                self.journal.emit({"kind": "emptied"})
                self._emptied_at, self._next_check = now, 0.0
                if self._minder.next_at is not None:  # one that was to be started again gets its one chance to see the end
                    self._minder.start(now)
        elif self._said_ended_at is None:
            observed = "observer" in self._control.roles() or self._minder.key is not None
            if not observed or self._observer_left or now - self._emptied_at > FAREWELL:
                self._control.say_ended(ended.code, ended.signal)
                self._said_ended_at = now
        elif self._control.drained or now - self._said_ended_at > DRAIN:
            self._finished = True

    def _close(self) -> None:
        self._control.close()
        self._minder.ask_to_end()
        deadline = time.monotonic() + OBSERVER_LEAVE
        while self._minder.key is not None and time.monotonic() < deadline:
            self._selector.select(0.05)
            self._reap()
        self._minder.kill()
        if self._cgroup is not None:
            self._cgroup.remove()
        record = replace(self.record, ended=self._exit, observer=None, master_holder=None, sessions=())
        self.journal.job(lambda: self._folder.write(record))
        self.journal.job(lambda: remove_socket(self.record, self._folder))
        self.journal.close(DISK_CLOSE)

    def _claim(self) -> Claim:
        return Claim(
            server=self._server, keeper=os.getpid(), cgroup=self._cgroup, sessions=frozenset(self._minder.sessions),
            marked=self._sweep.found, apart=frozenset({os.getpid()}),
        )  # fmt: skip

    def _save(self) -> None:
        """Brings keeper.json up to date, by way of the recorder."""
        observer, sessions = self._minder.key, tuple(sorted(self._minder.sessions))
        record = self.record = replace(self.record, observer=observer, master_holder=observer, sessions=sessions)
        self.journal.job(lambda: self._folder.write(record))


def main() -> None:
    """The program. Ends with the code of a refused start, else with 0."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m firsttoken.launch.keeper FOLDER < specification.json")
    settle()
    folder = Folder(Path(sys.argv[1]).absolute())
    launched: Keeper | Refused
    try:
        spec = from_json(sys.stdin.buffer.read())
        with contextlib.suppress(OSError):
            folder.prepare()
        launched = launch(folder, spec, Procfs())
    except (SpecError, OSError) as error:
        launched = Refused(f"the run could not be started: {error}", 126)
    if isinstance(launched, Refused):
        _report({"error": launched.error, "code": launched.code})
        os._exit(launched.code)
    record, server = launched.record, launched.record.server
    _report({"ok": True, "socket": record.socket, "pid": record.pid, "start": record.start, "server": server and server._asdict()})
    let_go(folder)
    launched.run()
    os._exit(0)


def _report(report: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # a caller that has gone hears nothing; the run goes on
        os.write(1, json.dumps(report).encode() + b"\n")


def _observer_log(folder: Folder) -> int:
    """What an observer prints is a fault of ours: kept in the folder. -1 where that cannot be opened."""
    try:
        return os.open(folder.path / "observer.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError:
        return -1


if __name__ == "__main__":
    main()
