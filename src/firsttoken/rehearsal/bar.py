"""A progress bar redrawn with a carriage return, in the manner of tqdm.

Key insight: observers have to cope with bars, so this one behaves like the real ones: no newline until it is done,
redrawn when a step is done, and only by rank 0.
"""

from __future__ import annotations

import time

from .journal import Journal


class Bar:
    def __init__(self, journal: Journal, title: str, total: int, *, shown: bool) -> None:
        self._journal, self._title, self._total, self._shown = journal, title, total, shown
        self._began = time.monotonic()
        self._done = 0
        self._draw()

    def step(self, done: int) -> None:
        """Redraws at `done` of the total; ends the line when all is done."""
        if done == self._done:
            return
        self._done = done
        self._draw()
        if done >= self._total and self._shown:
            self._journal.raw("\n")

    def _draw(self) -> None:
        if not self._shown:
            return
        seconds = time.monotonic() - self._began
        share = self._done / self._total if self._total else 1.0
        rate = f"{self._done / seconds:.2f}it/s" if self._done and seconds else "?it/s"
        left = _clock(seconds / share - seconds) if self._done else "?"
        counts = f"{self._done}/{self._total} [{_clock(seconds)}<{left}, {rate}]"
        self._journal.raw(f"\r{self._title}: {share:4.0%} Completed | {counts}")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}"
