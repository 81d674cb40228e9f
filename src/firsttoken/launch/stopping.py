"""Carrying out the stop ladder on real processes; shared by keeper, survivor and cleanup.

A stopped process (state T) holds its SIGTERM until it goes on, so a SIGCONT follows each rung. What does not die of SIGKILL within five
seconds is named in a `missed` event: nobody can end a process in uninterruptible sleep but the kernel.
"""

import os
import signal
from collections.abc import Callable
from typing import Any

from firsttoken.hosts.procfs import Procfs, Stat
from firsttoken.launch.folder import Key
from firsttoken.launch.ladder import Ladder, Rung
from firsttoken.launch.spec import LadderWaits
from firsttoken.launch.tree import Claim, describe, members, send, send_group

Emit = Callable[[dict[str, Any]], object]
"""Takes one event body: `kind` and its fields."""

STUCK_AFTER = 5.0
_EVENTS_MOST = 256


class Stopper:
    """One stop in progress. `claim` is asked anew at each rung. Call `turn` when `next_at` has come, until nothing is left."""

    def __init__(
        self,
        procfs: Procfs,
        claim: Callable[[], Claim],
        emit: Emit,
        *,
        now: float,
        ready: bool,
        force: bool,
        terminates: int,
        waits: LadderWaits,
    ) -> None:
        self._procfs = procfs
        self._claim = claim
        self._emit = emit
        self._terminates = terminates
        self._killed: dict[Key, float] = {}
        self._told: set[Key] = set()
        self.ladder = Ladder(now, ready=ready, force=force, terminates=terminates, waits=waits)
        self.stuck: tuple[Stat, ...] = ()

    @property
    def next_at(self) -> float | None:
        return self.ladder.next_at

    @property
    def killed(self) -> tuple[Key, ...]:
        return tuple(self._killed)

    def ask_again(self, now: float, *, force: bool) -> None:
        self.ladder.ask_again(now, force=force, terminates=self._terminates)

    def root_ended(self, now: float) -> None:
        self.ladder.root_ended(now)

    def turn(self, now: float) -> None:
        """Carries out what is due."""
        while (rung := self.ladder.due(now)) is not None:
            claim = self._claim()
            match rung:
                case Rung.FORWARD:
                    if claim.server is not None and send(self._procfs, claim.server, signal.SIGTERM):
                        self._sent(signal.SIGTERM, claim.server.pid, "forwarded, nothing escalates after ready")
                case Rung.INTERRUPT:
                    self._ask(claim, signal.SIGINT, "interrupt")
                case Rung.TERMINATE:
                    self._ask(claim, signal.SIGTERM, "terminate")
                case Rung.KILL:
                    self._kill(claim, now)

    def _ask(self, claim: Claim, number: signal.Signals, rung: str) -> None:
        """To the server's process group; where the server itself has ended, to each process that it left."""
        live = members(self._procfs, claim)
        server = claim.server
        if server is not None and server.pid in live and send_group(self._procfs, server, number):
            self._sent(number, server.pid, f"{rung}, to the process group")
        else:
            for pid, stat in live.items():
                if send(self._procfs, Key(pid, stat.start), number):
                    self._sent(number, pid, f"{rung}, left behind by the launched process")
        for pid, stat in live.items():
            if stat.state == "T":
                send(self._procfs, Key(pid, stat.start), signal.SIGCONT)

    def _kill(self, claim: Claim, now: float) -> None:
        live = members(self._procfs, claim)
        if claim.cgroup is not None and live:
            claim.cgroup.thaw()
            if not claim.apart & set(claim.cgroup.pids()):
                claim.cgroup.kill()
        own = os.getpid()
        for pid, stat in live.items():
            key = Key(pid, stat.start)
            if pid == own:
                continue
            sent = send(self._procfs, key, signal.SIGKILL)
            if key not in self._killed:
                self._killed[key] = now
                if len(self._killed) <= _EVENTS_MOST:
                    self._sent(signal.SIGKILL, pid, "kill" if sent else "kill, with its cgroup")
        self.stuck = tuple(
            stat for pid, stat in live.items() if now - self._killed.get(Key(pid, stat.start), now) >= STUCK_AFTER and not stat.dead
        )
        fresh = [stat for stat in self.stuck if Key(stat.pid, stat.start) not in self._told]
        if fresh:
            self._told |= {Key(stat.pid, stat.start) for stat in fresh}
            self._emit({"kind": "missed", "request": "stop", "reason": _why_stuck(fresh)})

    def _sent(self, number: int, pid: int, why: str) -> None:
        self._emit({"kind": "signal_sent", "signal": int(number), "pid": pid, "why": why})


def _why_stuck(stats: list[Stat]) -> str:
    return (
        f"SIGKILL was sent {STUCK_AFTER:.0f} s ago and has not ended {describe(stats)}. A process in state D waits inside the kernel "
        "(a file system, a driver) and dies when that wait ends; in a frozen cgroup it dies when the group is thawed."
    )
