"""A line of generated code tells which operation the native code below it is in."""

import json
from pathlib import Path
from typing import Any

from firsttoken.hosts.procfs import Procfs
from firsttoken.knowledge.stacks import marked
from firsttoken.model.stillness import Frame
from firsttoken.observe.op_calls import OpCalls, calls_op
from firsttoken.observe.stacks import parse_dump

CODE = """buf0 = empty_strided_cpu((8, 8))
torch.ops._C.shm_allreduce.default(0, buf0)
buf1 = f(buf0)
"""


def process(root: Path) -> str:
    """A target whose root holds one generated file; its path as the target sees it."""
    code = root / "7/root/cache/ab/cab.py"
    code.parent.mkdir(parents=True)
    code.write_text(CODE)
    return "/cache/ab/cab.py"


def dump(path: str, line: int) -> bytes:
    packages = "/venv/lib/python3.11/site-packages/"
    rows: list[tuple[str, str, int]] = [("OpOverload.__call__", packages + "torch/_ops.py", 875), ("Runner.call", path, line)]
    frames = [{"name": name, "filename": file, "short_filename": file.rsplit("/", 1)[-1], "line": at} for name, file, at in rows]
    thread: dict[str, Any] = {"os_thread_id": 7, "thread_name": "MainThread", "active": True, "frames": frames}
    return json.dumps([thread]).encode()


def test_the_operation_stands_between_the_dispatch_and_the_line_that_calls_it(tmp_path: Path) -> None:
    calls = OpCalls(Procfs(tmp_path), 7)
    (thread,), error = parse_dump(dump(process(tmp_path), 2), 7, calls)
    assert error in ("", None)
    assert [frame.function for frame in thread.frames] == ["OpOverload.__call__", "_C::shm_allreduce", "Runner.call"]
    told = marked(thread)
    assert (told.sign, told.doing) == ("op-collective", "collective")


def test_without_its_code_it_is_a_native_operation_that_nothing_explains(tmp_path: Path) -> None:
    (thread,), _ = parse_dump(dump("/cache/ab/gone.py", 2), 7, OpCalls(Procfs(tmp_path), 7))
    assert len(thread.frames) == 2
    assert (marked(thread).doing, calls_op(thread.frames)) == ("native", True)


def test_another_line_and_one_that_is_not_there_tell_nothing(tmp_path: Path) -> None:
    path = process(tmp_path)
    for line in (1, 3, 99):
        (thread,), _ = parse_dump(dump(path, line), 7, OpCalls(Procfs(tmp_path), 7))
        assert [frame.function for frame in thread.frames] == ["OpOverload.__call__", "Runner.call"]


def test_code_of_packages_is_not_read(tmp_path: Path) -> None:
    calls = OpCalls(Procfs(tmp_path), 7)
    inner, outer = Frame("__call__", "torch/_ops.py", 1), Frame("f", "a/b.py", 2)
    assert calls.between(inner, "/venv/lib/python3.11/site-packages/a/b.py", outer) is None
    assert calls.between(inner, None, outer) is None
    assert calls.between(Frame("g", "x.py", 1), "/cache/ab/cab.py", outer) is None
