"""What it costs to watch: counters, process scan, sockets, weights and memory of 16 processes with 20 threads each.

`python bench/sampling.py [--json] [--processes N] [--threads N] [--seconds S]`. Spawns sleeping Python processes, one of them with a
listening socket, each with a 64 MiB shard mapped, and times each reader alone: median and worst of as many rounds as fit.
`share_of_a_core` is what one second of watching at 1 Hz takes. /proc of the machine is read as it is: its number of processes is told.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from firsttoken.hosts.procfs import Procfs
from firsttoken.model.process import ProcessKey
from firsttoken.observe.counters import sample
from firsttoken.observe.memory import exact_memory, memory
from firsttoken.observe.oom import OomWatcher
from firsttoken.observe.processes import ProcessWatcher
from firsttoken.observe.sockets import SocketWatcher
from firsttoken.observe.weights import WeightWatcher

_TARGET = """
import mmap, socket, sys, threading
for _ in range(int(sys.argv[1]) - 1):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
if sys.argv[3] == "listen":
    server = socket.create_server(("127.0.0.1", 0))
with open(sys.argv[2], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
touched = sum(mapped[at] for at in range(0, len(mapped), 4096))
print("up", flush=True)
sys.stdin.read()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--threads", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each reader")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, _targets(options.processes, options.threads, folder) as pids:
        rows = _measure(pids, Path(folder), options.seconds)
    told = {
        "schema": "firsttoken/1",
        "kind": "sampling",
        "processes": options.processes,
        "threads": options.threads,
        "processes_on_machine": len(Procfs().pids()),
        "readers": rows,
    }
    if options.json:
        print(json.dumps(told))
        return
    print(f"{options.processes} processes x {options.threads} threads, {told['processes_on_machine']} processes on the machine")
    for name, row in rows.items():
        print(f"{name:32} median {row['median_ms']:8.3f} ms   worst {row['worst_ms']:8.3f} ms   {row['rounds']:5d} rounds")


@contextlib.contextmanager
def _targets(processes: int, threads: int, folder: str) -> Iterator[list[int]]:
    shard = Path(folder) / "model.safetensors"
    with shard.open("wb") as file:
        file.truncate(64 << 20)
    with contextlib.ExitStack() as stack:
        started: list[subprocess.Popen[bytes]] = []
        for number in range(processes):
            argv = [sys.executable, "-c", _TARGET, str(threads), str(shard), "listen" if number == 0 else "quiet"]
            started.append(stack.enter_context(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)))
            stack.callback(started[-1].kill)
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        yield [process.pid for process in started]


def _measure(pids: list[int], folder: Path, seconds: float) -> dict[str, dict[str, float | int]]:
    procfs = Procfs()
    me = procfs.key("here", os.getpid())
    assert me is not None
    keys = [key for pid in pids if (key := procfs.key("here", pid)) is not None]
    processes = ProcessWatcher(procfs, "here", exclude=[me.pid])
    scan = _scan(processes, me)
    scan()
    sockets = SocketWatcher(procfs)
    sockets.listening(pids)
    # clocks stand still, so that no look is spared for what the last one cost
    weights = WeightWatcher(procfs, [str(folder)], clock=lambda: 0.0, cost=lambda: 0.0)
    oom = OomWatcher(procfs)
    try:
        return {
            "counters": _time(lambda: sample(procfs, keys, 1.0), seconds),
            "scan": _time(scan, seconds),
            "scan, full pass": _time(_full_scan(procfs, me), seconds),
            "sockets, nothing new": _time(lambda: sockets.listening(pids), seconds),
            "sockets, all descriptors": _time(lambda: SocketWatcher(procfs).listening(pids), seconds),
            "weights, all mapped": _time(lambda: weights.look(pids), seconds),
            "memory, cheap": _time(lambda: memory(procfs, pids), seconds),
            "memory, exact (smaps_rollup)": _time(lambda: exact_memory(procfs, pids), seconds),
            "oom": _time(lambda: oom.look(keys), seconds),
        }
    finally:
        oom.close()


def _scan(watcher: ProcessWatcher, root: ProcessKey) -> Callable[[], object]:
    return lambda: watcher.scan([root], mark=b"FIRSTTOKEN_RUN=bench")


def _full_scan(procfs: Procfs, root: ProcessKey) -> Callable[[], object]:
    watcher = ProcessWatcher(procfs, "here", exclude=[root.pid], full_every=0.0, clock=lambda: 0.0)
    return _scan(watcher, root)


def _time(work: Callable[[], object], seconds: float) -> dict[str, float | int]:
    took: list[float] = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end or not took:
        work()
        took.append(time.perf_counter() - began)
    median = statistics.median(took)
    return {
        "median_ms": round(median * 1e3, 4),
        "worst_ms": round(max(took) * 1e3, 4),
        "rounds": len(took),
        "share_of_a_core": round(median, 6),
    }


if __name__ == "__main__":
    main()
