"""The one dump that stops its target: what it leaves alone, what it finds, and what it mends."""

import asyncio
import json
import os
import signal
from pathlib import Path

from still_processes import PROCFS, settled, still, until

from firsttoken.model.events import Stacks
from firsttoken.observe.native import NativeTaker

ANSWER = [
    {
        "os_thread_id": 1,
        "thread_name": "MainThread",
        "frames": [
            {
                "name": "0x7f099b0a3f16",
                "filename": "/usr/lib/libc.so.6",
                "module": "/usr/lib/libc.so.6",
                "short_filename": "libc.so.6",
                "line": 0,
            },
            {"name": "time_sleep", "filename": "/usr/lib/libpython3.11.so.1.0", "module": "/usr/lib/libpython3.11.so.1.0", "line": 0},
            {"name": "main", "filename": "/x/serve.py", "short_filename": "serve.py", "module": None, "line": 4},
        ],
    }
]


def program(folder: Path, text: str) -> str:
    path = folder / "py-spy"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return str(path)


def take(pid: int, py_spy: str, seconds: float = 20.0) -> Stacks:
    key = PROCFS.key("here", pid)
    assert key is not None
    return asyncio.run(NativeTaker(py_spy=py_spy).take(key, 1, seconds))


def test_native_frames_are_told_by_library_and_without_addresses(tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(json.dumps(ANSWER))
    with still("sleep", 90) as process:
        settled(process.pid, "clock_nanosleep")
        told = take(process.pid, program(tmp_path, f"cat {tmp_path / 'answer'}"))
    assert told.error is None
    assert [(frame.function, frame.file, frame.native) for frame in told.threads[0].frames] == [
        ("native code", "libc.so.6", True),
        ("time_sleep", "libpython3.11.so.1.0", True),
        ("main", "serve.py", False),
    ]


def test_a_target_that_a_dump_left_stopped_is_continued_and_that_is_said(tmp_path: Path) -> None:
    with still("sleep", 90) as process:
        settled(process.pid, "clock_nanosleep")
        told = take(process.pid, program(tmp_path, "for last; do :; done; kill -STOP $last; exec sleep 60"), seconds=0.5)
        until(lambda: ((stat := PROCFS.stat(process.pid)) is not None and stat.state == "S") or None)
    assert told.threads == ()
    assert told.error is not None
    assert "gave no answer within 0.5 s" in told.error
    assert "has been continued" in told.error


def test_a_target_that_is_stopped_already_is_left_alone(tmp_path: Path) -> None:
    with still("stop") as process:
        settled(process.pid, "kill", state="T")
        told = take(process.pid, program(tmp_path, "exit 9"))
        assert told.error == "is stopped: native frames would have to wait for it"
        stat = PROCFS.stat(process.pid)
        assert stat is not None
        assert stat.state == "T"
        os.kill(process.pid, signal.SIGCONT)


def test_without_py_spy_that_is_said() -> None:
    key = PROCFS.key("here", os.getpid())
    assert key is not None
    told = asyncio.run(NativeTaker(py_spy=None).take(key, 1))
    assert told.error is not None
    assert "py-spy is not installed" in told.error
