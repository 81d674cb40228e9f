"""SIGKILL of keeper, observer and face at random moments of a start: does the server live on or end as asked, and is all of it mended?

    python bench/kills.py [--kills 20] [--parts keeper,observer,face] [--seed S]

Each kill is a start of the embedded engine (2 ranks, about 4 s) under `firsttoken run`, half of them with `--on-observer-death keep`, half
with `stop`. The moment is drawn from the seed. What must hold afterwards:

| killed | keep | stop |
|---|---|---|
| keeper, face | the server answers a request for a token, and the verdict is ready | no process of the run is left |
| observer, once | as above: it is started again | – |
| observer, until the keeper starts it no more | – | no process of the run is left |

and in every case: `status` tells, `replay` and `replay --check` agree, `stop` (or `cleanup`, in turn, where the keeper was killed) mends
with status 0, the face comes back, no process that was ever seen of the run or carries its mark is left, nor its port, nor its socket.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from cells import Book, CellFailed, Row, measure, options, report
from firsttoken.hosts.procfs import Procfs
from firsttoken.model.events import Body
from firsttoken.observe.http import FirstTokenProber
from firsttoken.observe.http_target import Target
from launching import ENGINE, Key, Run, descendants, free_port, launched, wait_for

PARTS = ("keeper", "observer", "face")
_RANKS = 2
_PATIENCE = 60.0
_MOST_OBSERVERS = 12


def main() -> int:
    parser = options("kills", __doc__)
    parser.add_argument("--kills", type=int, default=20, help="of each part")
    parser.add_argument("--parts", default=",".join(PARTS), help="which parts are killed")
    parser.add_argument("--span", type=float, default=5.0, metavar="S", help="kills happen within so many seconds from the server's spawn")
    asked = parser.parse_args()
    cells = [f"{part}/{number:03}" for number in range(asked.kills) for part in asked.parts.split(",")]
    book = Book(asked.out, {"seed": asked.seed, "span": asked.span, "ranks": _RANKS})
    failed = measure(book, cells, asked.shard, lambda cell: kill(cell, asked.seed, asked.span), _told)
    rows = book.chosen(cells)
    bad = [row for row in rows if row["problems"]]
    summary = {"kills": len(rows), "wanted": len(cells), "right": len(rows) - len(bad), "wrong": [row["cell"] for row in bad]}
    text = [*map(_told, rows), f"{summary['right']} of {summary['kills']} kills as asked ({summary['wanted']} wanted)"]
    report("kills", asked.json, summary, rows, text)
    return 1 if failed or bad else 0


@dataclass(slots=True)
class _Case:
    """One kill: what is known of the run's processes, and what was found wrong."""

    run: Run
    port: int
    mark: bytes
    procfs: Procfs = field(default_factory=Procfs)
    seen: set[Key] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def look(self) -> None:
        """Remembers every process of the run that can be seen now."""
        for key in (self.run.key(part) for part in ("server", "keeper", "observer")):
            if key is not None and self.procfs.alive(*key):
                self.seen |= {(pid, stat.start) for pid, stat in descendants(key[0], self.procfs).items()}

    def left(self) -> list[int]:
        """Living processes of the run: seen before, or marked. The face is none of them."""
        self.look()
        found = {pid for pid, start in self.seen if self.procfs.alive(pid, start)}
        marked = {pid for pid in self.procfs.pids() if self.mark in (self.procfs.environ(pid) or b"").split(b"\0")}
        return sorted((found | marked) - {self.run.face.pid, os.getpid()})

    def expect(self, holds: bool, problem: str) -> None:
        if not holds:
            self.problems.append(problem)


def kill(cell: str, seed: int, span: float) -> Row:
    part, _, text = cell.partition("/")
    number = int(text)
    policy = ("keep", "stop")[number % 2]
    moment = random.Random(f"{seed} {cell}").uniform(0.0, span)
    mend = "cleanup" if part == "keeper" and number // 2 % 2 else "stop"
    port = free_port()
    with launched([*ENGINE, "--ranks", str(_RANKS), "--port", str(port)], "--quiet", "--on-observer-death", policy) as run:
        spawned = time.monotonic()
        case = _Case(run, port, str(run.folder.keeper().get("mark")).encode())
        wait_for(lambda: run.key("observer") is not None, 20.0, "the observer")
        time.sleep(max(0.0, spawned + moment - time.monotonic()))
        case.look()
        phase = run.folder.result().get("phase")
        happened = round(time.monotonic() - spawned, 2)
        _kill(case, part, again=policy == "stop")
        _check_tells(case, "right after the kill")
        if policy == "stop":
            _check_gone(case)
        else:
            _check_serves(case)
        _check_replays(case, "before the mending")
        _check_mends(case, mend)
        _check_replays(case, "after the mending")
        _check_tells(case, "after the mending")
        problems = list(case.problems)
        events = _recorded(run)
    return {
        "part": part,
        "policy": policy,
        "moment_s": happened,
        "phase": phase,
        "mend": mend,
        "events": events,
        "problems": problems,
    }


def _kill(case: _Case, part: str, *, again: bool) -> None:
    if part == "face":
        case.run.face.send_signal(signal.SIGKILL)
        case.run.face.wait(10.0)
        return
    killed: set[Key] = set()
    while len(killed) < (_MOST_OBSERVERS if again and part == "observer" else 1):
        key = case.run.key(part)
        if key is None or key in killed or not case.procfs.alive(*key):
            if killed and not _observer_wanted(case):
                return
            wait_for(lambda: _fresh(case, part, killed) or not _observer_wanted(case), 30.0, f"a living {part}", 0.02)
            continue
        killed.add(key)
        case.look()
        with contextlib.suppress(ProcessLookupError):
            os.kill(key[0], signal.SIGKILL)


def _fresh(case: _Case, part: str, killed: set[Key]) -> bool:
    key = case.run.key(part)
    return key is not None and key not in killed and case.procfs.alive(*key)


def _observer_wanted(case: _Case) -> bool:
    """Whether the keeper may still start another: it lives and the server does."""
    server, keeper = case.run.key("server"), case.run.key("keeper")
    return server is not None and keeper is not None and case.procfs.alive(*server) and case.procfs.alive(*keeper)


def _check_serves(case: _Case) -> None:
    try:
        wait_for(lambda: _answers(case.port), _PATIENCE, "a completion", 0.2)
        wait_for(lambda: case.run.verdict() == "ready", _PATIENCE, "the verdict ready", 0.1)
    except CellFailed as error:
        case.problems.append(f"{error} (verdict {case.run.verdict()}, left {case.left()})")


def _check_gone(case: _Case) -> None:
    try:
        wait_for(lambda: not case.left(), _PATIENCE, "the end of all processes", 0.2)
    except CellFailed as error:
        case.problems.append(f"{error}; left: {case.left()}")


def _check_tells(case: _Case, when: str) -> None:
    done = case.run.ask("status", case.run.folder.name, "--json")
    told: Any = None
    with contextlib.suppress(ValueError):
        told = json.loads(done.stdout)
    case.expect(done.returncode == 0 and isinstance(told, dict), f"status {when}: {done.returncode}, {_last(done.stderr)}")


def _check_replays(case: _Case, when: str) -> None:
    for words in ((), ("--check",)):
        done = case.run.ask("replay", *words, case.run.folder.name)
        case.expect(done.returncode == 0, f"replay {' '.join(words)} {when}: {done.returncode}, {_last(done.stderr)}")


def _check_mends(case: _Case, mend: str) -> None:
    done = case.run.ask(mend, case.run.folder.name)
    case.expect(done.returncode == 0, f"{mend}: {done.returncode}, {_last(done.stderr or done.stdout)}")
    left = case.left()
    case.expect(not left, f"after {mend} these are left: {left}")
    try:
        wait_for(lambda: case.run.face.poll() is not None, 30.0, "the face's return", 0.1)
    except CellFailed as error:
        case.problems.append(str(error))
    case.expect(not _taken(case.port), f"port {case.port} is still taken")
    path = str(case.run.folder.keeper().get("socket"))
    case.expect(not os.path.exists(path), f"the control socket is left: {path}")


def _answers(port: int) -> bool:
    def ignore(_: Body) -> None:
        return None

    async def ask() -> bool:
        async with asyncio.timeout(20.0):
            answer = await FirstTokenProber(Target(host="127.0.0.1", port=port), ignore).ask(0)
        return answer.status == 200 and bool(answer.text)

    return _taken(port) and asyncio.run(ask())


def _taken(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return True
    return False


def _recorded(run: Run) -> int:
    return sum(1 for _ in run.folder.events())


def _last(said: bytes) -> str:
    return " / ".join(said.decode("utf8", "replace").strip().splitlines()[-3:])


def _told(row: Row) -> str:
    where = f"{row['moment_s']:.2f} s ({row['phase'] or 'before any verdict'})"
    found = "as asked" if not row["problems"] else "WRONG: " + "; ".join(row["problems"])
    return f"{row['cell']:<14} {row['policy']:<5} killed at {where:<32} {row['mend']:<8} {row['took_s']:>5.1f} s  {found}"


if __name__ == "__main__":
    sys.exit(main())
