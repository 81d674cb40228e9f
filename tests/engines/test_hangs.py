"""Real hangs that no engine tells about: one an engine, made without touching its code. The matrix of all of them is bench/real.py."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .launches import Sglang, Vllm, with_fifo
from .life import START_DEADLINE, Face

pytestmark = [pytest.mark.timeout(600), pytest.mark.engines]

_STEP = 0.1


def test_a_stopped_rank_of_vllm_is_found_and_named(vllm: Vllm, face: Face) -> None:
    """It gets its title when its groups are set up, before it loads its weights; the others wait for it without a word."""
    with _stopping(face, "VLLM::Worker_TP1") as stopped:
        said = face.run(vllm.serve("mid", tp=2), "--until", "ready")
    result = said.document
    assert stopped, said
    assert (said.code, result["verdict"]) == (70, "hung"), said
    assert result["ranks"]["behind"] == [1], said
    assert f"rank 1 (pid {stopped[0]}) is stopped" in result["reason"], said
    assert result["root_blocker"]["process"]["pid"] == stopped[0], said


def test_sglang_that_opens_a_fifo_for_a_shard_is_hung_and_the_file_named(sglang: Sglang, face: Face, tmp_path: Path) -> None:
    """Its port is closed, its log's last word is that it loads, and its own watchdog has not begun yet."""
    shard = with_fifo(tmp_path, "llama4")
    said = face.run(sglang.serve(str(shard.parent)), "--until", "ready")
    result = said.document
    assert (said.code, result["verdict"], result["phase"]) == (70, "hung", "weights"), said
    assert str(shard) in result["reason"], said


@contextmanager
def _stopping(face: Face, title: str) -> Iterator[list[int]]:
    """Stops the first process of that title as soon as it is there. Yields a list that then holds its pid."""
    stopped: list[int] = []
    over = threading.Event()

    def watch() -> None:
        until = time.monotonic() + START_DEADLINE
        while not stopped and time.monotonic() < until and not over.wait(_STEP):
            for member, command in face.family.left().items():
                if command.startswith(title):
                    os.kill(member.pid, signal.SIGSTOP)
                    stopped.append(member.pid)
                    break

    watcher = threading.Thread(target=watch, name="stopping", daemon=True)
    watcher.start()
    try:
        yield stopped
    finally:
        over.set()
        watcher.join(10)
