"""Every kind of fault in every phase where it makes sense, on 1, 2, 4 and 8 ranks: is the verdict right and in time, and are the rank and
the process on which all wait named?

Key insight: the embedded engine writes down when a fault began (REHEARSE_FAULT_LOG) and the run's own events tell when each verdict came.
The latency is the difference of two records and does not depend on how often this program looks.

What is right stands in the public contract's table of faults. With a fault in `first_token` the server already claims to be ready, so what
blocks there is `unserving`. Kinds that must never be called hung are watched for 60 s: more than twice what any proof waits for.

Most cells sleep, so `--jobs` runs several beside each other. What a machine that is too small for them adds to the latency is in the
figures.
"""

import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cells import Book, Row, measure, options, report
from firsttoken.history.runs import RunFolder
from firsttoken.hosts.procfs import Procfs
from firsttoken.model import codec
from firsttoken.model.events import Judged
from firsttoken.rehearsal.faults import ONE_RANK, Kind, parse_fault, refusal
from firsttoken.rehearsal.phases import Phase
from launching import ENGINE, Run, free_port, launched, wait_for

RANKS = (1, 2, 4, 8)
PATIENT_S, LONG_S = 60.0, 60.0
BLOCKED_WITHIN_S, SPIN_WITHIN_S = 10.0, 45.0
SAMPLE = 24
MATRIX = 2
"""which cells a seed gives; rows of an earlier way to draw stay apart"""
PROCFS = Procfs()

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
BYSTANDER = frozenset({Kind.LOCK, Kind.CONNECT, Kind.STALL})
"""what is waited for is a process outside the run"""
ITSELF = frozenset({Kind.SKIP, Kind.CYCLE, Kind.FIFO, Kind.CHATTER, Kind.STOP, Kind.SPIN})
"""all wait for the process that the fault hit"""


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
    """The world ranks that must be named, as behind, missing or the first that died; None where none can be singled out, or the verdict is
    none that names one.
    """
    fault = parse_fault(cell.fault)
    named = right_verdicts(cell) & {"hung", "waiting", "crashed"} or fault.kind is Kind.CRASH  # who leaves with status 0 says nothing
    if cell.ranks == 1 or not named:
        return None
    targets = sorted(fault.targets(cell.ranks))
    return targets if fault.kind is Kind.CYCLE or fault.rank is not None or fault.kind in ONE_RANK else None


def cells(seed: int, count: int) -> list[str]:
    """One kind after the other, round by round; of what makes sense for it, the phase and the number of ranks that came least so far."""
    draw = random.Random(seed)
    left = {kind: [(phase, ranks) for phase in Phase for ranks in RANKS if _makes_sense(kind, phase, ranks)] for kind in Kind}
    phases, sizes = Counter[Phase](), Counter[int]()
    found: list[str] = []
    while any(left.values()) and len(found) < count:
        for kind, choices in left.items():
            if not choices:
                continue
            draw.shuffle(choices)
            phase, ranks = min(choices, key=lambda choice: (phases[choice[0]], sizes[choice[1]]))
            choices.remove((phase, ranks))
            phases[phase] += 1
            sizes[ranks] += 1
            found.append(_cell(kind, phase, ranks, draw).name)
    return found[:count]


def _load(name: str) -> int:
    """What sleeps comes first, so that nothing beside it takes its processor time; then what spins, then what works and is long watched."""
    kind = parse_fault(Cell.parse(name).fault).kind
    return 2 if kind in NEVER_HUNG else 1 if kind is Kind.SPIN else 0


def _makes_sense(kind: Kind, phase: Phase, ranks: int) -> bool:
    return refusal(parse_fault(f"{kind}@{phase}"), ranks) is None


def _cell(kind: Kind, phase: Phase, ranks: int, draw: random.Random) -> Cell:
    """With a rank where one can be named, mostly; work on four ranks and more is always that of one: eight measure the machine."""
    named = f"{kind}@{phase}:rank={draw.randrange(ranks)}"
    one = draw.random() < 0.7 or (kind in NEVER_HUNG and ranks >= 4)
    return Cell(named if one and ranks > 1 and refusal(parse_fault(named), ranks) is None else f"{kind}@{phase}", ranks)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a run's record tells. `judged`: (Unix time, verdict) in order; `fault_at`: when the fault began, None where it did not;
    `root_right`: whether the process that is named is one of those on which all wait, None where there is none.
    """

    result: Mapping[str, Any]
    judged: tuple[tuple[float, str], ...]
    fault_at: float | None
    root_right: bool | None

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
        "root_blocker": seen.result.get("root_blocker"),
        "root_right": seen.root_right,
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
            verdicts = _Verdicts(run.folder)
            deadline = time.monotonic() + seconds + 30
            while time.monotonic() < deadline:
                time.sleep(0.25)
                began, judged = _fault_at(log), verdicts.so_far()
                over = run.folder.keeper().get("ended") is not None
                came = began is not None and any(verdict in wanted and at >= began - 0.1 for at, verdict in judged)
                late = began is not None and time.time() - began > seconds
                if over or late or (came and not to_the_end):
                    break
            time.sleep(0.5)
            if not run.folder.result():
                wait_for(lambda: bool(run.folder.result()), 30, "the result")  # a busy machine: it ended before its observer was up
            return Seen(run.folder.result(), verdicts.so_far(), _fault_at(log), _root_right(cell, wanted, run, _faults(log)))


class _Verdicts:
    """(Unix time, verdict) of a run that goes on, in order. Its record is read once, piece by piece."""

    def __init__(self, folder: RunFolder) -> None:
        self._file = folder.events_file
        self._read = 0
        self._found: list[tuple[float, str]] = []

    def so_far(self) -> tuple[tuple[float, str], ...]:
        try:
            with self._file.open("rb") as file:
                file.seek(self._read)
                whole, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return tuple(self._found)
        self._read += len(whole) + len(newline)
        for line in whole.split(b"\n"):
            event = codec.decode(line) if b'"judged"' in line else None
            if event is not None and isinstance(event.body, Judged):
                self._found.append((event.wall, str(event.body.verdict)))
        return tuple(self._found)


def _root_right(cell: Cell, wanted: frozenset[str], run: Run, faults: list[dict[str, Any]]) -> bool | None:
    """Asked while the run is still there."""
    kind = parse_fault(cell.fault).kind
    if not wanted & {"hung", "waiting", "unserving"} or kind not in BYSTANDER | ITSELF | {Kind.CHILD}:
        return None
    told = run.folder.result().get("root_blocker")
    if not isinstance(told, dict):
        return False
    pid, hit = told["process"]["pid"], {fault["pid"] for fault in faults}
    if kind in BYSTANDER:
        return not told["in_run"] and any(link.endswith("/build.lock") for link in PROCFS.fds(pid).values()) and pid not in hit
    if kind is Kind.CHILD:
        return (stat := PROCFS.stat(pid)) is not None and stat.ppid in hit
    return pid in hit


def _faults(log: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in log.read_text().splitlines()]
    except (OSError, ValueError):
        return []


def _fault_at(log: Path) -> float | None:
    """A fault of the whole server (mute, error) begins with the request; the first line counts."""
    return next((float(fault["wall"]) for fault in _faults(log)), None)


def summary(rows: list[Row]) -> dict[str, Any]:
    latencies = sorted(row["latency_s"] for row in rows if row["in_time"] is not None and row["latency_s"] is not None and not _spins(row))
    named = [row for row in rows if row["rank_right"] is not None]
    rooted = [row for row in rows if row["root_right"] is not None]
    timed = [row for row in rows if row["in_time"] is not None]
    spins = [row["latency_s"] for row in timed if _spins(row) and row["latency_s"] is not None]
    return {
        "cells": len(rows),
        "right": sum(row["right"] for row in rows),
        "ranks_right": sum(row["rank_right"] for row in named),
        "ranks_asked": len(named),
        "roots_right": sum(row["root_right"] for row in rooted),
        "roots_asked": len(rooted),
        "in_time": sum(row["in_time"] for row in timed),
        "timed": len(timed),
        "latency_median_s": statistics.median(latencies) if latencies else None,
        "latency_p90_s": latencies[math.ceil(0.9 * len(latencies)) - 1] if latencies else None,
        "latency_worst_s": latencies[-1] if latencies else None,
        "spin_worst_s": max(spins, default=None),
    }


def _spins(row: Row) -> bool:
    return bool(parse_fault(Cell.parse(row["cell"]).fault).kind is Kind.SPIN)


def _text(rows: list[Row]) -> Iterator[str]:
    for row in rows:
        flaws = [
            name
            for name, bad in (
                ("verdict", not row["right"]),
                ("rank", row["rank_right"] is False),
                ("root", row["root_right"] is False),
                ("late", row["in_time"] is False),
            )
            if bad
        ]
        if flaws:
            seen = f"{row['verdict']} behind {row['behind']} after {row['latency_s']}"
            yield f"wrong {', '.join(flaws)}: {row['cell']}: {seen}: {row['reason']}"
    yield json.dumps(summary(rows))


def _told(row: Row) -> str:
    mark = "ok " if _right(row) and row["in_time"] is not False else "BAD"
    return f"{mark} {row['cell']}: {row['verdict']} behind {row['behind']} after {row['latency_s']} s"


def _right(row: Row) -> bool:
    return bool(row["right"] and row["rank_right"] is not False and row["root_right"] is not False)


def main() -> int:
    parser = options("fault_matrix", __doc__)
    parser.add_argument("--cells", type=int, default=240, help="how many, drawn by the seed (default: %(default)s)")
    parser.add_argument(
        "--sample", type=int, nargs="?", const=SAMPLE, help="the first few of them only, each of another kind (default: %(const)s)"
    )
    parser.add_argument("--jobs", type=int, default=1, help="how many cells run beside each other (default: %(default)s)")
    parser.add_argument("--only", help="only cells whose name has this in it")
    asked = parser.parse_args()
    names = [name for name in cells(asked.seed, asked.sample or asked.cells) if asked.only is None or asked.only in name]
    book = Book(Path(asked.out), {"seed": asked.seed, "matrix": MATRIX})
    names.sort(key=_load)
    failed = measure(book, names, asked.shard, run_cell, _told, jobs=asked.jobs)
    rows = book.chosen(names)
    report("fault_matrix", asked.json, summary(rows), rows, _text(rows))
    return 1 if failed or not rows or not all(row["right"] for row in rows) else 0  # ranks, roots and latency are figures, told above


if __name__ == "__main__":
    sys.exit(main())
