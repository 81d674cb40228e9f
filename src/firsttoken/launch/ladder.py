"""The stop ladder as a value: which rung is due when. Pure; time is an argument.

Before ready (or when forced): interrupt where asked for, terminate as often as the engine needs (some swallow the first one while they
start), then kill, again and again until nothing is left. After ready one terminate is forwarded to the launched process and nothing
escalates, because engines drain; only what that process leaves behind when it has ended goes through a short ladder of its own.
"""

from enum import StrEnum

from firsttoken.launch.spec import LadderWaits


class Rung(StrEnum):
    FORWARD = "forward"
    INTERRUPT = "interrupt"
    TERMINATE = "terminate"
    KILL = "kill"


_KILL_AGAIN = (0.1, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between kills: the first few catch what was forked meanwhile, the later ones what cannot die yet."""

_LEFTOVERS_GRACE = 0.5


class Ladder:
    """One stop. Ask `due` whenever `next_at` has come."""

    def __init__(self, now: float, *, ready: bool, force: bool, terminates: int, waits: LadderWaits) -> None:
        self._waits = waits
        self._plan: list[tuple[float, Rung]] = []
        self._kills = 0
        self.drains = ready and not force
        if self.drains:
            self._plan.append((now, Rung.FORWARD))
        else:
            self._whole(now, max(1, terminates))

    @property
    def next_at(self) -> float | None:
        """When the next rung is due; None: nothing more will be done by itself."""
        return self._plan[0][0] if self._plan else None

    @property
    def killing(self) -> bool:
        return self._kills > 0

    def due(self, now: float) -> Rung | None:
        """The rung to carry out now, once."""
        if not self._plan or self._plan[0][0] > now:
            return None
        rung = self._plan.pop(0)[1]
        if rung is Rung.KILL:
            self._plan.append((now + _KILL_AGAIN[min(self._kills, len(_KILL_AGAIN) - 1)], Rung.KILL))
            self._kills += 1
        return rung

    def ask_again(self, now: float, *, force: bool, terminates: int) -> None:
        """Another stop while this one runs: forced it goes on to the next rung at once; else a draining server gets its signal again."""
        if force and self.drains:
            self.drains = False
            self._plan.clear()
            self._whole(now, max(1, terminates))
        elif force and self._plan:
            ahead = self._plan[0][0] - now
            self._plan = [(at - max(0.0, ahead), rung) for at, rung in self._plan]
        elif self.drains:
            self._plan.append((now, Rung.FORWARD))

    def root_ended(self, now: float) -> None:
        """The launched process is gone. What it left gets a moment to end by itself (it may have had its signal), then a short ladder."""
        if self.killing:
            return
        wait = self._waits.drained if self.drains else self._waits.leftovers
        grace = min(_LEFTOVERS_GRACE, self._waits.leftovers)
        self.drains = False
        self._plan = [(now + grace, Rung.TERMINATE), (now + grace + wait, Rung.KILL)]

    def _whole(self, now: float, terminates: int) -> None:
        at = now
        if self._waits.interrupt > 0:
            self._plan.append((at, Rung.INTERRUPT))
            at += self._waits.interrupt
        for _ in range(terminates):
            self._plan.append((at, Rung.TERMINATE))
            at += self._waits.terminate
        self._plan.append((at, Rung.KILL))
