"""Real vLLM and SGLang on a CPU: healthy starts in several shapes, and hangs that are made without touching the engines' code.

Key insight: a real engine stalls later than its fault begins (the other ranks first run on to where they need the one that is missing), so
two figures are kept: from the fault to the verdict, and from the moment at which nothing moved any more.

The engines must be installed (tests/engines/install.sh vllm sglang models). Cells run one after the other; each takes up to three minutes.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from cells import Book, CellFailed, Row, measure, options, report
from firsttoken.history.runs import RunFolder
from firsttoken.hosts.procfs import Procfs
from firsttoken.judge.advance import advance, initial
from firsttoken.model.events import Event, Judged
from firsttoken.model.words import Phase
from launching import Run, descendants, launched, wait_for

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.engines.install import ENVIRONMENTS, stamped  # noqa: E402  # the path comes first
from tests.engines.launches import Launch, Sglang, Vllm, with_fifo  # noqa: E402

START_S, PATIENT_S, WITHIN_S = 420.0, 110.0, 20.0
"""for a healthy start, or for the fault to begin; for the verdict after it (the other ranks may compile first); from standstill to it"""
HUNG, WAITING, READY, UNSERVING = (frozenset({word}) for word in ("hung", "waiting", "ready", "unserving"))
PROCFS = Procfs()


@dataclass(frozen=True, slots=True)
class Stage:
    """`scratch`: a folder for this cell alone, gone afterwards."""

    scratch: Path
    run: Run

    def log(self) -> str:
        return b"".join(block for _, block in self.run.folder.log()).decode("utf8", "replace")

    def tree(self) -> Iterator[int]:
        pid = self.run.server[0]
        return iter(descendants(pid, PROCFS)) if pid else iter(())

    def titled(self, pattern: str) -> int | None:
        return next((pid for pid in self.tree() if re.search(pattern, " ".join(PROCFS.cmdline(pid)))), None)

    def until(self, found: Callable[[], bool], what: str, step: float = 0.1) -> None:
        """CellFailed where the server ends before."""

        def over() -> bool:
            if self.run.folder.keeper().get("ended") is not None:
                raise CellFailed(f"the server ended before: {what}\n{self.log()[-2000:]}")
            return found()

        wait_for(over, START_S, what, step)


Fault = Callable[[Stage], float | None]
"""Makes the fault, or waits until it is there; returns the Unix time at which it began, None where nobody can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """`prepare` is given the scratch folder and gives the launch. `ranks`: world ranks that must be named. `says`: in the reason."""

    prepare: Callable[[Path], Launch]
    wanted: frozenset[str]
    fault: Fault | None = None
    ranks: tuple[int, ...] | None = None
    says: str = ""
    within: float = WITHIN_S
    held: Callable[[Path], contextlib.AbstractContextManager[object]] | None = None


def vllm() -> Vllm:
    return Vllm(ENVIRONMENTS["vllm"])


def sglang() -> Sglang:
    return Sglang(ENVIRONMENTS["sglang"])


def _cold(scratch: Path) -> dict[str, str]:
    """An old cache would spare it the compiling."""
    return {"VLLM_CACHE_ROOT": str(scratch / "cache"), "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor")}


def healthy_vllm(model: str = "qwen3", *, tp: int = 1, eager: bool = True) -> Cell:
    return Cell(prepare=lambda scratch: vllm().serve(model, tp=tp, eager=eager, env=_cold(scratch)), wanted=READY)


def healthy_sglang(tp: int = 1) -> Cell:
    return Cell(prepare=lambda _: sglang().serve(tp=tp), wanted=READY)


def injected(mode: str, *, eager: bool = True, wanted: frozenset[str] = HUNG, within: float = WITHIN_S) -> Cell:
    def prepare(scratch: Path) -> Launch:
        start = vllm().serve(tp=2, eager=eager, env={**_cold(scratch), "VLLM_INJECT_LOG": str(scratch / "blocked")})
        return vllm().injected(start, mode)

    def fault(stage: Stage) -> float:
        note = stage.scratch / "blocked"
        stage.until(note.exists, "the rank that blocks")
        time.sleep(0.05)
        return float(note.read_text().split()[0])

    return Cell(prepare=prepare, wanted=wanted, fault=fault, ranks=(1,), says="rank 1", within=within)


def stopped(title: str, *, after: str) -> Fault:
    """SIGSTOP to the process of that title, once the log has said `after`."""

    def fault(stage: Stage) -> float:
        stage.until(lambda: re.search(after, stage.log()) is not None and stage.titled(title) is not None, f"{title} after {after}")
        pid = stage.titled(title)
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        return time.time()

    return fault


def stopped_when_ready(title: str) -> Fault:
    def fault(stage: Stage) -> float:
        stage.until(lambda: stage.run.verdict() == "ready", "ready")
        pid = stage.titled(title)
        if pid is None:
            raise CellFailed(f"no process is titled {title}")
        os.kill(pid, signal.SIGSTOP)
        return time.time()

    return fault


def opens_fifo(stage: Stage) -> float:
    """The kernel tells by the function in which a thread sleeps."""

    def sleeps() -> bool:
        for pid in stage.tree():
            for tid in PROCFS.threads(pid):
                if (PROCFS.read(f"{pid}/task/{tid}/wchan", 64) or b"").startswith(b"wait_for_partner"):
                    return True
        return False

    stage.until(sleeps, "somebody who opens the FIFO", 0.25)
    return time.time()


def fifo_vllm(tp: int) -> Cell:
    return Cell(
        prepare=lambda scratch: vllm().serve(str(with_fifo(scratch, "qwen3").parent), tp=tp, env=_cold(scratch)),
        wanted=HUNG, fault=opens_fifo, says=r"FIFO.*\.safetensors",
    )  # fmt: skip


def fifo_sglang() -> Cell:
    return Cell(
        prepare=lambda scratch: sglang().serve(str(with_fifo(scratch, "llama4").parent)),
        wanted=HUNG,
        fault=opens_fifo,
        says=r"FIFO.*\.safetensors",
    )


@contextlib.contextmanager
def held_locks(scratch: Path) -> Iterator[None]:
    """A bystander that holds the locks which an earlier compile of the same model took: their names are hashes of what is compiled."""
    paths = [scratch / path for path in compile_locks()]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
    holder = subprocess.Popen([sys.executable, str(Path(__file__)), "hold", *map(str, paths)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield
    finally:
        holder.kill()
        holder.wait(10)
        if holder.stdout is not None:
            holder.stdout.close()


def hold(paths: list[str]) -> None:
    """The bystander: takes the locks, says so, and sleeps."""
    files = [open(path, "a") for path in paths]  # noqa: SIM115  # as long as it lives
    for file in files:
        fcntl.flock(file, fcntl.LOCK_EX)
    print("held", len(files), flush=True)
    signal.pause()


def compile_locks() -> list[str]:
    """Paths, below its caches' parent, of the lock files that one compiled start leaves."""
    with tempfile.TemporaryDirectory(prefix="firsttoken-locks-") as scratch:
        launch = vllm().serve(eager=False, env=_cold(Path(scratch)))
        with launched(_words(launch), "--detach", "--quiet") as run:
            Stage(Path(scratch), run).until(lambda: run.verdict() == "ready", "ready")
        paths = sorted(str(path.relative_to(scratch)) for path in Path(scratch).rglob("*.lock"))
    if not paths:
        raise CellFailed("a compiled start left no lock file")
    return paths


def locked() -> Cell:
    return Cell(
        prepare=lambda scratch: vllm().serve(eager=False, env=_cold(scratch)),
        wanted=WAITING,
        held=held_locks,
        fault=told("Warming up model for the compilation"),
        says="file lock .*held by",
    )


def told(pattern: str) -> Fault:
    """Nothing is done; from the log line on, nothing more can come."""

    def fault(stage: Stage) -> float:
        stage.until(lambda: re.search(pattern, stage.log()) is not None, f"a line like {pattern}")
        return time.time()

    return fault


def alone() -> Cell:
    """The first of two nodes; the second never comes."""
    flags = ("--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1", "--master-port", "29533")
    return Cell(
        prepare=lambda scratch: vllm().serve("qwen3", *flags, tp=2, env=_cold(scratch)),
        wanted=WAITING, fault=told(r"world_size=2 rank=0"), ranks=(1,), says="rank 1",
    )  # fmt: skip


CELLS: Mapping[str, Cell] = {
    "vllm init:1": injected("init:1"),
    "vllm profile:1": injected("profile:1", eager=False),
    "vllm fifo": fifo_vllm(1),
    "vllm lock:1": injected("lock:1"),
    "vllm stopped worker in weights": Cell(
        prepare=lambda scratch: vllm().serve("mid", tp=2, env=_cold(scratch)),
        wanted=HUNG, fault=stopped(r"VLLM::Worker_TP1", after=r"Loading safetensors checkpoint shards:\s+\d+%"), ranks=(1,), says="stopped",
    ),
    "sglang fifo": fifo_sglang(),
    "vllm load:1": injected("load:1"),
    # a busy loop without a signature is not told from a long native call: busy without progress is all that can be said
    "vllm spin:1": injected("spin:1", wanted=HUNG | {"stalled"}, within=45.0),
    # an eager start needs no all-reduce before its first token
    "vllm warm:1": injected("warm:1", wanted=UNSERVING, within=45.0),
    "vllm profile:1 eager": injected("profile:1"),
    "vllm fifo tp2": fifo_vllm(2),
    "vllm second node missing": alone(),
    "vllm compile cache locked": locked(),
    "sglang stopped rank": Cell(
        prepare=lambda _: sglang().serve(tp=2),
        wanted=HUNG, fault=stopped(r"sglang::scheduler_TP1", after=r"Init parallel ends|Load weight begin"), ranks=(1,), says="stopped",
    ),
    "vllm healthy tp1 compiled": healthy_vllm(eager=False),
    "vllm healthy tp1 eager": healthy_vllm(),
    "vllm healthy tp2 eager": healthy_vllm(tp=2),
    "vllm healthy mla eager": healthy_vllm("mla"),
    "sglang healthy tp1": healthy_sglang(),
    "sglang healthy tp2": healthy_sglang(2),
    "vllm engine core stopped when ready": Cell(
        prepare=lambda scratch: vllm().serve(env=_cold(scratch)),
        wanted=UNSERVING, fault=stopped_when_ready(r"VLLM::EngineCore"), says="stopped",
    ),
    "sglang scheduler stopped when ready": Cell(
        prepare=lambda _: sglang().serve(), wanted=UNSERVING, fault=stopped_when_ready(r"sglang::scheduler"), says="stopped"
    ),
    "sglang detokenizer stopped when ready": Cell(
        prepare=lambda _: sglang().serve(), wanted=UNSERVING, fault=stopped_when_ready(r"sglang::detokenizer"), says="stopped"
    ),
}  # fmt: skip


def run_cell(name: str, kept: Path | None) -> dict[str, Any]:
    """`kept`: a folder to which the run's records are copied."""
    cell, engine = CELLS[name], name.split()[0]
    if not stamped(ENVIRONMENTS[engine]):
        raise CellFailed(f"{engine} is not installed: bash tests/engines/install.sh {engine} models")
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="firsttoken-real-")))
        launch = cell.prepare(scratch)
        if cell.held is not None:
            stack.enter_context(cell.held(scratch))
        options = ("--detach", "--quiet", "--stall-patience", "600", "--max-waiting", "600")
        run = stack.enter_context(launched(_words(launch), *options))
        began = cell.fault(Stage(scratch, run)) if cell.fault is not None else None
        _until_decided(run, cell.wanted, began)
        time.sleep(1.0)
        fields = _told(cell, launch, run.folder, began)
        if kept is not None:
            shutil.copytree(run.folder.path, kept / name.replace(" ", "-"), dirs_exist_ok=True, ignore=shutil.ignore_patterns("socket"))
        return fields


def _words(launch: Launch) -> tuple[str, ...]:
    return ("env", *(f"{name}={value}" for name, value in launch.env.items()), *launch.command)


def _until_decided(run: Run, wanted: frozenset[str], began: float | None) -> None:
    """Until a wanted verdict, or the server's end, or so many seconds after the fault (of a start without one: after launch)."""
    deadline = began + PATIENT_S if began is not None else run.commanded_at + START_S
    while time.time() < deadline and run.verdict() not in wanted and run.folder.keeper().get("ended") is None:
        time.sleep(0.25)


def _told(cell: Cell, launch: Launch, folder: RunFolder, began: float | None) -> dict[str, Any]:
    result = folder.result()
    judged = [event for event in folder.events() if isinstance(event.body, Judged)]
    came = _came(judged, cell.wanted, began)
    verdict, reason, ranks = result.get("verdict"), str(result.get("reason")), result.get("ranks") or {}
    stalled = _stalled(folder, came, began) if came is not None and cell.wanted != READY else None
    latency = round(came.wall - stalled, 2) if came is not None and stalled is not None else None
    path = [str(event.body.verdict) for event in judged if isinstance(event.body, Judged)]
    return {
        "expected": sorted(cell.wanted),
        "verdict": verdict,
        "right": verdict in cell.wanted and not ("hung" in path and "hung" not in cell.wanted),
        "verdicts": [word for word, before in zip(path, [None, *path], strict=False) if word != before],
        "phase": result.get("phase"),
        "at_s": round(came.t, 1) if came is not None else None,
        "after_fault_s": round(came.wall - began, 2) if came is not None and began is not None else None,
        "latency_s": latency,
        "in_time": None if cell.wanted == READY else latency is not None and latency <= cell.within,
        "behind": ranks.get("behind"),
        "rank_right": None if cell.ranks is None else tuple(ranks.get("behind") or ()) == cell.ranks,
        "says_right": None if not cell.says else re.search(cell.says, reason) is not None,
        "order_right": _in_order(result) if cell.wanted == READY else None,
        "root_blocker": result.get("root_blocker"),
        "reason": reason[:500],
    }


def _stalled(folder: RunFolder, came: Event, began: float | None) -> float:
    """Unix time from which on nothing moved: the last strong signal before the verdict, or the fault where that came later."""
    state = initial()
    for event in folder.events():
        if event.seq >= came.seq:
            break
        state = advance(state, event)
    if state.ready_at is not None and began is not None:
        return began  # counters come seldom then, and what moves is no progress
    moved = came.wall - (came.t - state.motion.moved_at)
    return moved if began is None else max(moved, began)


def _came(judged: list[Event], wanted: frozenset[str], began: float | None) -> Event | None:
    """The first wanted verdict (after the fault)."""
    after = [event for event in judged if began is None or event.wall >= began - 0.1]
    return next((event for event in after if isinstance(event.body, Judged) and str(event.body.verdict) in wanted), None)


def _in_order(result: Mapping[str, Any]) -> bool:
    """Whether the phases stand in the profile's order, and begin one after the other."""
    name = str((result.get("engine") or {}).get("name")).replace(".", "")
    profile = resources.files("firsttoken.knowledge") / "engines" / f"{name}.toml"
    order: list[str] = tomllib.loads(profile.read_text("utf-8"))["order"]
    rows = result.get("phases") or []
    names, begins = [row["name"] for row in rows], [row["began_s"] for row in rows]
    return bool(rows) and names == [one for one in order if one in names] and begins == sorted(begins) and str(Phase.FIRST_TOKEN) in names


def flaws(row: Row) -> list[str]:
    checks = (("verdict", "right"), ("rank", "rank_right"), ("reason", "says_right"), ("late", "in_time"), ("phases", "order_right"))
    return [name for name, key in checks if row[key] is False]


def summary(rows: list[Row]) -> dict[str, Any]:
    latencies = sorted(row["latency_s"] for row in rows if row["latency_s"] is not None)
    return {
        "cells": len(rows),
        "flawless": sum(not flaws(row) for row in rows),
        **{key: sum(row[key] is True for row in rows) for key in ("right", "rank_right", "says_right", "in_time")},
        "latency_max_s": latencies[-1] if latencies else None,
    }


def _line(row: Row) -> str:
    mark = f"BAD {', '.join(flaws(row))}:" if flaws(row) else "ok "
    times = (
        f"after {row['latency_s']} s of standstill ({row['after_fault_s']} s after the fault)"
        if row["latency_s"] is not None
        else f"at {row['at_s']} s"
    )
    return f"{mark} {row['cell']}: {row['verdict']} {times}, behind {row['behind']}: {row['reason']}"


def main() -> int:
    if sys.argv[1:2] == ["hold"]:
        hold(sys.argv[2:])
    parser = options("real", __doc__)
    parser.add_argument("--only", help="only cells whose name has this in it")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the records of each run there")
    asked = parser.parse_args()
    names = [name for name in CELLS if asked.only is None or asked.only in name]
    book = Book(asked.out, {})
    failed = measure(book, names, asked.shard, lambda name: run_cell(name, asked.keep), _line)
    rows = book.chosen(names)
    report("real", asked.json, summary(rows), rows, [*map(_line, rows), json.dumps(summary(rows))])
    return 1 if failed or not rows or any(flaws(row) for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
