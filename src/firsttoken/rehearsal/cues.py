"""Lets each fault begin at its moment, and paces the work of a phase.

Key insight: a phase is a row of small, real steps, and between any two of them stands a check point. That is all that faults
need: they begin inside the phase, on the thread that does the work, in the middle of what it was doing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

from .faults import Fault, Kind
from .journal import note_fault
from .phases import MAIN_PHASES, Phase
from .settings import Settings
from .work import blocked, busy, endings, outside
from .work.stage import Stage, Step

_TICK_S = 0.05

_ACTIONS: Mapping[Kind, Callable[[Fault, Stage], None]] = MappingProxyType(
    {
        Kind.SKIP: blocked.wait_at_store,
        Kind.CYCLE: blocked.take_two_locks,
        Kind.FIFO: blocked.read_shard,
        Kind.CHILD: blocked.wait_for_builder,
        Kind.CHATTER: blocked.wait_for_block,
        Kind.STOP: blocked.pause,
        Kind.SPIN: blocked.synchronise,
        Kind.LOCK: outside.wait_for_lock,
        Kind.CONNECT: outside.connect,
        Kind.DOWNLOAD: outside.download,
        Kind.STALL: outside.download,
        Kind.SLOW: busy.crawl,
        Kind.QUIET: busy.tune,
        Kind.COMPILE: busy.build,
        Kind.JIT: busy.compile_in_process,
        Kind.GRIND: busy.factorise,
        Kind.CRASH: endings.crash,
        Kind.EXIT: endings.leave,
        Kind.KILL: endings.die,
        Kind.ORPHAN: endings.die,
        Kind.EARLY: endings.claim_ready,
        Kind.LOGSTOP: endings.break_log,
    }
)
"""What the rest (peer, mute, error, second) do is done where ranks are started and where requests are answered."""


class Cues:
    """The faults of one process that have not begun yet."""

    def __init__(self, settings: Settings, stage: Stage) -> None:
        self._settings, self._stage = settings, stage
        self._pending = [fault for fault in settings.faults if fault.kind in _ACTIONS and self._hits(fault)]

    def reach(self, phase: Phase, began: float, step: Step) -> None:
        """A check point in `phase`, which began at `began` (monotonic): lets due faults happen, and returns when they are over."""
        due = [fault for fault in self._pending if fault.phase is phase and time.monotonic() - began >= fault.after_s]
        for fault in due:
            self._pending.remove(fault)
            self._stage.phase, self._stage.step = phase, step
            note_fault(fault.kind, phase, self._stage.rank, os.getpid())
            _ACTIONS[fault.kind](fault, self._stage)

    def work(self, phase: Phase, began: float, step: Step, part: float = 1.0) -> None:
        """Steps of real work, one a tick, until `part` of the time that the phase is to take; a check point after each."""
        until = began + self._settings.seconds(phase) * part
        while True:
            step(False)
            self.reach(phase, began, step)
            now = time.monotonic()
            if now >= until:
                return
            time.sleep(min(_TICK_S, until - now))

    def _hits(self, fault: Fault) -> bool:
        if fault.phase in MAIN_PHASES:
            return self._stage.rank is None
        return self._stage.rank is not None and self._stage.rank in fault.targets(self._settings.ranks)
