"""firsttoken's own processor time and memory while it watches the embedded engine with 15 ranks: 16 processes, starting and then idle.

Read from outside, from each process's `stat` and `status`: ticks of keeper, observer and face between two moments, as percent of one core.
`launch` lasts until all 16 processes are there and the observer has sampled them (its own start is in it), `loading` from then to the end
of the weights: what a start that moves costs. `resting` follows, to ready: no process of the server does anything, so each is looked at
closely, again and again. `idle` begins five seconds after ready. `own_seconds` is the processor time of keeper and observer together from
launch to ready.

Key insight: some machines (virtual ones above all) charge a process that only sleeps and wakes for time that it did not use. So a program
that does nothing but wake as often as an observer does runs beside: what it is charged (`asleep`) is what such a machine adds to keeper and
to observer, each. It is told beside their figures, and never taken off them.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cells import CellFailed, Row, Shard
from firsttoken.hosts.procfs import Procfs
from firsttoken.model.events import Counters, Judged
from launching import ENGINE, HZ, Run, descendants, free_port, launched, wait_for

PROCFS = Procfs()
RANKS = 15
WHOLE = Shard()
SHARES: Mapping[str, float] = {"weights": 0.4, "compile": 0.3, "graph_capture": 0.15, "warmup": 0.15}
"""How a paced start divides its seconds among phases."""

_PARTS = ("keeper", "observer", "face", "asleep")
_SLEEPER = "import time\nwhile True: time.sleep(0.25)"
_SETTLES = 5.0
_PATIENCE = 600.0

Ticks = dict[str, int]


def watch(seconds: float) -> Row:
    """CellFailed where the engine does not get ready."""
    argv = [*ENGINE, "--ranks", str(RANKS), "--port", str(free_port())]
    argv += [word for phase, share in SHARES.items() for word in ("--pace", f"{phase}={share * seconds:g}")]
    with _sleeper() as asleep, launched(argv, "--quiet") as run:
        wait_for(lambda: run.key("observer") is not None, 30.0, "the observer")
        watched = _Watched(run, asleep)
        clock = _Clock(watched, since_start=True)
        wait_for(lambda: len(descendants(run.server[0], PROCFS)) > RANKS and _sampled(run), 120.0, "16 processes", 0.2)
        spans = {"launch": clock.span()}
        wait_for(lambda: _left(watched.phases(), "weights"), seconds + 60, "loaded weights", 0.2)
        spans["loading"] = clock.span()
        wait_for(lambda: run.verdict() == "ready" or run.face.poll() is not None, _PATIENCE, "the verdict ready", 0.2)
        if run.face.poll() is not None:
            raise CellFailed(f"firsttoken run ended with {run.face.returncode}: {run.said.read_text(errors='replace')[-500:]}")
        spans["resting"] = clock.span()
        peak, spent = watched.memory("VmHWM"), watched.ticks()
        time.sleep(_SETTLES)
        clock = _Clock(watched)
        time.sleep(seconds)
        spans["idle"] = clock.span()
        processes = len(descendants(run.server[0], PROCFS))
        own = round((spent["keeper"] + spent["observer"]) / HZ, 2)
        return {"processes": processes, **spans, "own_seconds": own, "rss_mb": watched.memory("VmRSS"), "peak_rss_mb": peak}


def told(row: Row) -> str:
    spans = "   ".join(
        f"{name} {row[name]['watching']:.2f} % of a core over {row[name]['seconds']:.0f} s (asleep {row[name]['asleep']:.2f} %)"
        for name in ("loading", "resting", "idle")
    )
    memory = ", ".join(f"{part} {size:.0f} MB" for part, size in row["peak_rss_mb"].items())
    return f"{row['processes']} processes: {spans}; peak {memory}"


@dataclass(frozen=True, slots=True)
class _Watched:
    """A run and the pid of the program that only sleeps."""

    run: Run
    asleep: int

    def ticks(self) -> Ticks:
        """Of living and reaped processes of each part."""
        found = dict.fromkeys(_PARTS, 0)
        for part, pid in self._pids().items():
            stat = PROCFS.stat(pid)
            if stat is not None:
                found[part] = stat.utime + stat.stime + (0 if part == "keeper" else stat.child_utime + stat.child_stime)
        return found

    def memory(self, field: str) -> dict[str, float]:
        """Megabytes of resident memory, now (VmRSS) or at most so far (VmHWM)."""
        return {part: round(status_kb(pid, field) / 1e3, 1) for part, pid in self._pids().items() if part != "asleep"}

    def phases(self) -> list[str]:
        return [str(event.body.phase) for event in self.run.folder.events() if isinstance(event.body, Judged)]

    def _pids(self) -> dict[str, int]:
        keys = {"keeper": self.run.key("keeper"), "observer": self.run.key("observer")}
        return {**{part: key[0] for part, key in keys.items() if key is not None}, "face": self.run.face.pid, "asleep": self.asleep}


class _Clock:
    """Shares of a core from one moment to the next."""

    def __init__(self, watched: _Watched, *, since_start: bool = False) -> None:
        self._watched = watched
        self._before, self._began = dict.fromkeys(_PARTS, 0) if since_start else watched.ticks(), time.monotonic()

    def span(self) -> dict[str, Any]:
        """Percent of a core for each part since the last call, and for keeper and observer together (`watching`)."""
        now, at = self._watched.ticks(), time.monotonic()
        seconds = at - self._began
        each = {part: round(100 * (now[part] - self._before[part]) / HZ / seconds, 2) for part in _PARTS}
        self._before, self._began = now, at
        return {"seconds": round(seconds, 1), **each, "watching": round(each["keeper"] + each["observer"], 2)}


@contextlib.contextmanager
def _sleeper() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-S", "-c", _SLEEPER])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def _left(phases: list[str], phase: str) -> bool:
    return phase in phases and phases[-1] != phase


def _sampled(run: Run) -> bool:
    """Whether the observer has told counters of all processes."""
    return any(isinstance(event.body, Counters) and len(event.body.samples) > RANKS for event in run.folder.events())


def status_kb(pid: int, field: str) -> int:
    """A kB value of /proc/PID/status; 0 where the process is gone."""
    for line in (PROCFS.read(f"{pid}/status") or b"").splitlines():
        name, _, value = line.partition(b":")
        if name == field.encode():
            return int(value.split()[0])
    return 0
