"""The live view of `run` and `wait` on a terminal: the state at the foot, redrawn at most four times a second, the server's output above.

Only stderr's terminal is drawn on, by a thread of its own, so that neither rendering nor a stopped terminal holds up signals. Where the
server's output goes to the same terminal it passes through here, since two writers with one cursor would draw over each other.
"""

import locale
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping
from io import StringIO
from types import FrameType, TracebackType

from rich.console import Console
from rich.text import Text

from firsttoken.faces.cli.open_line import OpenLine
from firsttoken.faces.cli.outlet import Outlet
from firsttoken.faces.cli.region import Region
from firsttoken.history.runs import runs
from firsttoken.history.times import mean_phases
from firsttoken.judge import phases
from firsttoken.judge.state import State
from firsttoken.model.plan import Plan
from firsttoken.model.result import RankGroup
from firsttoken.model.words import Phase
from firsttoken.report.live_text import Moment, live_lines
from firsttoken.session.follow import Follower

REDRAW = 0.25
"""Seconds between two drawings, at least"""
_CLOCK = 1.0
_STDOUT, _STDERR = 1, 2
_FALLBACK = os.terminal_size((80, 24))


class LiveView:
    """`write` and `line` are those of an outlet, and may be called from any thread. When it is left, what was printed stays and the rest
    goes. A terminal that went away costs the drawing, never the run. `shares_stdout`: stdout ends on the same screen.
    """

    def __init__(
        self,
        outlet: Outlet,
        size: Callable[[], os.terminal_size],
        *,
        unicode: bool = True,
        shares_stdout: bool = False,
        usual: Callable[[Plan], Mapping[Phase, float]] | None = None,
        in_front: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._outlet, self._size, self._unicode, self.shares_stdout = outlet, size, unicode, shares_stdout
        self._usual_of, self._in_front, self._clock = usual or _no_history, in_front, clock
        self._region, self._open, self._printed = Region(outlet.write), OpenLine(), b""
        self._lock, self._wake = threading.RLock(), threading.Event()
        self._follower: Follower | None = None
        self._seen: State | None = None
        self._seen_at = clock()
        self._usual: Mapping[Phase, float] = {}
        self._usual_for: Plan | None = None
        self._console = Console(file=StringIO(), force_terminal=True, legacy_windows=False, highlight=False)
        self._continued = self._done = self._failed = False
        self._thread: threading.Thread | None = None
        self._before: object = None

    def watching(self, follower: Follower) -> "LiveView":
        """Draws what `follower` sees, from the beginning of a `with` block to its end."""
        self._follower = follower
        return self

    def write(self, data: bytes) -> None:
        """Raw output of the server."""
        with self._lock:
            self._printed += self._open.feed(data, self._size().columns)
        self._wake.set()

    def line(self, text: str) -> None:
        """A line of ours, above."""
        with self._lock:
            self._printed += f"{text}\n".encode("utf8", "replace")
        self._wake.set()

    def draw(self) -> None:
        """Prints what came and paints the region. A terminal that has not taken the last drawing is not given another one."""
        with self._lock:
            size, printed, behind = self._size(), self._printed, self._outlet.waiting > 0
            in_front = self._in_front()
            self._printed = b""
            if self._continued or not in_front:
                self._region.forget()
                self._continued = False
            self._region.above(printed, size.columns)
            if in_front and not behind and not self._failed and self._follower is not None:
                try:
                    lines = self._lines(self._follower, size)
                except Exception as error:  # a view that fails must not take the server's output with it
                    self._failed = True
                    self._region.above(f"firsttoken: the live view failed ({error!r}); the run goes on\n".encode(), size.columns)
                else:
                    self._region.paint(lines, size.columns)

    def __enter__(self) -> "LiveView":
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGCONT, self._on_continue)
        self._thread = threading.Thread(target=self._run, name="live", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._done = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(2.0)
        with self._lock:
            columns = self._size().columns
            printed, self._printed = self._printed + self._open.rest(columns), b""
            self._region.clear(columns)
            self._outlet.write(printed)
        if self._before is not None:
            signal.signal(signal.SIGCONT, self._before)  # type: ignore[arg-type]  # what signal.signal returned

    def _run(self) -> None:
        while not self._done:
            self.draw()
            began = time.monotonic()
            self._wake.wait(_CLOCK - REDRAW)
            self._wake.clear()
            if not self._done:
                time.sleep(REDRAW)
            if time.monotonic() - began > 2 * _CLOCK:  # stopped meanwhile, it seems: let the main thread hear of it first
                time.sleep(REDRAW)

    def _lines(self, follower: Follower, size: os.terminal_size) -> list[tuple[str, int]]:
        state = follower.state
        if state is not self._seen:
            self._seen, self._seen_at = state, self._clock()
        if state.plan is not self._usual_for:
            self._usual, self._usual_for = self._usual_of(state.plan), state.plan
        moment = moment_of(state, since=self._clock() - self._seen_at, open_line=self._open.text, usual=self._usual)
        height = max(min(size.lines * 3 // 5, size.lines - 2), 1)
        lines = live_lines(follower.result(), moment, width=max(size.columns - 1, 8), height=height, unicode=self._unicode)
        return rendered(lines, self._console)

    def _on_continue(self, number: int, frame: FrameType | None) -> None:
        """In a signal handler nothing may be waited for, so that this is a flag."""
        self._continued = True


def live_view(words: Outlet, *, prints: bool, environ: Mapping[str, str] = os.environ) -> LiveView | None:
    """A view on stderr where that is a terminal that can move its cursor; else None.

    `prints`: the server's output goes to stdout meanwhile. What goes through a pipe may come out on the same screen a moment later
    (`| tee log`) and would be drawn over, so that there is no view then.
    """
    if not os.isatty(_STDERR) or environ.get("TERM", "dumb") in ("", "dumb", "unknown"):
        return None
    piped = stat.S_IFMT(os.fstat(_STDOUT).st_mode) in (stat.S_IFIFO, stat.S_IFSOCK)
    if prints and piped:
        return None
    return LiveView(words, _size, unicode=speaks_unicode(environ), shares_stdout=_one_screen(), usual=_history, in_front=_in_front)


def _one_screen() -> bool:
    return os.isatty(_STDOUT) and os.isatty(_STDERR) and os.fstat(_STDOUT).st_rdev == os.fstat(_STDERR).st_rdev


def speaks_unicode(environ: Mapping[str, str]) -> bool:
    """By the user's locale. Where that is none at all Python makes itself one (C.UTF-8), which says nothing of the terminal."""
    named = [environ.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG")]
    if sys.flags.utf8_mode and named[1] == "C.UTF-8" and not named[0]:
        named[1] = ""
    chosen = next(filter(None, named), "")
    if chosen:
        return chosen.lower().replace("-", "").partition("@")[0].endswith("utf8")
    return not sys.flags.utf8_mode and locale.getencoding().lower().replace("-", "") == "utf8"


def moment_of(state: State, *, since: float, open_line: str, usual: Mapping[Phase, float]) -> Moment:
    """What moves just now, out of the judge's state."""
    places: dict[Phase, list[int]] = {}
    if state.plan.sizes.ranks_here > 1:
        for rank, phase in phases.rank_phases(state.book, state.plan.sizes.ranks_here).items():
            places.setdefault(phase, []).append(rank)
    return Moment(
        since_s=since,
        cores=state.motion.busy,
        child_cores=state.motion.children,
        bytes_per_s=state.motion.reading,
        signals=state.motion.signals,
        places=tuple(RankGroup(ranks=tuple(ranks), where=phase) for phase, ranks in places.items()),
        last_line=state.last_line,
        open_line=open_line,
        usual=usual,
    )


def rendered(lines: list[Text], console: Console) -> list[tuple[str, int]]:
    """Each line with colours as the terminal knows them (NO_COLOR leaves them out), and its width in cells."""
    out = []
    for line in lines:
        with console.capture() as captured:
            console.print(line, end="", no_wrap=True, overflow="ignore", crop=False)
        out.append((captured.get(), line.cell_len))
    return out


def _size() -> os.terminal_size:
    try:
        size = os.get_terminal_size(_STDERR)
    except OSError:
        return _FALLBACK
    return size if size.columns > 0 and size.lines > 0 else _FALLBACK


def _in_front() -> bool:
    """A job in the background leaves the terminal to its shell. A terminal that is not the one that controls us is ours to draw on."""
    try:
        return os.tcgetpgrp(_STDERR) == os.getpgrp()
    except OSError:
        return True


def _history(plan: Plan) -> Mapping[Phase, float]:
    try:
        return mean_phases(plan, runs()) if plan.engine else {}
    except OSError:
        return {}


def _no_history(plan: Plan) -> Mapping[Phase, float]:
    return {}
