"""Makes one rank of an unmodified vLLM block: put this folder on PYTHONPATH and set VLLM_INJECT=MODE[:RANK[:NTH]] (rank 1, first call).

When it does, it writes the Unix time and its pid as one line to the file VLLM_INJECT_LOG, if that is set. With VLLM_INJECT_UNLESS=FLAG
it does so only where the server's command has no such flag.

| mode | the rank blocks | how |
|---|---|---|
| init | before it sets up its device and groups | sleeps |
| load, lock, spin | before it loads its weights | sleeps; on a lock that nobody lets go; busy |
| profile | before memory profiling and compiling | sleeps |
| warm | before its NTH all-reduce | sleeps |
| exec | before its NTH step | sleeps |

The engine's files stay as they are: the classes are wrapped in memory when their modules are imported, in each process of the server.
"""

import importlib.abc
import importlib.machinery
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

_WORKER = ("vllm.v1.worker.cpu_worker", "CPUWorker")
_COMMUNICATOR = ("vllm.distributed.device_communicators.cpu_communicator", "CpuCommunicator")
_PLACES = {
    "init": (*_WORKER, "init_device"),
    "load": (*_WORKER, "load_model"),
    "lock": (*_WORKER, "load_model"),
    "spin": (*_WORKER, "load_model"),
    "profile": (*_WORKER, "determine_available_memory"),
    "exec": (*_WORKER, "execute_model"),
    "warm": (*_COMMUNICATOR, "all_reduce"),
}


def _note() -> None:
    if path := os.environ.get("VLLM_INJECT_LOG"):
        with open(path, "a", encoding="ascii") as log:
            log.write(f"{time.time():.3f} {os.getpid()}\n")


def _sleep() -> None:
    while True:
        time.sleep(3600)


def _lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def _spin() -> None:
    while True:
        pass


_WAYS: dict[str, Callable[[], None]] = {"lock": _lock, "spin": _spin}


def _wrap(cls: type, method: str, block: Callable[[], None], rank: int, nth: int) -> None:
    original = getattr(cls, method)
    calls = 0

    def blocking(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        if self.rank == rank:
            calls += 1
            if calls == nth:
                _note()
                block()
        return original(self, *args, **kwargs)

    setattr(cls, method, blocking)


class _Injector(importlib.abc.MetaPathFinder):
    """Finds the one module of its mode as usual, and wraps its class right after the module ran."""

    def __init__(self, mode: str, rank: int, nth: int) -> None:
        self.module, self.cls, self.method = _PLACES[mode]
        self.block, self.rank, self.nth = _WAYS.get(mode, _sleep), rank, nth

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_wrap(module: ModuleType) -> None:
            execute(module)
            _wrap(getattr(module, self.cls), self.method, self.block, self.rank, self.nth)

        spec.loader.exec_module = execute_and_wrap  # type: ignore[method-assign]  # the loader is this spec's own
        return spec


if os.environ.get("VLLM_INJECT_UNLESS", "") in sys.orig_argv:
    os.environ.pop("VLLM_INJECT", None)  # the other processes of the server inherit that

if os.environ.get("VLLM_INJECT"):
    _mode, _rank, _nth, *_ = [*os.environ["VLLM_INJECT"].split(":"), "1", "1"]
    sys.meta_path.insert(0, _Injector(_mode, int(_rank), int(_nth)))
