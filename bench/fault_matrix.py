"""Every kind of fault at a phase where it matters, on 1, 2, 4 and 8 ranks: is the verdict right, in time, and the right rank named?

Key insight: the embedded engine writes down when a fault began (REHEARSE_FAULT_LOG) and the run's own events tell when each verdict came.
The latency is the difference of two records and does not depend on how often this program looks.

What is right stands in the public contract's table of faults. With a fault in `first_token` the server already claims to be ready, so what
blocks there is `unserving`. Kinds that must never be called hung run once for 90 s.
"""

import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cells import Book, Row, measure, options, report
from firsttoken.history.runs import RunFolder
from firsttoken.model.events import Judged
from firsttoken.rehearsal.faults import ONE_RANK, WHOLE_SERVER, Kind, parse_fault, refusal
from firsttoken.rehearsal.phases import Phase
from launching import ENGINE, free_port, launched

RANKS = (1, 2, 4, 8)
PATIENT_S, LONG_S = 60.0, 90.0
BLOCKED_WITHIN_S, SPIN_WITHIN_S = 20.0, 60.0

NEVER_HUNG = frozenset({Kind.SLOW, Kind.QUIET, Kind.COMPILE, Kind.JIT, Kind.GRIND, Kind.DOWNLOAD})
RIGHT: Mapping[Kind, frozenset[str]] = {
    **dict.fromkeys((Kind.SKIP, Kind.CYCLE, Kind.FIFO, Kind.CHILD, Kind.CHATTER, Kind.STOP), frozenset({"hung"})),
    Kind.SPIN: frozenset({"hung"}),
    **dict.fromkeys((Kind.LOCK, Kind.CONNECT, Kind.PEER, Kind.STALL), frozenset({"waiting"})),
    Kind.DOWNLOAD: frozenset({"starting", "slow"}),
    Kind.SLOW: frozenset({"starting", "slow"}),
    **dict.fromkeys((Kind.QUIET, Kind.COMPILE), frozenset({"starting", "slow"})),
    Kind.JIT: frozenset({"starting", "slow", "stalled"}),
    Kind.GRIND: frozenset({"starting", "slow", "stalled"}),
    **dict.fromkeys((Kind.CRASH, Kind.EXIT), frozenset({"failed"})),
    **dict.fromkeys((Kind.KILL, Kind.ORPHAN), frozenset({"crashed"})),
    **dict.fromkeys((Kind.MUTE, Kind.ERROR, Kind.SECOND), frozenset({"unserving"})),
    **dict.fromkeys((Kind.EARLY, Kind.LOGSTOP), frozenset({"ready"})),
}
TELLING: Mapping[Kind, tuple[Phase, ...]] = {
    Kind.PEER: (Phase.DISTRIBUTED_INIT,),
    **dict.fromkeys((Kind.FIFO, Kind.DOWNLOAD, Kind.STALL, Kind.SLOW), (Phase.WEIGHTS,)),
    **dict.fromkeys((Kind.MUTE, Kind.ERROR, Kind.SECOND), (Phase.FIRST_TOKEN,)),
    Kind.COMPILE: (Phase.COMPILE, Phase.KV_CACHE),
    Kind.EARLY: (Phase.CONFIG, Phase.WEIGHTS),
}
USUAL = (
    Phase.DISTRIBUTED_INIT, Phase.WEIGHTS, Phase.POST_LOAD, Phase.KV_CACHE, Phase.COMPILE, Phase.GRAPH_CAPTURE, Phase.WARMUP,
    Phase.LISTENING, Phase.FIRST_TOKEN,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """`fault` as on the command line; `name` is the key in the results."""

    fault: str
    ranks: int

    @property
    def name(self) -> str:
        return f"{self.fault} x{self.ranks}"

    @classmethod
    def parse(cls, name: str) -> "Cell":
        fault, _, ranks = name.rpartition(" x")
        return cls(fault, int(ranks))


def right_verdicts(cell: Cell) -> frozenset[str]:
    fault = parse_fault(cell.fault)
    if fault.kind is Kind.SPIN and cell.ranks == 1:
        return frozenset({"stalled"}) if fault.phase is not Phase.FIRST_TOKEN else frozenset({"unserving", "stalled"})
    if fault.phase is Phase.FIRST_TOKEN and RIGHT[fault.kind] & {"hung", "waiting", "starting", "slow"}:
        return RIGHT[fault.kind] | {"unserving"} if fault.kind in NEVER_HUNG else frozenset({"unserving"})
    return RIGHT[fault.kind]


def right_rank(cell: Cell) -> list[int] | None:
    """The world ranks that must be named; None where none can be singled out, or the verdict is none that names one."""
    fault = parse_fault(cell.fault)
    if cell.ranks == 1 or not right_verdicts(cell) & {"hung", "waiting"}:
        return None
    targets = sorted(fault.targets(cell.ranks))
    return targets if fault.kind is Kind.CYCLE or fault.rank is not None or fault.kind in ONE_RANK else None


def cells(seed: int, count: int) -> list[str]:
    """First every kind once at a telling phase on each number of ranks that makes sense, then draws over all that makes sense."""
    draw = random.Random(seed)
    found: dict[str, None] = {}
    for kind in Kind:
        for ranks in (1, 2, 8):
            phase = draw.choice(TELLING.get(kind, USUAL[:-1]))
            cell = _cell(kind, phase, ranks, draw)
            if cell is not None:
                found[cell.name] = None
    tries = 0
    while len(found) < count and tries < 100 * count:
        tries += 1
        cell = _cell(draw.choice(list(Kind)), draw.choice(USUAL), draw.choice(RANKS), draw)
        if cell is not None:
            found[cell.name] = None
    return list(found)[:count]


def _cell(kind: Kind, phase: Phase, ranks: int, draw: random.Random) -> Cell | None:
    text = f"{kind}@{phase}"
    if ranks > 1 and kind not in WHOLE_SERVER and kind not in NEVER_HUNG and draw.random() < 0.7:
        text += f":rank={draw.randrange(ranks)}"
    return Cell(text, ranks) if refusal(parse_fault(text), ranks) is None else None


@dataclass(frozen=True, slots=True)
class Seen:
    """What a run's record tells. `judged`: (Unix time, verdict) in order; `fault_at`: when the fault began, None where it did not."""

    result: Mapping[str, Any]
    judged: tuple[tuple[float, str], ...]
    fault_at: float | None

    def latency(self, wanted: frozenset[str]) -> float | None:
        """From the fault to the first wanted verdict after it, seconds."""
        if self.fault_at is None:
            return None
        came = next((at for at, verdict in self.judged if verdict in wanted and at >= self.fault_at - 0.1), None)
        return None if came is None else round(max(came - self.fault_at, 0.0), 2)


def run_cell(name: str) -> dict[str, Any]:
    cell = Cell.parse(name)
    fault = parse_fault(cell.fault)
    wanted = right_verdicts(cell)
    seen = _run(cell, wanted, LONG_S if fault.kind in NEVER_HUNG else PATIENT_S, to_the_end=fault.kind in NEVER_HUNG)
    verdict, behind = seen.result.get("verdict"), (seen.result.get("ranks") or {}).get("behind")
    named, latency = right_rank(cell), seen.latency(wanted)
    blocks = bool(wanted & {"hung", "waiting", "unserving"}) and fault.kind not in NEVER_HUNG
    limit = SPIN_WITHIN_S if fault.kind is Kind.SPIN else BLOCKED_WITHIN_S
    verdicts = [verdict for _, verdict in seen.judged]
    return {
        "verdict": verdict,
        "right": verdict in wanted and not ("hung" in verdicts and "hung" not in wanted),
        "verdicts": list(dict.fromkeys(verdicts)),
        "phase": seen.result.get("phase"),
        "behind": behind,
        "rank_right": None if named is None else behind == named,
        "latency_s": latency,
        "in_time": None if not blocks else latency is not None and latency <= limit,
        "reason": str(seen.result.get("reason"))[:300],
    }


def _run(cell: Cell, wanted: frozenset[str], seconds: float, *, to_the_end: bool) -> Seen:
    """Until a wanted verdict came (with a moment more for its details), or so many seconds after the fault began."""
    with tempfile.TemporaryDirectory(prefix="firsttoken-fault-") as scratch:
        log = Path(scratch) / "faults"
        server = (*ENGINE, "--ranks", str(cell.ranks), "--port", str(free_port()), "--fault", cell.fault)
        argv = ("env", f"REHEARSE_FAULT_LOG={log}", *server)
        with launched(argv, "--detach", "--quiet", "--stall-patience", "600", "--max-waiting", "600") as run:
            deadline = time.monotonic() + seconds + 30
            while time.monotonic() < deadline:
                time.sleep(0.25)
                began, judged = _fault_at(log), _judged(run.folder)
                over = run.folder.keeper().get("ended") is not None
                came = began is not None and any(verdict in wanted and at >= began - 0.1 for at, verdict in judged)
                late = began is not None and time.time() - began > seconds
                if over or late or (came and not to_the_end):
                    break
            time.sleep(0.5)
            return Seen(run.folder.result(), _judged(run.folder), _fault_at(log))


def _judged(folder: RunFolder) -> tuple[tuple[float, str], ...]:
    return tuple((event.wall, str(event.body.verdict)) for event in folder.events() if isinstance(event.body, Judged))


def _fault_at(log: Path) -> float | None:
    """A fault of the whole server (mute, error) begins with the request; the first line counts."""
    try:
        return float(json.loads(log.read_text().splitlines()[0])["wall"])
    except (OSError, ValueError, IndexError, KeyError):
        return None


def summary(rows: list[Row]) -> dict[str, Any]:
    latencies = sorted(row["latency_s"] for row in rows if row["in_time"] is not None and row["latency_s"] is not None)
    named = [row for row in rows if row["rank_right"] is not None]
    timed = [row for row in rows if row["in_time"] is not None]
    return {
        "cells": len(rows),
        "right": sum(row["right"] for row in rows),
        "ranks_right": sum(row["rank_right"] for row in named),
        "ranks_asked": len(named),
        "in_time": sum(row["in_time"] for row in timed),
        "timed": len(timed),
        "latency_median_s": statistics.median(latencies) if latencies else None,
        "latency_p90_s": latencies[int(0.9 * (len(latencies) - 1))] if latencies else None,
    }


def _text(rows: list[Row]) -> Iterator[str]:
    for row in rows:
        flaws = [
            name
            for name, bad in (("verdict", not row["right"]), ("rank", row["rank_right"] is False), ("late", row["in_time"] is False))
            if bad
        ]
        if flaws:
            seen = f"{row['verdict']} behind {row['behind']} after {row['latency_s']}"
            yield f"wrong {', '.join(flaws)}: {row['cell']}: {seen}: {row['reason']}"
    yield json.dumps(summary(rows))


def _told(row: Row) -> str:
    mark = "ok " if row["right"] and row["rank_right"] is not False and row["in_time"] is not False else "BAD"
    return f"{mark} {row['cell']}: {row['verdict']} behind {row['behind']} after {row['latency_s']} s"


def main() -> int:
    parser = options("fault_matrix", __doc__)
    parser.add_argument("--cells", type=int, default=75, help="how many, drawn by the seed (default: %(default)s)")
    parser.add_argument("--only", help="only cells whose name has this in it")
    asked = parser.parse_args()
    names = [name for name in cells(asked.seed, asked.cells) if asked.only is None or asked.only in name]
    book = Book(Path(asked.out), {"seed": asked.seed})
    failed = measure(book, names, asked.shard, run_cell, _told)
    rows = book.chosen(names)
    report("fault_matrix", asked.json, summary(rows), rows, _text(rows))
    return 1 if failed or not rows or not all(row["right"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
