"""Processes that stand still in one way each, and looks at them."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from firsttoken.hosts.procfs import Procfs
from firsttoken.model.events import Places
from firsttoken.model.stillness import ThreadPlace, Wait
from firsttoken.observe.locks import PolledLock
from firsttoken.observe.places import places

PROCFS = Procfs()
NODE = "here"
_PROGRAM = Path(__file__).parents[2] / "targets" / "still.py"
_DEADLINE = 20.0
T = TypeVar("T")


class Still:
    """`words`: what it said when it was about to stand still."""

    def __init__(self, process: "subprocess.Popen[str]", words: list[str]) -> None:
        self.process = process
        self.pid = process.pid
        self.words = words


@contextmanager
def still(way: str, *arguments: object, prefix: tuple[str, ...] = ()) -> Iterator[Still]:
    command = [*prefix, sys.executable, "-P", str(_PROGRAM), way, *map(str, arguments)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        if words == ["refused"]:
            pytest.skip("tracing is not permitted here")
        assert words[:1] == ["ready"], f"{way} {arguments}: {words}"
        yield Still(process, words[1:])
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def look(*pids: int, in_run: tuple[int, ...] = (), polled: dict[tuple[int, int], PolledLock] | None = None) -> list[Places]:
    keys = [key for pid in pids if (key := PROCFS.key(NODE, pid)) is not None]
    run = [key for pid in in_run if (key := PROCFS.key(NODE, pid)) is not None]
    return places(PROCFS, keys, NODE, 1, run, polled)


def main_of(one: Places) -> ThreadPlace:
    assert one.threads, one.error
    assert one.threads[0].main
    return one.threads[0]


def settled(
    pid: int, syscall: str | None, *, state: str = "S", polled: dict[tuple[int, int], PolledLock] | None = None
) -> tuple[ThreadPlace, tuple[Wait, ...]]:
    """The main thread's place and waits, as soon as it stands in that call."""

    def there() -> tuple[ThreadPlace, tuple[Wait, ...]] | None:
        one = look(pid, polled=polled)[0]
        place = main_of(one)
        waits = tuple(wait for wait in one.waits if wait.tid == place.tid)
        return (place, waits) if place.state == state and place.syscall == syscall else None

    return until(there)


def until(condition: Callable[[], T | None]) -> T:
    """The first value that is something; AssertionError after 20 s."""
    end = time.monotonic() + _DEADLINE
    while (value := condition()) is None:
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.01)
    return value
