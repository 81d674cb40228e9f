"""What firsttoken costs a start: the server's exec to first token with and without it, and its own processor time and memory.

    python bench/overhead.py                     20 pairs of starts of 20 s (embedded engine, paced)
    python bench/overhead.py --short             the same with starts as quick as they can be
    python bench/overhead.py --work              starts of a fixed amount of work on all cores: these show who takes processor time
    python bench/overhead.py --watch             own processor time and memory beside 16 processes, starting and idle
    python bench/overhead.py -- vllm serve M --port {port}       pairs of any server (with --ready REGEX)

Each pair runs the same command plainly (output to a file) and under `firsttoken run --until ready`, in the order A B B A. Both are counted
from the process's start as the kernel tells it, to the server's own ready line, and to the first token as the asking client gets it. The
plain start is asked by a minimal poller: it tries to connect each 50 ms and then asks by the same requests as firsttoken does. So `ready`
is what observing costs the server, and `token` adds when each of the two asks. `command` counts from the start of `firsttoken run` itself.
"""

import asyncio
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fixed_work
import own_cost
from cells import Book, CellFailed, Row, measure, options, report, say
from firsttoken.model.events import Body, HttpAnswer
from firsttoken.observe.http import FirstTokenProber
from firsttoken.observe.http_target import Target
from intervals import median_interval, order
from launching import ENGINE, Run, Tail, free_port, launched, plain, started_wall, wait_for

_MARKS = ("ready_s", "token_s")
_POLL = 0.05
_LONGEST = 1200.0
_ENGINE_READY = "The rehearsal server is ready to serve"


@dataclass(frozen=True, slots=True)
class Subject:
    """The server to start; `{port}` in `argv` becomes a free port. `ready` is searched for in its log lines."""

    name: str
    argv: tuple[str, ...]
    ready: str

    def command(self, port: int) -> list[str]:
        return [word.replace("{port}", str(port)) for word in self.argv]


def main() -> int:
    parser = options("overhead", __doc__)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=2, help="of the embedded engine")
    parser.add_argument("--pace", type=float, default=20.0, metavar="S", help="seconds that a paced start takes at least")
    parser.add_argument("--short", action="store_true", help="starts as quick as they can be")
    parser.add_argument("--work", action="store_true", help="starts of a fixed amount of work")
    parser.add_argument("--rounds", type=int, default=8000, help="how much work, for --work")
    parser.add_argument("--watch", action="store_true", help="own processor time and memory in place of pairs")
    parser.add_argument("--watch-seconds", type=float, default=60.0, help="how long a start, and how long an idle server, is watched")
    parser.add_argument("--ready", default=_ENGINE_READY, metavar="REGEX", help="the ready line of a server given by its command")
    parser.add_argument("command", nargs="*", metavar="-- COMMAND", help="a server to start in place of the embedded engine")
    asked = parser.parse_args()
    if asked.watch:
        return _watch(asked.out, asked.watch_seconds, asked.json)
    subject = _subject(asked.command, asked.ready, asked.ranks, 0.0 if asked.short else asked.pace, asked.rounds if asked.work else None)
    book = Book(asked.out, {"subject": subject.name, "argv": list(subject.argv)})
    cells = [f"pair/{number:03}" for number in range(asked.pairs)]
    if any(cell not in book.rows for cell in cells):
        say("one start beforehand, not counted: files come into the page cache")
        _start_plainly(subject)
    failed = measure(book, cells, asked.shard, lambda cell: _pair(subject, int(cell.rpartition("/")[2])), _told)
    rows = book.chosen(cells)
    summary = {"subject": subject.name, "pairs_wanted": asked.pairs, **summarise(rows, asked.seed)}
    report("overhead", asked.json, summary, rows, _text(summary))
    return 1 if failed else 0


def summarise(rows: Sequence[Row], seed: int) -> dict[str, Any]:
    """Per mark the median plain start, the ratio and the difference (seconds) of the pairs, with 95 % intervals."""
    told: dict[str, Any] = {}
    for mark in (*_MARKS, "command_s"):
        base = "token_s" if mark == "command_s" else mark
        pairs = [(row["plain"][base], row["firsttoken"][mark]) for row in rows]
        ratio = median_interval([with_us / without for without, with_us in pairs], seed=seed)
        difference = median_interval([with_us - without for without, with_us in pairs], seed=seed)
        alone = median_interval([without for without, _ in pairs], seed=seed)
        if ratio is not None and difference is not None and alone is not None:
            told[mark.removesuffix("_s")] = {
                "plain_s": round(alone.median, 3),
                "ratio": ratio.rounded(),
                "more_s": difference.rounded(3),
            }
    for side in ("plain", "firsttoken"):
        late = median_interval([row[side]["asked_s"] - row[side]["ready_s"] for row in rows], seed=seed)
        told[f"{side}_asks_after_ready_s"] = late.rounded(3) if late is not None else None
    return told


def _subject(command: list[str], ready: str, ranks: int, pace: float, rounds: int | None) -> Subject:
    if command:
        return Subject("command", tuple(command), ready)
    if rounds is not None:
        script = str(Path(fixed_work.__file__).resolve())
        return Subject("fixed work", (sys.executable, script, "--port", "{port}", "--rounds", str(rounds)), fixed_work.READY)
    argv = [*ENGINE, "--ranks", str(ranks), "--port", "{port}"]
    argv += [word for phase, share in own_cost.SHARES.items() if pace for word in ("--pace", f"{phase}={share * pace:g}")]
    return Subject("paced" if pace else "short", tuple(argv), _ENGINE_READY)


def _pair(subject: Subject, number: int) -> Row:
    first, second = order(number)
    found: dict[str, Any] = {}
    for with_us in (first, second):
        found["firsttoken" if with_us else "plain"] = _start_with_us(subject) if with_us else _start_plainly(subject)
    return {"order": "firsttoken first" if first else "plain first", **found}


def _start_plainly(subject: Subject) -> dict[str, float]:
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="firsttoken-bench-") as folder:
        log = Path(folder) / "server.log"
        with Tail(log) as tail, plain(subject.command(port), log) as server:
            began = _started(server)
            wait_for(lambda: _listens(port) or server.poll() is not None, _LONGEST, "a listening port", _POLL)
            asked = time.time()
            answer = asyncio.run(_ask(port))
            if answer.status != 200 or server.poll() is not None:
                raise CellFailed(
                    f"the plain start gave no token: {answer.error or answer.status}; {log.read_text(errors='replace')[-300:]}"
                )
            waited = answer.first_token_s if answer.first_token_s is not None else answer.seconds
            wait_for(lambda: tail.said(subject.ready) is not None, 30.0, "the ready line")
            ready = tail.said(subject.ready) or 0.0
            # the answer's clock begins after the list of models was read
            spoken = time.time() - answer.seconds + waited if answer.seconds else asked
    return {"ready_s": _since(began, ready), "asked_s": _since(began, asked), "token_s": _since(began, spoken)}


def _start_with_us(subject: Subject) -> dict[str, float]:
    with launched(subject.command(free_port()), "--until", "ready", "--quiet") as run:
        began = started_wall(run.server)
        with Tail(run.folder.path / "log" / "head.raw") as tail:
            wait_for(lambda: run.face.poll() is not None, _LONGEST, "the decision and the end", 0.1)
            ready = tail.said(subject.ready)
        first = next(iter(_tokens(run)), None)
        if run.face.returncode != 0 or first is None or ready is None:
            raise CellFailed(f"firsttoken run ended with {run.face.returncode}: {run.said.read_text(errors='replace')[-500:]}")
        at, answer = first
        asked = at - answer.seconds
        token = asked + (answer.first_token_s if answer.first_token_s is not None else answer.seconds)
    return {
        "ready_s": _since(began, ready),
        "asked_s": _since(began, asked),
        "token_s": _since(began, token),
        "command_s": _since(run.commanded_at, token),
    }


def _tokens(run: Run) -> Iterator[tuple[float, HttpAnswer]]:
    """Answers that brought a token, with the wall time at which they were recorded."""
    for event in run.folder.events():
        if isinstance(event.body, HttpAnswer) and event.body.status == 200 and event.body.text is not None:
            yield event.wall, event.body


async def _ask(port: int) -> HttpAnswer:
    def ignore(_: Body) -> None:
        return None

    return await FirstTokenProber(Target(host="127.0.0.1", port=port), ignore).ask(0)


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return True
    except OSError:
        return False


def _started(server: "subprocess.Popen[bytes]") -> float:
    stat = own_cost.PROCFS.stat(server.pid)
    if stat is None:
        raise CellFailed("the plain start ended at once")
    return started_wall((server.pid, stat.start))


def _since(began: float, at: float) -> float:
    return round(at - began, 3)


def _told(row: Row) -> str:
    marks = "  ".join(f"{mark[:-2]} {row['plain'][mark]:.2f} → {row['firsttoken'][mark]:.2f} s" for mark in _MARKS)
    return f"{row['cell']} ({row['order']}): {marks}"


def _text(summary: Mapping[str, Any]) -> Iterator[str]:
    for mark in ("ready", "token", "command"):
        if mark in summary:
            row = summary[mark]
            ratio, more = row["ratio"], row["more_s"]
            yield (
                f"{mark:<8} plain {row['plain_s']:.2f} s   ratio {ratio['median']:.4f} [{ratio['low']:.4f}, {ratio['high']:.4f}]   "
                f"more {more['median']:+.3f} s [{more['low']:+.3f}, {more['high']:+.3f}]   {ratio['count']} pairs"
            )


def _watch(out: Path, seconds: float, as_json: bool) -> int:
    book = Book(out, {"subject": "watch", "seconds": seconds, "ranks": own_cost.RANKS})
    failed = measure(book, ["watch"], own_cost.WHOLE, lambda _: own_cost.watch(seconds), own_cost.told)
    rows = book.chosen(["watch"])
    report("overhead", as_json, rows[0] if rows else {}, rows, [own_cost.told(row) for row in rows])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
