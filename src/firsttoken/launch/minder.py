"""The keeper's hold on its observer: starts it, starts it again when it dies, ends it.

An observer is expendable: it lives in a session of its own, by which its probes are told from the server's processes, also after its death
has made them children of the keeper. What a dead observer left is killed. One that keeps dying is given up, and the run goes on without.
"""

import signal
from collections.abc import Callable
from typing import Any

from firsttoken.hosts.procfs import Procfs
from firsttoken.launch.folder import Key
from firsttoken.launch.spawn import spawn_observer
from firsttoken.launch.tree import send

MOST_STARTS_AGAIN = 5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_STEADY_AFTER = 60.0
"""Seconds. One that lived so long did not die of its start: the count begins anew."""


class Minder:
    """`emit` takes event bodies; `told` is what each observer finds on its stdin.

    `next_at` is when `turn` wants to be called; None: nothing to do.
    """

    def __init__(
        self,
        procfs: Procfs,
        emit: Callable[[dict[str, Any]], object],
        argv: tuple[str, ...],
        env: dict[bytes, bytes],
        *,
        master: int,
        log: int,
        told: bytes = b"",
        silence: float = 90.0,
    ) -> None:
        self._procfs = procfs
        self._emit = emit
        self._argv = argv
        self._env = env
        self._master = master
        self._log = log
        self._told = told
        self._silence = silence
        self._started_at = self._heard_at = 0.0
        self._again = 0
        self.key: Key | None = None
        self.sessions: set[int] = set()
        self.next_at: float | None = None
        self.given_up = not argv

    def start(self, now: float) -> None:
        if self.given_up:
            return
        self.next_at = None
        self._started_at = self._heard_at = now
        for session in list(self.sessions):
            self._kill_session(session)
        try:
            pid = spawn_observer(self._argv, self._env, master=self._master, log=self._log, told=self._told)
        except OSError as error:
            self._emit({"kind": "observer_lost", "pid": 0, "status": f"could not be started: {error.strerror or error}"})
            self._plan_again(now)
            return
        stat = self._procfs.stat(pid)
        self.key = Key(pid, stat.start if stat else 0)
        self.sessions.add(pid)
        self._emit({"kind": "observer_started", "pid": pid})

    def turn(self, now: float) -> None:
        if self.next_at is not None and now >= self.next_at:
            self.start(now)

    def heard(self, now: float) -> None:
        """It said something."""
        self._heard_at = now

    def look(self, now: float) -> None:
        """One that has said nothing for long hangs: it is killed, and started again as any that dies."""
        if self.key is not None and now - self._heard_at >= self._silence:
            reason = "the observer said nothing: it is ended, and started again"
            self._emit({"kind": "gap", "what": "observer", "amount": int(self._silence), "reason": reason})
            self._heard_at = now
            self._kill_session(self.key.pid)

    def ended(self, pid: int, status: int, now: float, *, again: bool) -> bool:
        """Takes a reaped process; False where it was not the observer. `again`: the run still needs one."""
        if self.key is None or self.key.pid != pid:
            return False
        self.key = None
        self._kill_session(pid)
        if again:
            self._emit({"kind": "observer_lost", "pid": pid, "status": _words(status)})
            if now - self._started_at >= _STEADY_AFTER:
                self._again = 0
            self._plan_again(now)
        return True

    def buried(self, session: int) -> None:
        """One of a session of ours was reaped."""
        if self.key is None or self.key.pid != session:
            self._kill_session(session)

    def ask_to_end(self) -> None:
        self.given_up = True
        self.next_at = None
        if self.key is not None:
            send(self._procfs, self.key, signal.SIGTERM)

    def kill(self) -> None:
        """The observer and all of its probes."""
        self.given_up = True
        self.next_at = None
        for session in list(self.sessions):
            self._kill_session(session)

    def _plan_again(self, now: float) -> None:
        if self._again >= MOST_STARTS_AGAIN:
            self.given_up = True
            return
        self.next_at = now + min(_FIRST_PAUSE * 2**self._again, _LONGEST_PAUSE)
        self._again += 1

    def _kill_session(self, session: int) -> None:
        """A session that has nobody left is forgotten: its id may become somebody else's. The dead count until they are reaped: who was
        one of ours is told by the session."""
        left = {pid: stat for pid, stat in self._procfs.stats().items() if stat.sid == session}
        for pid, stat in left.items():
            if not stat.dead:
                send(self._procfs, Key(pid, stat.start), signal.SIGKILL)
        if not left and (self.key is None or self.key.pid != session):
            self.sessions.discard(session)


def _words(status: int) -> str:
    """Of a waitpid status."""
    number = status & 0x7F
    if number == 0:
        return f"exit code {status >> 8 & 0xFF}"
    try:
        return f"signal {signal.Signals(number).name}"
    except ValueError:
        return f"signal {number}"
