"""firsttoken's own processor time and memory while it watches the embedded engine with 15 ranks: 16 processes, starting and then idle.

Read from outside, from each process's `stat` and `status`: ticks of keeper, observer and face between two moments, as percent of one core.
`launch` lasts until all 16 processes are there and the observer has sampled them (its own start is in it), `starting` from then to ready,
`idle` begins five seconds after ready. `own_seconds` is the processor time of keeper and observer together from launch to ready.
"""

import time
from collections.abc import Mapping
from typing import Any

from cells import CellFailed, Row, Shard
from firsttoken.hosts.procfs import Procfs
from firsttoken.model.events import Counters
from launching import ENGINE, HZ, Run, descendants, free_port, launched, wait_for

PROCFS = Procfs()
RANKS = 15
WHOLE = Shard()
PARTS = ("keeper", "observer", "face")
SHARES: Mapping[str, float] = {"weights": 0.4, "compile": 0.3, "graph_capture": 0.15, "warmup": 0.15}
"""How a paced start divides its seconds among phases."""

_SETTLES = 5.0
_PATIENCE = 600.0

Ticks = dict[str, int]


def watch(seconds: float) -> Row:
    """CellFailed where the engine does not get ready."""
    argv = [*ENGINE, "--ranks", str(RANKS), "--port", str(free_port())]
    argv += [word for phase, share in SHARES.items() for word in ("--pace", f"{phase}={share * seconds:g}")]
    with launched(argv, "--quiet") as run:
        wait_for(lambda: run.key("observer") is not None, 30.0, "the observer")
        spans: dict[str, Any] = {}
        launch_began = time.monotonic()
        wait_for(lambda: len(descendants(run.server[0], PROCFS)) > RANKS and _sampled(run), 120.0, "16 processes", 0.2)
        spans["launch"] = _span(run, _nothing(), time.monotonic() - launch_began)
        peak, spans["starting"] = _until_ready(run)
        spent = _ticks(run)
        spans["own_seconds"] = round((spent["keeper"] + spent["observer"]) / HZ, 2)
        time.sleep(_SETTLES)
        before, began = _ticks(run), time.monotonic()
        time.sleep(seconds)
        spans["idle"] = _span(run, before, time.monotonic() - began)
        return {"processes": len(descendants(run.server[0], PROCFS)), **spans, "rss_mb": _memory(run, "VmRSS"), "peak_rss_mb": peak}


def told(row: Row) -> str:
    spans = "   ".join(f"{name} {row[name]['watching']:.2f} % of a core over {row[name]['seconds']:.0f} s" for name in ("starting", "idle"))
    memory = ", ".join(f"{part} {size:.0f} MB" for part, size in row["peak_rss_mb"].items())
    return f"{row['processes']} processes: {spans}; peak {memory}"


def _sampled(run: Run) -> bool:
    """Whether the observer has told counters of all processes."""
    return any(isinstance(event.body, Counters) and len(event.body.samples) > RANKS for event in run.folder.events())


def _until_ready(run: Run) -> tuple[dict[str, float], dict[str, Any]]:
    """Peak memory and the span from now to ready."""
    before, began = _ticks(run), time.monotonic()
    wait_for(lambda: run.verdict() == "ready" or run.face.poll() is not None, _PATIENCE, "the verdict ready", 0.2)
    if run.face.poll() is not None:
        raise CellFailed(f"firsttoken run ended with {run.face.returncode}: {run.said.read_text(errors='replace')[-500:]}")
    return _memory(run, "VmHWM"), _span(run, before, time.monotonic() - began)


def _span(run: Run, before: Ticks, seconds: float) -> dict[str, Any]:
    """Percent of a core for each part, and for keeper and observer together (`watching`)."""
    now = _ticks(run)
    each = {part: round(100 * (now[part] - before[part]) / HZ / seconds, 2) for part in PARTS}
    return {"seconds": round(seconds, 1), **each, "watching": round(each["keeper"] + each["observer"], 2)}


def _ticks(run: Run) -> Ticks:
    """Of living and reaped processes of each part."""
    found = _nothing()
    for part, pid in _pids(run).items():
        stat = PROCFS.stat(pid)
        if stat is not None:
            found[part] = stat.utime + stat.stime + (0 if part == "keeper" else stat.child_utime + stat.child_stime)
    return found


def _memory(run: Run, field: str) -> dict[str, float]:
    """Megabytes of resident memory, now (VmRSS) or at most so far (VmHWM)."""
    return {part: round(status_kb(pid, field) / 1e3, 1) for part, pid in _pids(run).items()}


def status_kb(pid: int, field: str) -> int:
    """A kB value of /proc/PID/status; 0 where the process is gone."""
    for line in (PROCFS.read(f"{pid}/status") or b"").splitlines():
        name, _, value = line.partition(b":")
        if name == field.encode():
            return int(value.split()[0])
    return 0


def _pids(run: Run) -> dict[str, int]:
    keys = {"keeper": run.key("keeper"), "observer": run.key("observer")}
    return {**{part: key[0] for part, key in keys.items() if key is not None}, "face": run.face.pid}


def _nothing() -> Ticks:
    return dict.fromkeys(PARTS, 0)
