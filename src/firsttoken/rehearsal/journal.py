"""The log of one process of the engine, and the benchmark's note of when a fault began.

Key insight: a line is one write(2), so that lines of many ranks never mix, and what a fault is called never enters the log:
it goes as a JSON line to the file that REHEARSE_FAULT_LOG names, or nowhere.
"""

from __future__ import annotations

import json
import os
import time


class Journal:
    """Writes `[YYYY-MM-DD HH:MM:SS.mmm TAG] text` to stderr; `silent` drops everything (a log that broke off)."""

    def __init__(self, tag: str | None = None) -> None:
        self.tag = tag
        self.silent = False

    def line(self, text: str) -> None:
        now = time.time()
        stamp = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(now))}.{int(now * 1000) % 1000:03d}"
        self.raw(f"[{stamp} {self.tag}] {text}\n" if self.tag else f"[{stamp}] {text}\n")

    def raw(self, text: str, *, stream: int = 2) -> None:
        """Text as it is. A log that nobody reads any more never ends the server."""
        if self.silent:
            return
        left = text.encode(errors="replace")
        try:
            while left:
                left = left[os.write(stream, left) :]
        except OSError:
            pass


def note_fault(kind: str, phase: str, rank: int | None, pid: int | None) -> None:
    """Appends one JSON line to REHEARSE_FAULT_LOG, where that is set, at the moment when a fault begins."""
    path = os.environ.get("REHEARSE_FAULT_LOG")
    if not path:
        return
    record = json.dumps({"kind": kind, "phase": phase, "rank": rank, "pid": pid, "wall": time.time()}) + "\n"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(file, record.encode())
    finally:
        os.close(file)
