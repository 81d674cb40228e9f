"""Healthy and slow starts of every sort that could be taken for a hang: is one of them ever called hung, failed, crashed or unserving?

Three sorts of cells. `live` starts the embedded engine (or, where it is installed, a real one): paces drawn at random, quiet phases, child
and in-process compilers, one rank that compiles while the others wait or spin, downloads, other load on the machine, SIGSTOP and SIGCONT
with 5 s between them. `recorded` folds the recording of such a start as it was. `stretched` folds it at other paces (stretching.py), with
factors drawn by the seed; it is a calculation, says so in its row, and touches no process.

Key insight: what matters is every verdict on the way, not only the last: a run that was called hung and came to be ready is a false alarm.

Recordings are made by `--record` from live starts beside which a second looker reads places and stacks every two seconds, so that a
stretched start can be looked at whenever the judge wants to. `stalled` and `waiting` are no alarms, but how long they lasted is told.
"""

import asyncio
import contextlib
import itertools
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cells import RESULTS, Book, CellFailed, Row, measure, options, report
from firsttoken.hosts.procfs import Procfs
from firsttoken.model.events import Event, Judged, Launched, Places, Stacks, StopAsked
from firsttoken.observe.closeup import CloseLook
from launching import ENGINE, Run, descendants, free_port, launched
from stretching import Recording, Verdict, Warp, members, play, write

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.engines.install import ENVIRONMENTS, stamped  # noqa: E402  # the path comes first
from tests.engines.launches import Launch, Sglang, Vllm  # noqa: E402

ALARMS = frozenset({"hung", "failed", "crashed", "unserving"})
RECORDINGS = RESULTS.parent / "recordings"
PROCFS = Procfs()
PAUSE_S, LOOK_EVERY = 5.0, 2.0
LONGEST_S, LONGEST_COMPILE_S = 180.0, 600.0
"""of one phase of a stretched start"""
ONE_RANK = (
    ("quiet", "compile", 1, 180), ("quiet", "kv_cache", 2, 90), ("quiet", "weights", 1, 75), ("quiet", "graph_capture", 1, 60),
    ("quiet", "config", 2, 60),
    ("jit", "compile", 1, 600), ("jit", "compile", 2, 120), ("jit", "post_load", 1, 60), ("jit", "warmup", 2, 45),
    ("jit", "graph_capture", 1, 90),
)  # fmt: skip
ALL_RANKS = (
    ("compile", "compile", 1, 100), ("compile", "compile", 2, 60), ("compile", "kv_cache", 4, 40),
    ("grind", "kv_cache", 1, 50), ("grind", "warmup", 2, 50),
    ("download", "weights", 1, 60), ("download", "weights", 2, 45), ("download", "weights", 4, 30),
    ("slow", "weights", 2, 60), ("slow", "post_load", 1, 60), ("slow", "warmup", 4, 60),
    ("stall", "weights", 1, 25), ("lock", "compile", 2, 25), ("connect", "distributed_init", 2, 25),
)  # fmt: skip
"""kind, phase, ranks, seconds: slow starts, and waits for something outside that comes"""
PHASES = ("config", "distributed_init", "weights", "post_load", "kv_cache", "compile", "graph_capture", "warmup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """`words` of the embedded engine, or a real engine's `prepare`. `seconds`: how long it should take on an idle machine. `burners`:
    processes beside it that do nothing but compute. `pauses`: (seconds after launch, who) for SIGSTOP: all, one or main.
    """

    words: tuple[str, ...] = ()
    seconds: float = 20.0
    spin: bool = False
    burners: int = 0
    pauses: tuple[tuple[float, str], ...] = ()
    prepare: Callable[[Path], Launch] | None = None


def paces(draw: random.Random, shortest: float, longest: float) -> tuple[str, ...]:
    """Of most phases, seconds; each about as likely short as long."""
    chosen = [phase for phase in PHASES if draw.random() < 0.8]
    low, high = math.log(shortest), math.log(longest)
    return tuple(word for phase in chosen for word in ("--pace", f"{phase}={math.exp(draw.uniform(low, high)):.2f}"))


def start(draw: random.Random, ranks: int, *faults: str, shortest: float = 0.05, longest: float = 4.0) -> tuple[str, ...]:
    asked = tuple(word for fault in faults for word in ("--fault", fault))
    return ("--ranks", str(ranks), *asked, *paces(draw, shortest, longest))


def live_cells(seed: int) -> dict[str, Live]:
    """What every number is drawn from stands here; the same seed gives the same starts."""
    draw = random.Random(f"live {seed}")
    found: dict[str, Live] = {}

    def add(label: str, ranks: int, *faults: str, seconds: float, shortest: float = 0.05, longest: float = 4.0, **more: Any) -> None:
        words = start(draw, ranks, *faults, shortest=shortest, longest=longest)
        found[f"live {len(found):02d} {label} x{ranks}"] = Live(words=words, seconds=seconds, **more)

    def hit(kind: str, phase: str, ranks: int, seconds: int, **more: Any) -> None:
        """One rank of several, as drawn, where the phase is one of the ranks."""
        rank = f":rank={draw.randrange(ranks)}" if ranks > 1 and phase != "config" else ""
        add(f"{kind}@{phase} {seconds} s", ranks, f"{kind}@{phase}{rank}:for={seconds}", seconds=seconds + 20, **more)

    for ranks in (1, 2, 4, 8, 1, 2, 4, 8):
        add("paced", ranks, shortest=0.2, longest=8.0, seconds=45)
    for kind, phase, ranks, seconds in ONE_RANK:
        hit(kind, phase, ranks, seconds)
    for kind, phase, ranks, seconds in ALL_RANKS:
        add(f"{kind}@{phase} {seconds} s", ranks, f"{kind}@{phase}:for={seconds}", seconds=seconds + 20)
    for kind, ranks, spin in (("compile", 4, False), ("compile", 2, True), ("jit", 2, True), ("quiet", 3, True)):
        how = "others spin" if spin else "others wait"
        add(f"one rank in {kind} 100 s, {how}", ranks, f"{kind}@compile:rank={draw.randrange(ranks)}:for=100", seconds=120, spin=spin)
    add("logstop@weights", 2, "logstop@weights", seconds=30)
    for ranks, who in ((1, "all"), (2, "one"), (4, "all"), (4, "one"), (2, "main"), (8, "one")):
        times = [round(draw.uniform(1, 4), 2)]
        times += [round(times[0] + gap, 2) for gap in itertools.accumulate(draw.uniform(10, 14) for _ in range(2))]
        add(f"paused ({who})", ranks, shortest=2.0, longest=10.0, seconds=80, pauses=tuple((at, who) for at in times))
    for ranks, burners in ((1, 2), (2, 4), (4, 4), (2, 2)):
        add(f"loaded by {burners}", ranks, longest=5.0, seconds=60, burners=burners)
    hit("jit", "compile", 2, 40, burners=3)
    add("slow@weights 30 s, paused", 2, "slow@weights:for=30", seconds=60, pauses=((6.0, "all"), (20.0, "one")))
    return found | real_cells()


def real_cells() -> dict[str, Live]:
    """Cold starts of real engines, as far as they are installed."""

    def cold(scratch: Path) -> dict[str, str]:
        return {"VLLM_CACHE_ROOT": str(scratch / "cache"), "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor")}

    found: dict[str, Live] = {}
    if stamped(ENVIRONMENTS["vllm"]):
        vllm = Vllm(ENVIRONMENTS["vllm"])
        found["real vllm cold compile"] = Live(seconds=300, prepare=lambda scratch: vllm.serve(eager=False, env=cold(scratch)))
        found["real vllm eager x2"] = Live(seconds=300, prepare=lambda scratch: vllm.serve(tp=2, env=cold(scratch)))
        found["real vllm cold compile x2, loaded by 2"] = Live(
            seconds=300, burners=2, prepare=lambda scratch: vllm.serve(tp=2, eager=False, env=cold(scratch))
        )
    if stamped(ENVIRONMENTS["sglang"]):
        sglang = Sglang(ENVIRONMENTS["sglang"])
        found["real sglang"] = Live(seconds=300, prepare=lambda _: sglang.serve())
        found["real sglang x2"] = Live(seconds=300, prepare=lambda _: sglang.serve(tp=2))
    return found


def recorded_starts(seed: int) -> dict[str, Live]:
    """What `--record` records. Short ones: they are stretched afterwards."""
    draw = random.Random(f"recorded {seed}")

    def one(ranks: int, *faults: str, seconds: float = 40.0, **more: Any) -> Live:
        return Live(words=start(draw, ranks, *faults, longest=3.0), seconds=seconds, **more)

    embedded = {
        "paced-x1": Live(words=start(draw, 1, shortest=0.5, longest=8.0), seconds=40),
        "paced-x4": Live(words=start(draw, 4, shortest=0.5, longest=8.0), seconds=40),
        "quiet-x1": one(1, "quiet@kv_cache:for=20"),
        "quiet-x2": one(2, "quiet@compile:rank=1:for=20"),
        "compile-x1": one(1, "compile@compile:for=20"),
        "compile-x4": one(4, "compile@compile:rank=2:for=20"),
        "compile-spin-x2": one(2, "compile@compile:rank=0:for=20", spin=True),
        "jit-x1": one(1, "jit@compile:for=25"),
        "jit-x2": one(2, "jit@compile:rank=1:for=25"),
        "jit-spin-x2": one(2, "jit@compile:rank=1:for=20", spin=True),
        "grind-x2": one(2, "grind@warmup:rank=0:for=20"),
        "download-x2": one(2, "download@weights:for=20"),
        "slow-x2": one(2, "slow@weights:for=20"),
        "slow-warmup-x1": one(1, "slow@warmup:for=20"),
        "lock-x2": one(2, "lock@compile:for=15"),
        "loaded-x2": one(2, burners=3, seconds=60),
    }
    return embedded | {name.replace("real ", "").replace(" ", "-"): cell for name, cell in real_cells().items() if not cell.burners}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Of one recording. `factors`: one a phase."""

    source: str
    longer: bool
    seed: str

    def warp(self, recording: Recording) -> Warp:
        """Half of the draws make one phase as long as it may be; the others stretch each by what comes. What was over between two looks,
        as our two requests are, keeps about its pace: nothing was seen of it that could be shown for longer."""
        draw = random.Random(self.seed)
        starts = [at for at, _ in recording.phases] or [0.0]
        ends = [*starts[1:], max(recording.seconds, starts[-1])]
        cap = LONGEST_COMPILE_S if self.source.startswith("jit") else LONGEST_S
        most = 12.0 if self.longer else 6.0
        lengths = [max(end - begin, 0.0) for begin, end in zip(starts, ends, strict=True)]
        factors = [math.exp(draw.uniform(math.log(0.5), math.log(most))) for _ in lengths]
        names = [name for _, name in recording.phases] or [""]
        seen = [length >= 1.5 * LOOK_EVERY and name != "first_token" for name, length in zip(names, lengths, strict=True)]
        caps = [max(cap / length, 0.5) if long else 1.5 for long, length in zip(seen, lengths, strict=True)]
        factors = [min(factor, most) for factor, most in zip(factors, caps, strict=True)]
        if draw.random() < 0.5 and self.longer:
            place = max(range(len(lengths)), key=lambda number: lengths[number] * seen[number])
            factors[place] = caps[place] * draw.uniform(0.6, 1.0)
        return Warp.of(zip(lengths, factors, strict=True), start=starts[0])


def stretched_cells(seed: int, count: int) -> dict[str, Stretch]:
    names = sorted(path.name.removesuffix(".jsonl.xz") for path in RECORDINGS.glob("*.jsonl.xz"))
    found: dict[str, Stretch] = {}
    for number in range(count if names else 0):
        source, longer = names[number % len(names)], number // len(names) % 2 == 0
        name = f"stretched {number:03d} {source} {'longer' if longer else 'slower'}"
        found[name] = Stretch(source=source, longer=longer, seed=f"{seed} {name}")
    return found


def cells(seed: int, count: int) -> dict[str, Live | Stretch | str]:
    """In the order in which they are measured; a text is the name of a recording."""
    sources = sorted(path.name.removesuffix(".jsonl.xz") for path in RECORDINGS.glob("*.jsonl.xz"))
    live = live_cells(seed)
    recorded = {f"recorded {name}": name for name in sources}
    return {**live, **recorded, **stretched_cells(seed, max(count - len(live) - len(recorded), 0))}


def sample(seed: int, names: Mapping[str, Live | Stretch | str], count: int) -> list[str]:
    """A few short live starts, the others by calculation, each recording about as often."""
    draw = random.Random(f"sample {seed}")
    short = [name for name, cell in names.items() if isinstance(cell, Live) and cell.prepare is None and cell.seconds <= 55]
    folded = [name for name, cell in names.items() if not isinstance(cell, Live)]
    chosen = set(draw.sample(short, min(len(short), count // 6)))
    chosen |= set(draw.sample(folded, min(len(folded), count - len(chosen))))
    return [name for name in names if name in chosen]


def run_cell(name: str, cell: Live | Stretch | str, kept: Path | None = None) -> dict[str, Any]:
    """`kept`: a folder to which a live run's events are copied."""
    if isinstance(cell, Live):
        with tempfile.TemporaryDirectory(prefix="firsttoken-alarms-") as scratch, started(cell, Path(scratch)) as run:
            watched(cell, run)
            if kept is not None:
                shutil.copy(run.folder.path / "events.jsonl", kept / f"{name.replace(' ', '-')}.jsonl")
            return told("live", judged(run), end_of(run))
    source, warp, longer = cell, Warp(), False
    recording = Recording.read(RECORDINGS / f"{source if isinstance(source, str) else source.source}.jsonl.xz")
    if isinstance(cell, Stretch):
        warp, longer = cell.warp(recording), cell.longer
    kind = "stretched" if isinstance(cell, Stretch) else "recorded"
    verdicts = play(recording, warp, longer=longer)
    fields = told(kind, verdicts, warp(recording.seconds))
    if isinstance(cell, Stretch):
        fields["warp"] = [[round(value, 2) for value in knot] for knot in warp.knots]
    return fields | {"processes": members(recording)}


def told(kind: str, verdicts: Sequence[Verdict], end: float) -> dict[str, Any]:
    """`longest_s`: how long each verdict that is none of starting, slow and ready lasted at a stretch."""
    longest: dict[str, float] = {}
    for one, after in zip(verdicts, [*(v.t for v in verdicts[1:]), max(end, verdicts[-1].t if verdicts else 0.0)], strict=True):
        if one.verdict not in ("starting", "slow", "ready"):
            longest[one.verdict] = round(max(longest.get(one.verdict, 0.0), after - one.t), 1)
    alarms = [one for one in verdicts if one.verdict in ALARMS]
    return {
        "kind": kind,
        "alarms": [{"at_s": round(one.t, 1), "verdict": one.verdict, "phase": one.phase, "reason": one.reason[:400]} for one in alarms],
        "ready": bool(verdicts) and verdicts[-1].verdict == "ready",
        "verdict": verdicts[-1].verdict if verdicts else None,
        "verdicts": [word for word, _ in itertools.groupby(one.verdict for one in verdicts)],
        "longest_s": longest,
        "seconds": round(end, 1),
    }


@contextlib.contextmanager
def started(cell: Live, scratch: Path) -> Iterator[Run]:
    """With the load beside it and the pauses that belong to it."""
    if cell.prepare is None:
        added, command = {"REHEARSE_SPIN": "1"} if cell.spin else {}, (*ENGINE, *cell.words, "--port", str(free_port()))
    else:
        launch = cell.prepare(scratch)
        added, command = dict(launch.env), launch.command
    argv = ("nice", "-n", "5", "env", *(f"{name}={value}" for name, value in added.items()), *command)
    with contextlib.ExitStack() as stack:
        for _ in range(cell.burners):
            burner = subprocess.Popen([sys.executable, "-c", "import os\nos.nice(4)\nwhile True: pass"], stdin=subprocess.DEVNULL)
            stack.callback(burner.wait)
            stack.callback(burner.kill)
        patient = ("--detach", "--quiet", "--stall-patience", "1200", "--max-waiting", "1200")
        run = stack.enter_context(launched(argv, *patient))
        over = threading.Event()
        if cell.pauses:
            pauser = threading.Thread(target=_pause, args=(run, cell.pauses, over))
            pauser.start()
            stack.callback(pauser.join)
        stack.callback(over.set)
        yield run


def watched(cell: Live, run: Run) -> None:
    """Until it is ready and a little longer (a false alarm may come late), or an alarm, or its end. CellFailed where neither comes."""
    deadline = time.monotonic() + 3 * cell.seconds + 120
    while time.monotonic() < deadline:
        verdict = run.verdict()
        if verdict == "ready":
            time.sleep(4.0)
            return
        if verdict in ALARMS or run.folder.keeper().get("ended") is not None:
            return
        time.sleep(0.5)
    raise CellFailed(f"not ready within {3 * cell.seconds + 120:.0f} s; last seen was {run.verdict()}: {run.folder.result().get('reason')}")


def before_stop(run: Run) -> Iterator[Event]:
    return itertools.takewhile(lambda event: not isinstance(event.body, StopAsked), run.folder.events())


def judged(run: Run) -> list[Verdict]:
    return [
        Verdict(event.t, str(event.body.verdict), str(event.body.phase), event.body.reason)
        for event in before_stop(run)
        if isinstance(event.body, Judged)
    ]


def end_of(run: Run) -> float:
    return max((event.t for event in before_stop(run)), default=0.0)


def _pause(run: Run, pauses: Sequence[tuple[float, str]], over: threading.Event) -> None:
    """Stops and continues processes of the server; each is compared with its start time before a signal goes to it."""
    draw = random.Random(str(pauses))
    began = time.monotonic()
    for at, who in pauses:
        if over.wait(max(began + at - time.monotonic(), 0.0)):
            return
        root = run.server
        tree = sorted(descendants(root[0], PROCFS).items()) if root[0] else []
        if not tree:
            return
        ranks = [row for row in tree if row[0] != root[0]] or tree
        chosen = {"all": tree, "main": [row for row in tree if row[0] == root[0]], "one": [draw.choice(ranks)]}[who]
        keys = [(pid, stat.start) for pid, stat in chosen]
        try:
            _signal(keys, signal.SIGSTOP)
            over.wait(PAUSE_S)
        finally:
            _signal(keys, signal.SIGCONT)


def _signal(keys: Sequence[tuple[int, int]], number: signal.Signals) -> None:
    for pid, began in keys:
        if PROCFS.alive(pid, began):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def record(name: str, cell: Live, folder: Path) -> str:
    """Makes the recording NAME in `folder`: the run's events up to ready, with looks every two seconds. Returns what became of it."""
    with tempfile.TemporaryDirectory(prefix="firsttoken-record-") as scratch, started(cell, Path(scratch)) as run:
        looks: list[tuple[float, Places | Stacks]] = []
        over = threading.Event()
        looker = threading.Thread(target=_look, args=(run, looks, over))
        looker.start()
        try:
            watched(cell, run)
        finally:
            over.set()
            looker.join()
        events = list(before_stop(run))
        if run.verdict() != "ready":
            raise CellFailed(f"{name} is {run.verdict()}: {run.folder.result().get('reason')}")
    origin = next(event.wall - event.t for event in events if isinstance(event.body, Launched))
    node = os.uname().nodename
    seen = [Event(seq=0, t=wall - origin, wall=wall, node=node, body=body) for wall, body in looks]
    path = folder / f"{name}.jsonl.xz"
    write(path, sorted([*events, *seen], key=lambda event: event.t), _hidden(scratch))
    return f"{path.name}: {len(events)} events, {len(looks)} of looks, {path.stat().st_size} bytes"


def _hidden(scratch: str) -> tuple[tuple[str, str], ...]:
    """Folders of this machine and what stands for them."""
    places = ((scratch, "/tmp/scratch"), (str(ENVIRONMENTS["vllm"].folder.parent), "/srv/engines"))
    return (*places, (str(ROOT), "/srv/firsttoken"), (sys.base_prefix, "/usr"), (str(Path.home()), "/home/user"))


def _look(run: Run, looks: list[tuple[float, Places | Stacks]], over: threading.Event) -> None:
    """All processes of the server, again and again, as the observer would look at them."""
    node = os.uname().nodename
    taker = CloseLook(PROCFS, node)
    for number in itertools.count(1_000_000):
        if over.wait(LOOK_EVERY) or not run.server[0]:
            return
        keys = [key for pid in descendants(run.server[0], PROCFS) if (key := PROCFS.key(node, pid)) is not None]
        began = time.time()
        looks += [(began, body) for body in asyncio.run(taker.take(keys, number, in_run=keys))]


def summary(rows: list[Row]) -> dict[str, Any]:
    kinds = {kind: sum(row["kind"] == kind for row in rows) for kind in ("live", "recorded", "stretched")}
    longest = {word: max((row["longest_s"].get(word, 0.0) for row in rows), default=0.0) for word in ("stalled", "waiting")}
    return {
        "cells": len(rows),
        **kinds,
        "real_engines": sum(row["cell"].startswith("real ") for row in rows),
        "false_alarms": sum(bool(row["alarms"]) for row in rows),
        "called_hung": sum(any(alarm["verdict"] == "hung" for alarm in row["alarms"]) for row in rows),
        "ready": sum(row["ready"] for row in rows),
        "hours_watched": round(sum(row["seconds"] for row in rows) / 3600, 2),
        "longest_stalled_s": longest["stalled"],
        "longest_waiting_s": longest["waiting"],
    }


def _line(row: Row) -> str:
    mark = "ALARM" if row["alarms"] else "ok   " if row["ready"] else "?    "
    why = f": {row['alarms'][0]}" if row["alarms"] else ""
    return f"{mark} {row['cell']}: {' '.join(row['verdicts'])} in {row['seconds']} s, {row['longest_s']}{why}"


def main() -> int:
    parser = options("false_alarms", __doc__)
    parser.add_argument("--cells", type=int, default=240, help="how many in all (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="how many cells run beside each other (default: %(default)s)")
    parser.add_argument("--sample", type=int, metavar="N", help="only so many, chosen by the seed, few of them live")
    parser.add_argument("--only", help="only cells whose name has this in it")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the events of each live run there")
    parser.add_argument("--record", action="store_true", help=f"only make what is not there of {RECORDINGS.name}/")
    asked = parser.parse_args()
    if asked.record:
        return _record_all(asked.seed, asked.only, asked.shard)
    found = cells(asked.seed, asked.cells)
    chosen = sample(asked.seed, found, asked.sample) if asked.sample is not None else list(found)
    names = [name for name in chosen if asked.only is None or asked.only in name]
    book = Book(asked.out, {"seed": asked.seed})
    failed = measure(book, names, asked.shard, lambda name: run_cell(name, found[name], asked.keep), _line, jobs=asked.jobs)
    rows = book.chosen(names)
    bad = [_line(row) for row in rows if row["alarms"] or not row["ready"]]
    report("false_alarms", asked.json, summary(rows), rows, [*bad, json.dumps(summary(rows))])
    return 1 if failed or not rows or any(row["alarms"] or not row["ready"] for row in rows) else 0


def _record_all(seed: int, only: str | None, shard: Any) -> int:
    failed = 0
    for number, (name, cell) in enumerate(recorded_starts(seed).items()):
        if number not in shard or (only is not None and only not in name) or (RECORDINGS / f"{name}.jsonl.xz").exists():
            continue
        try:
            print(record(name, cell, RECORDINGS), file=sys.stderr, flush=True)
        except CellFailed as error:
            failed += 1
            print(f"{name}: not recorded: {error}", file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
