"""Weights: does the prefetch reach what the disk can give, does it shorten a cold start, and do the forecasts hold?

`disk/N` is one pair on one file of `--megabytes`: the fastest of several fio jobs that read in sequence past the page cache, and a prefetch
into it, in random order; the rate is of the streaming alone, as fio's is. Left out with a reason where fio is not installed.
`start/N` is one pair of cold starts of vLLM, with `run --prefetch` and without, in random order.
`forecast/ENGINE-cold/N` and `…-warm/N`: one start of that kind to learn from (in a home of its own), then `firsttoken weights`, then
another start of that kind; `error` is how far the forecast of the load's time was off, as a share of the time that it took.

The page cache is emptied of the weights alone, by posix_fadvise. Files lie below `--folder`, which must be on the disk in question. vLLM's
cells need tests/engines/install.sh vllm models. On a machine that does something else, all of it measures that as well.
"""

import contextlib
import functools
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cells import Book, CellFailed, Row, measure, options, report
from firsttoken.launch.cleanup import finish
from firsttoken.survey.prefetch import Progress
from launching import FIRSTTOKEN, free_port

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.engines.install import ENVIRONMENTS, MODELS  # noqa: E402  # the path comes first
from tests.engines.launches import Launch, Vllm  # noqa: E402

FIO = (("1M", 16, 1), ("4M", 8, 1), ("1M", 8, 4))
"""block size, requests under way, jobs"""
WITHIN = 0.25
START_S = 900.0
_SHARDS, _SHARD_MB = 4, 256


def main() -> int:
    parser = options("weights", __doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--starts", type=int, default=3, help="pairs of starts of vLLM")
    parser.add_argument("--forecasts", type=int, default=3, help="forecasts of each kind")
    parser.add_argument("--megabytes", type=int, default=2048)
    parser.add_argument("--model", default="mid")
    parser.add_argument("--only", choices=["disk", "start", "forecast"], action="append")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "firsttoken-bench-weights")
    asked = parser.parse_args()
    engines = {"embedded": lambda: _embedded(asked.folder), "vllm": lambda: Vllm(ENVIRONMENTS["vllm"]).serve(asked.model)}
    cells = [
        *(f"disk/{number}" for number in range(asked.pairs)),
        *(f"start/{number}" for number in range(asked.starts)),
        *(f"forecast/{name}-{kind}/{number}" for number in range(asked.forecasts) for name in engines for kind in ("cold", "warm")),
    ]
    cells = [cell for cell in cells if not asked.only or cell.split("/")[0] in asked.only]
    book = Book(asked.out, {"seed": asked.seed, "megabytes": asked.megabytes, "model": asked.model})
    asked.folder.mkdir(parents=True, exist_ok=True)

    def one(cell: str) -> Mapping[str, Any]:
        what, name, *_ = cell.split("/")
        choose = random.Random(f"{asked.seed} {cell}")
        try:
            if what == "disk":
                return _disk(_file(asked.folder, asked.megabytes), choose)
            if what == "start":
                return _start(engines["vllm"], MODELS / asked.model, choose)
            engine, kind = name.rsplit("-", 1)
            weights = _shards(asked.folder) if engine == "embedded" else MODELS / asked.model
            return _forecast(engines[engine], weights, kind, asked.folder)
        except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
            raise CellFailed(f"{type(error).__name__}: {error}") from error

    failed = measure(book, cells, asked.shard, one, _told)
    rows = book.chosen(cells)
    report("weights", asked.json, _summary(rows), rows, (_told(row) for row in rows))
    return 1 if failed else 0


def _disk(file: Path, choose: random.Random) -> dict[str, Any]:
    if shutil.which("fio") is None:
        raise CellFailed("fio is not installed (apt-get install fio)")
    best, last, job = 0.0, Progress(bytes=0), _best_job(file)

    def with_fio() -> None:
        nonlocal best
        best = _fio(file, *job)

    def with_prefetch() -> None:
        nonlocal last
        last = _prefetch(file)

    order: list[Callable[[], None]] = [with_fio, with_prefetch]
    choose.shuffle(order)
    for part in order:
        drop([file])
        part()
    if last.ended != "done" or last.bytes_per_s is None:
        raise CellFailed(f"the prefetch ended with {last}")
    return {
        "fio_bytes_per_s": round(best),
        "fio_job": list(job),
        "prefetch_bytes_per_s": round(last.bytes_per_s),
        "way": last.way,
        "cold_share": round(last.read / last.bytes, 3),
        "ratio": round(last.bytes_per_s / best, 3),
    }


@functools.cache
def _best_job(file: Path) -> tuple[str, int, int]:
    """The fastest job, by three runs of each in turn; the best of several runs would be the machine's luck, not fio's rate."""
    rates: dict[tuple[str, int, int], list[float]] = {job: [] for job in FIO}
    for _ in range(3):
        for job in FIO:
            rates[job].append(_fio(file, *job))
    return max(FIO, key=lambda job: statistics.median(rates[job]))


def _fio(file: Path, block: str, depth: int, jobs: int) -> float:
    """Bytes a second of one job, or of several that read a part each."""
    part = file.stat().st_size // jobs >> 20 << 20  # whole blocks
    command = ["fio", "--name=read", f"--filename={file}", "--rw=read", "--readonly", "--direct=1", "--ioengine=libaio", f"--bs={block}"]
    command += [f"--iodepth={depth}", f"--numjobs={jobs}", f"--size={part}", f"--offset_increment={part}", "--group_reporting"]
    told = json.loads(subprocess.run([*command, "--output-format=json"], capture_output=True, timeout=300, check=True).stdout)
    return float(told["jobs"][0]["read"]["bw_bytes"])


def _prefetch(file: Path) -> Progress:
    done = subprocess.run([*FIRSTTOKEN, "weights", "--prefetch", "--json", str(file)], capture_output=True, timeout=300)
    told = json.loads(done.stdout)
    return Progress(bytes=told["bytes"], **told["prefetch"])


def _start(launch: Callable[[], Launch], model: Path, choose: random.Random) -> dict[str, Any]:
    """Seconds of a cold start until the first token, and of the load in it, both ways."""
    order = ["prefetch", "plain"]
    choose.shuffle(order)
    found: dict[str, Any] = {}
    for way in order:
        drop(weight_files(model))
        with _home() as home:
            result = run(launch(), home, *(["--prefetch"] if way == "prefetch" else []))
        found[f"{way}_s"] = result["elapsed_s"]
        found[f"{way}_load_s"] = result["weights"]["seconds"]
        found[f"{way}_source"] = result["weights"]["source"]
    return {
        **found,
        "ratio": round(found["prefetch_s"] / found["plain_s"], 3),
        "load_ratio": round(found["prefetch_load_s"] / found["plain_load_s"], 3),
    }


def _forecast(launch: Callable[[], Launch], weights: Path, kind: str, folder: Path) -> dict[str, Any]:
    prepare = drop if kind == "cold" else fill
    with _home() as home:
        prepare(weight_files(weights))
        learned = run(launch(), home)
        prepare(weight_files(weights))
        done = subprocess.run([*FIRSTTOKEN, "weights", "--json", str(weights)], env=_env(home), capture_output=True, timeout=120)
        told = json.loads(done.stdout)
        prepare(weight_files(weights))  # what the measuring of the storage has left
        result = run(launch(), home)
    took, forecast = result["weights"]["seconds"], told["predicted_cold_s" if kind == "cold" else "predicted_warm_s"]
    return {
        "forecast_s": forecast,
        "took_s_of_load": took,
        "learned_s": learned["weights"]["seconds"],
        "source": result["weights"]["source"],
        "error": round(forecast / took - 1, 3),
        "says": result["weights"]["says"][:1],
    }


def run(launch: Launch, home: Path, *words: str) -> dict[str, Any]:
    """The result of one start until its first token; CellFailed where it comes to none."""
    command = [*FIRSTTOKEN, "run", "--until", "ready", "--json", "--quiet", "--no-check", *words, "--", *launch.command]
    done = subprocess.run(command, env={**_env(home), **launch.env}, capture_output=True, timeout=START_S, stdin=subprocess.DEVNULL)
    try:
        result: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        raise CellFailed(done.stderr.decode("utf8", "replace")[-500:]) from error
    finish(Path(result["folder"]), seconds=60)  # a slow machine's server may still be ending
    if result["verdict"] != "ready" or result["weights"]["seconds"] is None:
        raise CellFailed(f"{result['verdict']}: {result['reason']}")
    return result


def weight_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def drop(files: Sequence[Path]) -> None:
    for file in files:
        fd = os.open(file, os.O_RDONLY)
        try:
            os.fsync(fd)  # pages that are not written yet stay
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def fill(files: Sequence[Path]) -> None:
    for file in files:
        with open(file, "rb", buffering=0) as opened:
            while opened.read(8 << 20):
                pass


def _file(folder: Path, megabytes: int) -> Path:
    """Written once; what cannot be compressed. A safetensors file, since the prefetch asks for one: one tensor of bytes."""
    path = folder / f"{megabytes}mb.safetensors"
    if path.exists():
        return path
    size = megabytes << 20
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    partial = path.with_suffix(".part")
    with partial.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for _ in range(megabytes):
            file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    return path


def _embedded(folder: Path) -> Launch:
    port = free_port()
    command = (*FIRSTTOKEN, "rehearse", "--shards", str(_SHARDS), "--shard-mb", str(_SHARD_MB), "--pace", "weights=0", "--port", str(port))
    return Launch(command=command, env={"XDG_CACHE_HOME": str(folder)}, port=port)


def _shards(folder: Path) -> Path:
    """The embedded engine's, written by a first start."""
    found = list(folder.glob(f"firsttoken/rehearsal/*-{_SHARDS}x{_SHARD_MB}mb"))
    if not found:
        with _home() as home:
            run(_embedded(folder), home)
        found = list(folder.glob(f"firsttoken/rehearsal/*-{_SHARDS}x{_SHARD_MB}mb"))
    return found[0]


@contextlib.contextmanager
def _home() -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="firsttoken-bench-"))
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _env(home: Path) -> dict[str, str]:
    return {**os.environ, "FIRSTTOKEN_HOME": str(home)}


def _summary(rows: list[Row]) -> dict[str, Any]:
    disk, starts = ([row for row in rows if row["cell"].startswith(what)] for what in ("disk/", "start/"))
    forecasts = [row for row in rows if row["cell"].startswith("forecast/")]
    told: dict[str, Any] = {}
    if disk:
        told["prefetch_of_fio"] = statistics.median(row["ratio"] for row in disk)
        told["prefetch_of_fio_ok"] = told["prefetch_of_fio"] >= 0.9
    if starts:
        told["start_ratio"] = statistics.median(row["ratio"] for row in starts)
        told["load_ratio"] = statistics.median(row["load_ratio"] for row in starts)
    for kind in dict.fromkeys(row["cell"].split("/")[1] for row in forecasts):
        errors = [abs(row["error"]) for row in forecasts if row["cell"].split("/")[1] == kind]
        told[f"forecast_error_{kind}"] = statistics.median(errors)
    if forecasts:
        told["forecasts_within"] = f"{sum(abs(row['error']) <= WITHIN for row in forecasts)} of {len(forecasts)} within {WITHIN:.0%}"
    return told


def _told(row: Row) -> str:
    what = row["cell"].split("/")[0]
    if what == "disk":
        rates = f"fio {row['fio_bytes_per_s'] / 1e6:.0f} MB/s, prefetch {row['prefetch_bytes_per_s'] / 1e6:.0f} MB/s ({row['way']})"
        return f"{row['cell']}: {rates}: {row['ratio']:.2f}"
    if what == "start":
        loads = f"load {row['prefetch_load_s']:.1f} s ({row['prefetch_source']}), {row['plain_load_s']:.1f} s ({row['plain_source']})"
        return f"{row['cell']}: with prefetch {row['prefetch_s']:.1f} s, without {row['plain_s']:.1f} s: {row['ratio']:.2f}; {loads}"
    return f"{row['cell']}: forecast {row['forecast_s']:.1f} s, took {row['took_s_of_load']:.1f} s ({row['source']}): {row['error']:+.0%}"


if __name__ == "__main__":
    sys.exit(main())
