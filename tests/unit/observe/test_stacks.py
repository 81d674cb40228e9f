"""Stacks of real processes, and py-spy's answers."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from still_processes import PROCFS, settled, still, until

from firsttoken.model.events import Places, Stacks
from firsttoken.model.process import ProcessKey
from firsttoken.model.stillness import WaitKind
from firsttoken.observe.closeup import CloseLook
from firsttoken.observe.stacks import StackTaker, file_name, find_py_spy, parse_dump, switches_at_rest, told_by_locals

needs_py_spy = pytest.mark.skipif(find_py_spy() is None, reason="py-spy is not installed")


def key(pid: int) -> ProcessKey:
    found = PROCFS.key("here", pid)
    assert found is not None
    return found


def take(*pids: int, taker: StackTaker | None = None, deadline: float = 20.0) -> list[Stacks]:
    return asyncio.run((taker or StackTaker()).take([key(pid) for pid in pids], 7, deadline))


@needs_py_spy
def test_all_threads_are_told_main_first_and_file_names_are_short() -> None:
    with still("threads", 3) as process:
        settled(process.pid, "futex")
        (one,) = take(process.pid)
        assert (one.process.pid, one.round, one.tool, one.error) == (process.pid, 7, "py-spy", None)
        assert [thread.main for thread in one.threads] == [True, False, False, False]
        assert one.threads[0].tid == process.pid
        assert [(frame.function.rsplit(".", 1)[-1], frame.file) for frame in one.threads[0].frames[:3]] == [
            ("wait", "threading.py"),
            ("wait", "threading.py"),
            ("threads", "still.py"),
        ]
        assert (one.threads[0].sign, one.threads[0].doing) == ("python-event", "lock")


@needs_py_spy
def test_a_stopped_process_is_read_and_left_as_it_was() -> None:
    with still("stop") as process:
        settled(process.pid, "kill", state="T")
        (one,) = take(process.pid)
        assert [frame.function for frame in one.threads[0].frames[:1]] == ["stop"]
        stat = PROCFS.stat(process.pid)
        assert stat is not None
        assert stat.state == "T"


@needs_py_spy
def test_a_process_that_runs_is_read() -> None:
    with still("spin") as process:
        (one,) = take(process.pid)
        assert one.error is None
        assert one.threads[0].frames[0].function == "spin"


@needs_py_spy
def test_what_is_no_python_and_what_has_ended_is_said_to_be_so() -> None:
    with subprocess.Popen(["sleep", "90"]) as sleeper, still("sleep", 90) as process:
        gone = key(process.pid)._replace(start=1)
        other, ended = asyncio.run(StackTaker().take([key(sleeper.pid), gone], 1))
        sleeper.send_signal(signal.SIGKILL)
    assert other.error is not None
    assert "no Python process" in other.error
    assert ended.error == "has ended"


def test_without_py_spy_it_is_said_what_to_do() -> None:
    with still("sleep", 90) as process:
        (one,) = take(process.pid, taker=StackTaker(py_spy=None, pystack=False))
        assert one.error == "py-spy is not installed (pip install py-spy)"
        assert one.threads == ()


def test_a_py_spy_that_hangs_is_left_behind_at_the_deadline(tmp_path: Path) -> None:
    fake = tmp_path / "py-spy"
    fake.write_text(f"#!{sys.executable}\nimport signal\nsignal.pause()\n")
    fake.chmod(0o700)
    with still("sleep", 90) as first, still("sleep", 90) as second:
        began = time.monotonic()
        found = take(first.pid, second.pid, taker=StackTaker(py_spy=str(fake), pystack=False), deadline=0.4)
        assert time.monotonic() - began < 10
        assert [one.error is not None and "no answer within" in one.error for one in found] == [True, True]


@needs_py_spy
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can give up the right to trace its own")
def test_where_tracing_is_not_permitted_it_is_said_why(tmp_path: Path) -> None:
    bare = tmp_path / "py-spy"
    bare.write_text(f'#!/bin/sh\nexec setpriv --bounding-set=-all --inh-caps=-all {find_py_spy()} "$@"\n')
    bare.chmod(0o700)
    with still("sleep", 90) as process:
        (one,) = take(process.pid, taker=StackTaker(py_spy=str(bare), pystack=False))
        assert one.error is not None
        assert one.error.startswith("may not be traced (Yama")


def test_pystack_reads_where_py_spy_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = SimpleNamespace(
        code=SimpleNamespace(scope="outer", filename="/v/site-packages/a.py", location=SimpleNamespace(lineno=3)), next=None
    )
    frame.next = SimpleNamespace(
        code=SimpleNamespace(scope="inner", filename="/v/site-packages/b.py", location=SimpleNamespace(lineno=4)), next=None
    )
    module = ModuleType("pystack")
    engine = ModuleType("pystack.engine")
    engine.NativeReportingMode = SimpleNamespace(OFF=0)  # type: ignore[attr-defined]  # a stand-in for the real one
    asked: list[object] = []

    def threads(pid: int, *, stop_process: bool, native_mode: int) -> list[SimpleNamespace]:
        asked.append(stop_process)
        return [SimpleNamespace(tid=pid + 1, name=None, frame=None), SimpleNamespace(tid=pid, name="main", frame=frame)]

    engine.get_process_threads = threads  # type: ignore[attr-defined]  # likewise
    module.__spec__ = ModuleSpec("pystack", None)
    monkeypatch.setitem(sys.modules, "pystack", module)
    monkeypatch.setitem(sys.modules, "pystack.engine", engine)
    with still("sleep", 90) as process:
        (one,) = take(process.pid, taker=StackTaker(py_spy=None))
    assert (one.tool, one.error, asked) == ("pystack", None, [False])
    assert [thread.main for thread in one.threads] == [True, False]
    assert [frame.function for frame in one.threads[0].frames] == ["inner", "outer"]
    assert one.threads[0].frames[0].file == "b.py"


def counting(folder: Path) -> tuple[str, Path]:
    """A py-spy that notes each call."""
    calls, program = folder / "calls", folder / "py-spy"
    calls.touch()
    frames = [{"name": "main", "filename": "/x/serve.py", "short_filename": "serve.py", "line": 4}]
    (folder / "answer").write_text(json.dumps([{"os_thread_id": 1, "thread_name": "MainThread", "frames": frames}]))
    program.write_text(f"#!/bin/sh\necho >> {calls}\ncat {folder / 'answer'}\n")
    program.chmod(0o700)
    return str(program), calls


def test_a_process_that_has_not_run_since_is_not_asked_again_for_some_looks(tmp_path: Path) -> None:
    program, calls = counting(tmp_path)
    with still("sleep", 90) as process:
        settled(process.pid, "clock_nanosleep")
        taker = StackTaker(py_spy=program)
        rounds = [asyncio.run(taker.take([key(process.pid)], number))[0] for number in range(1, 8)]
        assert [one.round for one in rounds] == list(range(1, 8))
        assert {one.threads for one in rounds} == {rounds[0].threads}
        assert calls.read_text().count("\n") == 2


def test_a_process_that_runs_is_asked_each_time(tmp_path: Path) -> None:
    program, calls = counting(tmp_path)
    with still("spin") as process:
        taker = StackTaker(py_spy=program)
        for number in range(3):
            asyncio.run(taker.take([key(process.pid)], number))
        assert calls.read_text().count("\n") == 3


def test_a_process_that_woke_up_in_between_is_asked_again(tmp_path: Path) -> None:
    program, calls = counting(tmp_path)
    with still("sleep", 90) as process:
        settled(process.pid, "clock_nanosleep")
        taker, before = StackTaker(py_spy=program), switches_at_rest(PROCFS, key(process.pid))
        asyncio.run(taker.take([key(process.pid)], 1))
        process.process.send_signal(signal.SIGSTOP)
        process.process.send_signal(signal.SIGCONT)
        until(lambda: True if switches_at_rest(PROCFS, key(process.pid)) not in (None, before) else None)
        asyncio.run(taker.take([key(process.pid)], 2))
        assert calls.read_text().count("\n") == 2


@needs_py_spy
def test_the_lock_that_a_library_polls_is_named_by_its_variable_and_leads_to_its_holder(tmp_path: Path) -> None:
    package = tmp_path / "lib" / "filelock"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "api.py").write_text(_LIBRARY)
    path = tmp_path / "weights.lock"
    with still("hold", "flock", path) as holder, still("import_lock", tmp_path / "lib", path) as waiter:
        settled(waiter.pid, "clock_nanosleep")
        found = asyncio.run(CloseLook(PROCFS, "here").take([key(waiter.pid)], 1, deadline=20.0))
        places, stacks = found
        assert isinstance(places, Places)
        assert isinstance(stacks, Stacks)
        assert (stacks.threads[0].sign, stacks.threads[0].doing, stacks.threads[0].where) == ("filelock", "lock", "file lock")
        assert [(wait.kind, wait.what, wait.to.pid if wait.to else None) for wait in places.waits] == [
            (WaitKind.FILE_LOCK, str(path), holder.pid)
        ]


@needs_py_spy
def test_a_build_lock_that_was_left_behind_is_named_and_leads_to_nobody(tmp_path: Path) -> None:
    package = tmp_path / "lib" / "torch" / "utils"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    for name, text in (("__init__", ""), ("file_baton", _BATON), ("cpp_extension", _EXTENSION)):
        (package / f"{name}.py").write_text(text)
    (tmp_path / "lock").touch()
    with still("import_extension", tmp_path / "lib", tmp_path) as waiter:
        settled(waiter.pid, "clock_nanosleep")
        places, stacks = asyncio.run(CloseLook(PROCFS, "here").take([key(waiter.pid)], 1, deadline=20.0))
        assert isinstance(places, Places)
        assert isinstance(stacks, Stacks)
        assert (stacks.threads[0].sign, stacks.threads[0].doing) == ("torch-file-baton", "lock")
        assert [(wait.kind, wait.what) for wait in places.waits] == [(WaitKind.FILE_LOCK, str(tmp_path / "lock"))]


_BATON = """
import os, time

class FileBaton:
    def __init__(self, lock_file_path):
        self.lock_file_path = lock_file_path

    def wait(self):
        while os.path.exists(self.lock_file_path):
            time.sleep(0.1)
"""

_EXTENSION = """
import os
from .file_baton import FileBaton

def _jit_compile(build_directory):
    baton = FileBaton(os.path.join(build_directory, "lock"))
    baton.wait()
"""

_LIBRARY = """
import fcntl, os, time

def acquire(lock_filename):
    while True:
        file = os.open(lock_filename, os.O_RDWR)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            time.sleep(0.05)
        else:
            return
"""


def row(tid: int, name: str | None, *frames: tuple[str, str, int]) -> dict[str, object]:
    return {
        "os_thread_id": tid,
        "thread_name": name,
        "active": False,
        "frames": [
            {"name": function, "filename": file, "short_filename": os.path.basename(file), "line": line} for function, file, line in frames
        ],
    }


def test_threads_are_read_from_json_with_packages_cut_off() -> None:
    raw = json.dumps([row(12, "worker", ("f", "/opt/venv/lib/python3.12/site-packages/vllm/v1/a.py", 5)), row(10, "MainThread")]).encode()
    threads, error = parse_dump(raw, 10)
    assert error == ""
    assert [(thread.tid, thread.main) for thread in threads] == [(10, True), (12, False)]
    assert threads[1].frames[0].file == "vllm/v1/a.py"


def test_in_a_pid_namespace_of_its_own_the_main_thread_is_known_by_name_or_place() -> None:
    threads, _ = parse_dump(json.dumps([row(2, "a"), row(1, "MainThread")]).encode(), 999)
    assert [(thread.tid, thread.main) for thread in threads] == [(1, True), (2, False)]
    threads, _ = parse_dump(json.dumps([row(2, None), row(1, None)]).encode(), 999)
    assert [(thread.tid, thread.main) for thread in threads] == [(1, True), (2, False)]


@pytest.mark.parametrize(
    ("path", "short", "told"),
    [
        ("/usr/lib/python3/dist-packages/torch/_ops.py", None, "torch/_ops.py"),
        ("/root/.pyenv/versions/3.11.7/lib/python3.11/multiprocessing/spawn.py", None, "multiprocessing/spawn.py"),
        ("/opt/conda/lib/python3.13t/threading.py", None, "threading.py"),
        ("/home/me/src/engine/server.py", "engine/server.py", "engine/server.py"),
        ("/app/serve.py", None, "/app/serve.py"),
        ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"),
    ],
)
def test_file_names_are_the_same_on_all_machines(path: str, short: str | None, told: str) -> None:
    assert file_name(path, short) == told


def test_variables_are_taken_from_frames_near_the_innermost_and_only_as_asked() -> None:
    frames = [
        {"locals": [{"name": "path", "repr": '"/x"'}, {"name": "n", "repr": "5"}]},
        {"locals": [{"name": "build_directory", "repr": '"/cache/ext"'}, {"name": "token", "repr": '"hf_secret"'}]},
    ]
    raw = json.dumps([{"os_thread_id": 5, "frames": frames}, {"os_thread_id": 6, "frames": frames}]).encode()
    assert told_by_locals(raw, {5: ("lock_filename", "{build_directory}/lock")}) == {5: "/cache/ext/lock"}
    assert told_by_locals(raw, {5: ("n",), 6: ("path",)}) == {6: "/x"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "os_thread_id",
                    "thread_id",
                    "thread_name",
                    "frames",
                    "name",
                    "filename",
                    "short_filename",
                    "line",
                    "active",
                    "locals",
                    "repr",
                ]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)


@given(st.one_of(st.binary(max_size=100), JSON.map(lambda value: json.dumps(value).encode())))
def test_no_answer_is_too_odd(raw: bytes) -> None:
    parse_dump(raw, 5)
    told_by_locals(raw, {5: ("a", "{b}/c")})
