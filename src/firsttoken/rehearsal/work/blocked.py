"""Being blocked inside the server: nobody outside can end these waits.

Key insight: each wait can be proven from outside, by what the kernel shows: a socket with a peer that waits too, a FIFO or pipe
that only its reader could write to, file locks in a circle, a child that pauses, a stopped process, a counter that never moves.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
import time

from ..faults import Fault
from ..store import StoreClient
from .stage import Stage, limited


def wait_at_store(fault: Fault, stage: Stage) -> None:
    """Goes on to a barrier at the store that the other ranks, which are in a collective, never reach."""
    assert stage.store is not None, "ranks have a store"
    store = StoreClient(stage.store.port)  # of its own: a wait that was given up leaves its connection unusable
    with limited(fault.for_s):
        store.wait(f"barrier/{stage.phase}")


def take_two_locks(fault: Fault, stage: Stage) -> None:
    """Takes two file locks; the rank before takes them in the opposite order."""
    assert stage.store is not None, "ranks have a store"
    upper = max(fault.targets(stage.ranks)) if fault.rank is None else fault.rank
    names = ["graph_pool.lock", "kernel_cache.lock"]
    if stage.rank == upper:
        names.reverse()
    files = [os.open(stage.file(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) for name in names]
    fcntl.flock(files[0], fcntl.LOCK_EX)
    stage.store.set(f"locked/{stage.rank}", True)
    for rank in sorted(fault.targets(stage.ranks)):
        stage.store.wait(f"locked/{rank}")
    with limited(fault.for_s):
        fcntl.flock(files[1], fcntl.LOCK_EX)
    for file in files:
        os.close(file)


def read_shard(fault: Fault, stage: Stage) -> None:
    """Reads a shard that is a FIFO to which nobody writes."""
    path = stage.file(f"model-{(stage.rank or 0) + 1:05d}-of-{stage.ranks:05d}.safetensors")
    os.mkfifo(path, 0o600)
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    with limited(fault.for_s):
        os.read(file, 1 << 20)
    os.close(file)
    path.unlink(missing_ok=True)


def wait_for_builder(fault: Fault, stage: Stage) -> None:
    """Waits for a child that pauses for ever."""
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", _PAUSE, str(os.getpid())], stdin=subprocess.DEVNULL)
    try:
        with limited(fault.for_s):
            child.wait()
    finally:
        child.kill()
        child.wait()


def wait_for_block(fault: Fault, stage: Stage) -> None:
    """Waits on a pipe that only this process could write to, and says so from time to time."""
    reader, writer = os.pipe()
    began = time.monotonic()
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    with limited(fault.for_s):
        while not poll.poll(2000):
            stage.journal.line(
                f"No available shared memory broadcast block found in {time.monotonic() - began:.0f} seconds. Still waiting."
            )
    os.close(reader)
    os.close(writer)


def pause(fault: Fault, stage: Stage) -> None:
    """Stops itself with SIGSTOP; where that ends, a child continues it."""
    waker: subprocess.Popen[bytes] | None = None
    if fault.for_s is not None:
        arguments = [sys.executable, "-I", "-S", "-c", _CONTINUE, str(os.getpid()), str(fault.for_s)]
        waker = subprocess.Popen(arguments, stdin=subprocess.DEVNULL)
    os.kill(os.getpid(), signal.SIGSTOP)
    if waker is not None:
        waker.wait()


def synchronise(fault: Fault, stage: Stage) -> None:
    """Polls for a completion that never comes."""
    until = float("inf") if fault.for_s is None else time.monotonic() + fault.for_s
    while time.monotonic() < until:
        pass


_DIE_WITH_PARENT = """
import os, signal, sys, time
parent = int(sys.argv[1])
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
except (OSError, AttributeError, ImportError):
    pass
if os.getppid() != parent:
    sys.exit()
"""

_PAUSE = _DIE_WITH_PARENT + "signal.pause()\n"

_CONTINUE = _DIE_WITH_PARENT + "time.sleep(float(sys.argv[2]))\nos.kill(parent, signal.SIGCONT)\n"
