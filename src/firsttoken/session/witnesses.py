"""Asks what else can tell who is behind while a start stands still: NCCL's monitor, and torch's recorder where the launch armed it.

Each is asked seldom, beside the close looks and never in their way; what they say is an event, and the judge weighs it.
"""

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

from firsttoken.judge.decide import scene
from firsttoken.judge.state import State
from firsttoken.model.events import Body, Collectives, Missed
from firsttoken.observe import nccl_ras
from firsttoken.survey.case_folder import read_recorders

RECORDS = "flight_recorder"
"""folder in a run's folder: dumps `rank_N`, and pipes `pipe_N.pipe` on which one is asked for"""
STILL_FOR = 4.0
"""seconds without a strong signal before anybody is asked"""
AGAIN_AFTER = 15.0
_WRITTEN_FOR = 0.3
"""seconds since a dump was last written to: torch writes them in place"""


class Witnesses:
    """One instance a run. `folder`: the run's."""

    def __init__(self, folder: Path) -> None:
        self._records = folder / RECORDS
        self._asked_at = -AGAIN_AFTER
        self._triggered_at = -AGAIN_AFTER
        self._read_at = 0.0
        self._missed: set[str] = set()

    async def hear(self, state: State, env: Mapping[str, str]) -> list[Body]:
        """What is new. `env`: of the server. Ends within some fifteen seconds."""
        if state.motion.still < STILL_FOR or state.ready_at is not None:
            return []
        found = [*self._recorded(), *await self._monitored(state, env)]
        return [body for body in found if self._is_new(body)]

    def _recorded(self) -> list[Body]:
        """The dumps that have come since the last time; asks for the next ones."""
        now = time.monotonic()
        if not self._records.is_dir():
            return []
        if now - self._triggered_at >= AGAIN_AFTER:
            self._triggered_at = now
            for pipe in sorted(self._records.glob("pipe_*.pipe")):
                _trigger(pipe)
        written = max((_written(file) for file in self._records.glob("rank_*")), default=0.0)
        if written <= self._read_at or time.time() - written < _WRITTEN_FOR:
            return []
        self._read_at = written
        comparison = read_recorders(self._records, [])
        return [Collectives(comparison=comparison)] if comparison is not None else []

    async def _monitored(self, state: State, env: Mapping[str, str]) -> list[Body]:
        socket = nccl_ras.socket_of(state.sockets, state.members, nccl_ras.port_of(env.get("NCCL_RAS_ADDR")))
        if socket is None or time.monotonic() - self._asked_at < AGAIN_AFTER:
            return []
        self._asked_at = time.monotonic()
        of = scene(state)
        ranks = {pid: rank for pid, member in state.members.items() if (rank := of.rank(member)) is not None}
        try:
            return [Collectives(comparison=await nccl_ras.heard(socket, ranks, state.members, state.plan.sizes.world))]
        except nccl_ras.NoAnswer as error:
            return [Missed(request="NCCL's monitor", reason=str(error))]

    def _is_new(self, body: Body) -> bool:
        """A comparison is told each time: the judge forgets what was said before something moved."""
        if not isinstance(body, Missed):
            return True
        new = body.reason not in self._missed
        self._missed.add(body.reason)
        return new


def _trigger(pipe: Path) -> None:
    """torch's watchdog thread reads it once a second. Nobody at its other end, or no pipe: no dump comes."""
    with contextlib.suppress(OSError):
        fd = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.write(fd, b"1\n")
        finally:
            os.close(fd)


def _written(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0
