"""How fast log text is taken in: by the log reader alone, and by the whole pipeline while a server prints a gigabyte.

    python bench/ingest.py                       both
    python bench/ingest.py --mb 64               with less text through the pipeline

`reader/KIND` cells feed one kind of line (or the mix) to a reader in pieces of 256 KiB, in memory, and give lines and megabytes a second
of one core, events made of them and the growth of memory. `pipeline` has a server print as fast as it can under `firsttoken run`, and
before and after it the same server print to a raw terminal that `cat` drains into /dev/null. The seconds that the server itself spent in
write(2) are compared (`write_time_ratio`), so a pipeline that holds it up is seen. Memory is the kernel's own high-water mark, disk what
lies in the run's folder, and `skipped_mb` what the observer did not read because it came too fast.
"""

import json
import os
import pty
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import tty
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import logmix
import storm
from cells import Book, CellFailed, Row, measure, options, report
from firsttoken.knowledge.load import profiles
from firsttoken.model.events import Counters, Gap, LogActivity, ObserverLost
from firsttoken.observe.logs import LogReader
from launching import Run, launched, wait_for
from own_cost import status_kb

_PIECE = 256 << 10
_MIXED = 32 << 20
"""Bytes of text that the storm repeats: enough for more new shapes than a reader remembers."""
_LONGEST = 3600.0


def main() -> int:
    parser = options("ingest", __doc__)
    parser.add_argument("--mb", type=int, default=1024, help="megabytes (2^20) that the server prints")
    parser.add_argument("--reader-mb", type=int, default=32, help="megabytes a round for the reader alone")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--chunk", type=int, default=4096, help="bytes a write of the server")
    asked = parser.parse_args()
    names = ["mix", *(kind.name for kind in logmix.kinds())]
    cells = [*(f"reader/{name}" for name in names), "pipeline"]
    book = Book(asked.out, {"seed": asked.seed, "mb": asked.mb, "reader_mb": asked.reader_mb, "chunk": asked.chunk})

    def one(cell: str) -> Mapping[str, Any]:
        what, _, kind = cell.partition("/")
        if what == "reader":
            return _reader(asked.reader_mb << 20, asked.seed, None if kind == "mix" else kind, asked.rounds)
        with tempfile.TemporaryDirectory(prefix="firsttoken-bench-") as folder:
            text = Path(folder) / "text"
            text.write_bytes(logmix.text(min(_MIXED, asked.mb << 20), asked.seed))
            argv = [sys.executable, str(Path(storm.__file__).resolve()), str(text), str(asked.mb << 20)]
            away = Path(folder) / "report"
            return _pipeline([*argv, str(away), str(asked.chunk)], away, text)

    failed = measure(book, cells, asked.shard, one, _told)
    rows = book.chosen(cells)
    summary = _summary({row["cell"]: row for row in rows})
    report("ingest", asked.json, summary, rows, (_told(row) for row in rows))
    return 1 if failed else 0


def _summary(rows: Mapping[str, Row]) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if "reader/mix" in rows:
        told["reader_lines_per_s"] = rows["reader/mix"]["lines_per_s"]
    if "pipeline" in rows:
        wanted = ("lines_per_s", "mb_per_s", "write_time_ratio", "peak_rss_mb", "log_mb", "events_mb", "lines_read", "lines", "skipped_mb")
        told |= {name: rows["pipeline"][name] for name in wanted}
    return told


def _reader(size: int, seed: int, only: str | None, rounds: int) -> Row:
    data = logmix.text(size, seed, only=only)
    lines = logmix.count_lines(data)
    pieces = [(at, data[at : at + _PIECE]) for at in range(0, len(data), _PIECE)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took: list[float] = []
    events = 0
    for _ in range(rounds):
        reader = LogReader(profiles(), None, year=time.gmtime().tm_year)
        began = time.process_time()
        events = sum(len(reader.feed(piece, at, 0.0)) for at, piece in pieces)
        took.append(time.process_time() - began)
    seconds = statistics.median(took)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {
        "lines": lines, "events": events, "lines_per_s": round(lines / seconds), "mb_per_s": round(len(data) / seconds / 1e6, 1),
        "grown_mb": round(grown / 1e3, 1),
    }  # fmt: skip


def _pipeline(argv: Sequence[str], away: Path, text: Path) -> Row:
    peaks: dict[str, float] = {}
    before = _drained(argv, away)
    with launched(argv, "--no-probe", "--quiet") as run:
        wait_for(lambda: _note_peaks(run, peaks) or away.exists() or run.face.poll() is not None, _LONGEST, "the end of the storm", 0.1)
        printed_at = time.monotonic()
        wait_for(lambda: _note_peaks(run, peaks) or run.face.poll() is not None, _LONGEST, "the end of the run", 0.1)
        behind = time.monotonic() - printed_at
        bodies = [event.body for event in run.folder.events()]
        log, events = (_size(run.folder.path / name) for name in ("log", "events.jsonl"))
    if not away.exists():
        raise CellFailed("the server left no report: it did not come to its end")
    told = json.loads(away.read_text())
    away.unlink()
    drained = statistics.mean((before["write_s"], _drained(argv, away)["write_s"]))
    activity = [body for body in bodies if isinstance(body, LogActivity)]
    skipped = sum(body.amount for body in bodies if isinstance(body, Gap) and body.what == "reading")
    lines = _lines_of(text, told["bytes"])
    return {
        "bytes": told["bytes"],
        "seconds": round(told["seconds"], 2),
        "mb_per_s": round(told["bytes"] / told["seconds"] / 1e6, 1),
        "lines_per_s": round(lines / told["seconds"]),
        "write_s": round(told["write_s"], 2),
        "drained_write_s": round(drained, 2),
        "write_time_ratio": round(told["write_s"] / drained, 3),
        "longest_write_ms": round(told["longest_write_s"] * 1e3, 1),
        "drained_longest_write_ms": round(before["longest_write_s"] * 1e3, 1),
        "lines": lines,
        "lines_read": sum(item.lines for item in activity),
        "samples": sum(1 for body in bodies if isinstance(body, Counters)),
        "observers_lost": sum(1 for body in bodies if isinstance(body, ObserverLost)),
        "skipped_mb": round(skipped / 1e6, 1),
        "ended_after_s": round(behind, 1),
        "peak_rss_mb": peaks,
        "log_mb": round(log / 1e6, 1),
        "events_mb": round(events / 1e6, 3),
    }


def _drained(argv: Sequence[str], away: Path) -> dict[str, float]:
    """What the same server reports on a raw terminal whose other end is thrown away."""
    master, slave = pty.openpty()
    tty.setraw(slave)
    with subprocess.Popen(["cat"], stdin=master, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as drain:
        os.close(master)
        code = subprocess.run(argv, stdout=slave, timeout=_LONGEST).returncode
        os.close(slave)
        drain.wait(10.0)
    if code != 0 or not away.exists():
        raise CellFailed(f"the server ended with {code}")
    told: dict[str, float] = json.loads(away.read_text())
    away.unlink()
    return told


def _lines_of(text: Path, size: int) -> int:
    """In so many bytes of repetitions of the text."""
    data = text.read_bytes()
    whole, rest = divmod(size, len(data))
    return whole * logmix.count_lines(data) + logmix.count_lines(data[:rest])


def _note_peaks(run: Run, peaks: dict[str, float]) -> bool:
    """Always False: it only looks."""
    for part in ("keeper", "observer"):
        key = run.key(part)
        if key is not None:
            peaks[part] = max(peaks.get(part, 0.0), round(status_kb(key[0], "VmHWM") / 1e3, 1))
    peaks["face"] = max(peaks.get("face", 0.0), round(status_kb(run.face.pid, "VmHWM") / 1e3, 1))
    return False


def _size(path: Path) -> int:
    """Bytes of a file, or of the files in a folder."""
    if path.is_dir():
        return sum(file.stat().st_size for file in path.iterdir())
    return path.stat().st_size


def _told(row: Row) -> str:
    if row["cell"].startswith("reader/"):
        return (
            f"{row['cell']:<15} {row['lines_per_s']:>9,} lines/s {row['mb_per_s']:>7.1f} MB/s of one core   "
            f"{row['events']} events of {row['lines']:,} lines   memory +{row['grown_mb']:.1f} MB"
        )
    peaks = ", ".join(f"{part} {size:.0f}" for part, size in row["peak_rss_mb"].items())
    return (
        f"{row['cell']:<15} {row['lines_per_s']:>9,} lines/s {row['mb_per_s']:>7.1f} MB/s   the server wrote for {row['write_s']} s "
        f"(drained by cat: {row['drained_write_s']} s, ratio {row['write_time_ratio']}), longest write {row['longest_write_ms']} ms "
        f"(cat: {row['drained_longest_write_ms']} ms); peak MB: {peaks}; on disk: log {row['log_mb']} MB, events {row['events_mb']} MB; "
        f"read {row['lines_read']:,} of {row['lines']:,} lines, skipped {row['skipped_mb']} MB, {row['samples']} rounds of counters, "
        f"{row['observers_lost']} observers lost; the run ended {row['ended_after_s']} s after the last write"
    )


if __name__ == "__main__":
    sys.exit(main())
