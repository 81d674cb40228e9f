"""A prefetch as its caller sees it: a child that streams the weights into the page cache, and is ended when nobody needs it any longer.

It is a process of its own because a read from a dead mount cannot be ended; because its death frees what it had under way; and because it
must not keep an observer or a face from ending. It ends by itself when our end of its stdin closes, whatever has become of us.
"""

import contextlib
import json
import os
import selectors
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from firsttoken.session.loading.weights import CHILD, Found, rate_book, remembered
from firsttoken.survey.prefetch import Progress

SILENT_AFTER = 15.0
"""seconds without a word after which its file system is taken for dead"""
_ENDS_WITHIN = 1.0
_WORTH_KEEPING = 256 << 20
"""bytes that must have been read for a rate that is remembered"""


class PrefetchProcess:
    """Use as a context: whatever happens, nothing of it is left (but for a child that the kernel does not let go of a dead mount)."""

    def __init__(self, found: Found, *, child: Sequence[str] = CHILD, silent_after: float = SILENT_AFTER) -> None:
        self._found, self._silent_after = found, silent_after
        known = remembered(found)
        request = {"files": found.files, "read_ahead": found.read_ahead, "known": known.bytes_per_s if known is not None else None}
        self._process = subprocess.Popen(
            [*child, "prefetch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0
        )  # one that is left behind must not hold our own output open
        self._last = Progress(bytes=found.bytes)
        self._stopped = False
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    @property
    def last(self) -> Progress:
        return self._last

    def updates(self) -> Iterator[Progress]:
        """Until it has ended, which the last one tells."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        held, heard = b"", time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(fd, selectors.EVENT_READ)
            while self._last.ended is None:
                if selector.select(0.2):
                    data = os.read(fd, 1 << 16)
                    if not data:
                        break
                    heard = time.monotonic()
                    *lines, held = (held + data).split(b"\n")
                    for line in lines:
                        self._last = _read(line, self._last)
                    yield self._last
                elif time.monotonic() - heard > self._silent_after:
                    where = self._found.words or self._found.path
                    problem = f"{where} gave nothing for {self._silent_after:.0f} s: is the mount dead?"
                    self._last = replace(self._last, ended="error", problem=problem)
                elif self._stopped and time.monotonic() - heard > _ENDS_WITHIN:
                    break
        if self._last.ended is None:
            ended = ("stopped", None) if self._stopped else ("error", "it ended before its time")
            self._last = replace(self._last, ended=ended[0], problem=ended[1])
        if self._last.read >= _WORTH_KEEPING and self._last.bytes_per_s is not None:
            kept = remembered(self._found)
            if kept is None or self._last.bytes_per_s > kept.bytes_per_s:
                rate_book().keep(self._found.key, self._last.bytes_per_s)
        yield self._last

    def stop(self) -> None:
        """Asks it to end; `updates` tells when it has."""
        self._stopped = True
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def __enter__(self) -> "PrefetchProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDS_WITHIN)
        if self._process.poll() is None:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_ENDS_WITHIN)
        if self._process.stdout is not None:
            self._process.stdout.close()


def _read(line: bytes, last: Progress) -> Progress:
    """A line that is none of ours changes nothing."""
    try:
        told = json.loads(line)
        if "error" in told:
            return replace(last, ended="error", problem=str(told["error"]))
        return Progress(**told)
    except (ValueError, TypeError):
        return last
