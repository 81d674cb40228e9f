"""What it costs to watch: counters, process scan, sockets, weights and memory of 16 processes with 20 threads each; and, on suspicion, the
places of all their threads and the stacks of 8 of them.

`python bench/sampling.py [--json] [--processes N] [--threads N] [--seconds S]`. Spawns sleeping Python processes, one of them with a
listening socket, each with a 64 MiB shard mapped, and times each reader alone: the least processor time of this process (not that of
py-spy) in a round, which other load on the machine hardly touches, and the median and worst time that a round took.
`share_of_a_core` is what one second of watching at 1 Hz takes. /proc of the machine is read as it is: its number of processes is told.
`pause`: the longest time for which a process that does nothing but look at the clock did not get to it, undisturbed and while its
stack is taken over and over; `halted` counts how often it was seen stopped or traced meanwhile. On a machine that does something else,
the scheduler's own pauses are in both.
"""

import argparse
import asyncio
import contextlib
import json
import mmap
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from firsttoken.hosts.procfs import Procfs
from firsttoken.model.process import ProcessKey
from firsttoken.observe.counters import sample
from firsttoken.observe.memory import exact_memory, memory
from firsttoken.observe.oom import OomWatcher
from firsttoken.observe.places import PlaceFinder, stand
from firsttoken.observe.processes import ProcessWatcher
from firsttoken.observe.sockets import SocketWatcher
from firsttoken.observe.stacks import StackTaker
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
_CLOCK = """
import mmap, struct, sys, time
with open(sys.argv[1], "r+b") as file:
    told = mmap.mmap(file.fileno(), 8)
print("up", flush=True)
last = time.perf_counter()
while True:
    now = time.perf_counter()
    if now - last > struct.unpack("d", told[:8])[0]:
        told[:8] = struct.pack("d", now - last)
    last = now
"""
_RANKS = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--threads", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each reader")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, _targets(options.processes, options.threads, folder) as pids:
        rows = _measure(pids, Path(folder), options.seconds)
        pause = _pause(Path(folder) / "clock", options.seconds)
    told = {
        "schema": "firsttoken/1",
        "kind": "sampling",
        "processes": options.processes,
        "threads": options.threads,
        "processes_on_machine": len(Procfs().pids()),
        "readers": rows,
        "pause": pause,
    }
    if options.json:
        print(json.dumps(told))
        return
    print(f"{options.processes} processes x {options.threads} threads, {told['processes_on_machine']} processes on the machine")
    for name, row in rows.items():
        wall = f"median {row['median_ms']:8.3f} ms   worst {row['worst_ms']:8.3f} ms   {row['rounds']:5d} rounds"
        print(f"{name:33} own CPU {row['cpu_ms']:8.3f} ms   {wall}")
    told_pause = f"undisturbed {pause['undisturbed_ms']} ms, with {pause['snapshots']} snapshots {pause['ms']} ms"
    print(f"longest pause of a target: {told_pause}; seen halted {pause['halted']} times")


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
    finder, taker = PlaceFinder(procfs, "here"), StackTaker(procfs=procfs)
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
            "places of all threads": _time(lambda: [stand(procfs, key, []) for key in keys], seconds),
            "the same, and who waits for whom": _time(lambda: finder.look(keys, 1), seconds),
            f"stacks of {_RANKS}": _time(lambda: asyncio.run(StackTaker(procfs=procfs).take(keys[:_RANKS], 1)), seconds),
            f"stacks of {_RANKS}, none has run": _time(lambda: asyncio.run(taker.take(keys[:_RANKS], 1)), seconds),
        }
    finally:
        oom.close()


def _scan(watcher: ProcessWatcher, root: ProcessKey) -> Callable[[], object]:
    return lambda: watcher.scan([root], mark=b"FIRSTTOKEN_RUN=bench")


def _full_scan(procfs: Procfs, root: ProcessKey) -> Callable[[], object]:
    watcher = ProcessWatcher(procfs, "here", exclude=[root.pid], full_every=0.0, clock=lambda: 0.0)
    return _scan(watcher, root)


def _pause(file: Path, seconds: float) -> dict[str, float | int]:
    file.write_bytes(bytes(8))
    procfs, halted, over = Procfs(), 0, threading.Event()
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 8) as told:
        clock = subprocess.Popen([sys.executable, "-c", _CLOCK, str(file)], stdout=subprocess.PIPE)
        try:
            assert clock.stdout is not None
            clock.stdout.readline()
            key = procfs.key("here", clock.pid)
            assert key is not None

            def watch() -> None:
                nonlocal halted
                while not over.wait(0.0005):
                    stat = procfs.stat(clock.pid)
                    halted += stat is not None and stat.state in "Tt"

            watcher = threading.Thread(target=watch, daemon=True)
            watcher.start()
            longest = []
            for work in (lambda: time.sleep(0.05), lambda: asyncio.run(StackTaker().take([key], 1))):
                told[:8] = bytes(8)
                rounds = _time(work, seconds)["rounds"]
                longest.append(round(struct.unpack("d", told[:8])[0] * 1e3, 3))
            over.set()
            watcher.join()
        finally:
            clock.kill()
            clock.wait()
            if clock.stdout is not None:
                clock.stdout.close()
    return {"undisturbed_ms": longest[0], "ms": longest[1], "snapshots": rounds, "halted": halted}


def _time(work: Callable[[], object], seconds: float) -> dict[str, float | int]:
    took: list[float] = []
    spent: list[float] = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end or not took:
        before = time.process_time()
        work()
        took.append(time.perf_counter() - began)
        spent.append(time.process_time() - before)
    median = statistics.median(took)
    return {
        "cpu_ms": round(min(spent) * 1e3, 4),
        "median_ms": round(median * 1e3, 4),
        "worst_ms": round(max(took) * 1e3, 4),
        "rounds": len(took),
        "share_of_a_core": round(median, 6),
    }


if __name__ == "__main__":
    main()
