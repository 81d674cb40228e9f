"""Where a piece of work takes place: the process, its phase, and what lies at hand. Also the end of waits that have one.

Key insight: `for=S` ends a blocked wait as the world does, from outside: an interval timer's signal interrupts the system call.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from ..journal import Journal
from ..phases import Phase
from ..store import StoreClient

Step = Callable[[bool], None]
"""One small step of a phase's own work; with True a tiny one."""


@dataclass(slots=True, kw_only=True)
class Stage:
    """`rank` is None in the main process. `folder` is for run-time files, `ports` are the bystander's. `tell` reaches main."""

    journal: Journal
    rank: int | None
    ranks: int
    tell: Callable[[dict[str, Any]], None]
    phase: Phase
    step: Step
    store: StoreClient | None = None
    folder: Path | None = None
    ports: Mapping[str, int]

    def file(self, name: str) -> Path:
        assert self.folder is not None, "main makes the folder for every fault that needs it"
        return self.folder / name


class Over(Exception):
    """The time of a wait is over."""


@contextlib.contextmanager
def limited(seconds: float | None) -> Generator[None, None, None]:
    """Ends what runs inside, even a blocked system call, after `seconds`; never where None. Main thread only."""
    if seconds is None:
        yield
        return

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise Over

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
        yield
    except Over:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
