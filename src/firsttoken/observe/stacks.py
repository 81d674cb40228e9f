"""Stacks of all threads of all processes of a run, taken at once and without stopping anybody.

py-spy reads a process from outside by its memory alone (`--nonblocking`): that also works on a stopped, traced or frozen process and on one
in uninterruptible sleep, where every blocking tool hangs or leaves the target stopped, so no other way of asking is used here. It runs as a
child that can be left behind, four at a time, each with a deadline. Reading a moving process can fail, and is tried again. Where py-spy is
missing or may not trace, pystack reads in this process, if it is installed: with Yama's scope 1 only an ancestor may trace.

A thread that has slept since the last look, without a switch to it, stands where it stood. So a process whose main thread did is not asked
again for some looks: of a start that hangs, most cost one small read.

Privacy: variables are read only of processes that a signature says to poll a lock, and only the path of that lock is kept.
"""

import asyncio
import importlib
import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from firsttoken.hosts.procfs import Procfs
from firsttoken.knowledge.stacks import marked, signature
from firsttoken.model.events import Stacks
from firsttoken.model.process import ProcessKey
from firsttoken.model.stillness import Frame, ThreadStack
from firsttoken.observe.errands import Errands
from firsttoken.observe.expendable import Expendable, Outcome
from firsttoken.observe.locks import PolledLock
from firsttoken.observe.op_calls import OpCalls, calls_op

AT_ONCE = 4
DEADLINE = 3.0
"""seconds for one process, all tries together"""
_TRIES = 3
_ASKED_AGAIN = 5
"""looks after which a process is asked again though its main thread did not move: its other threads may have"""
_PAUSE = 0.05
_MOST_THREADS, _MOST_FRAMES = 128, 200
_PACKAGES = re.compile(r"^.*/(?:site-packages|dist-packages)/|^.*/lib/python3\.\d+t?/|^.*/python3\d+\.zip/")
_VARIABLE = re.compile(r"\{(\w+)\}")
_REFUSED = re.compile(r"permission denied|operation not permitted|eperm|ptrace", re.IGNORECASE)
_NEAR = 4
_NOT_PYTHON = "Failed to find"
"""in py-spy's answer about a process that is no Python"""
_NO_PYTHON = re.compile(
    r"^(?:cc1|cc1plus|as|ld|ld\..+|collect2|lto1|lto-wrapper|g?cc|[gc]\+\+|clang.*|.*-(?:gcc|g\+\+|ld|as)(?:-\d+)?|gcc-\d+|g\+\+-\d+|ninja|make|"
    r"cmake|nvcc|cicc|ptxas|fatbinary|cudafe\+\+|nvlink|nvidia-smi|lld|ar|ranlib|sh|bash|dash|busybox|tini|dumb-init|sleep|numactl|nvidia-.+)$"
)
"""programs that need not be asked: a build has dozens of them"""


@dataclass(slots=True, kw_only=True)
class _Kept:
    """The last answer of a process, the main thread's switches at that time, and for how many looks it has served."""

    stack: Stacks
    switches: int
    polled: dict[tuple[int, int], PolledLock]
    looks: int = 1


@dataclass(slots=True, kw_only=True)
class StackTaker:
    """`py_spy`: the program, by default the one beside this Python, else the first in PATH; None where there is none.
    `pystack` False: it is never used. One instance a run: it remembers children that were left behind."""

    procfs: Procfs = field(default_factory=Procfs)
    py_spy: str | None = field(default_factory=lambda: find_py_spy())
    pystack: bool = True
    polled: dict[tuple[int, int], PolledLock] = field(default_factory=dict)
    """after a round, by pid and thread: the lock file that the thread asks for again and again"""
    _kept: dict[ProcessKey, _Kept] = field(default_factory=dict)
    _children: Expendable = field(default_factory=Expendable)
    _errands: Errands = field(default_factory=lambda: Errands("firsttoken-pystack", most=2))
    _reading: Errands = field(default_factory=lambda: Errands("firsttoken-source", most=2))

    async def take(self, targets: Iterable[ProcessKey], round: int, deadline: float = DEADLINE) -> list[Stacks]:
        """One `Stacks` for each target, in their order, within about `deadline` seconds for every four of them."""
        self.polled = {}
        order = tuple(targets)
        self._kept = {key: kept for key, kept in self._kept.items() if key in order}
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(key: ProcessKey) -> Stacks:
            async with gate:
                return self._again(key, round) or await self._anew(key, round, deadline)

        return list(await asyncio.gather(*(one(key) for key in order)))

    def _again(self, key: ProcessKey, round: int) -> Stacks | None:
        """What it told last, where its main thread has not moved since."""
        kept = self._kept.get(key)
        if kept is None or kept.looks >= _ASKED_AGAIN or kept.switches != switches_at_rest(self.procfs, key):
            return None
        kept.looks += 1
        self.polled |= kept.polled
        return replace(kept.stack, round=round)

    async def _anew(self, key: ProcessKey, round: int, deadline: float) -> Stacks:
        before = switches_at_rest(self.procfs, key)
        stack = await self._one(key, round, deadline)
        self._kept.pop(key, None)
        told = bool(stack.threads) or _NOT_PYTHON in (stack.error or "")
        if before is not None and told and switches_at_rest(self.procfs, key) == before:
            polled = {thread: lock for thread, lock in self.polled.items() if thread[0] == key.pid}
            self._kept[key] = _Kept(stack=stack, switches=before, polled=polled)
        return stack

    async def _one(self, key: ProcessKey, round: int, deadline: float) -> Stacks:
        loop = asyncio.get_running_loop()
        until = loop.time() + deadline
        if (stat := self.procfs.stat(key.pid)) is None or stat.start != key.start or stat.dead:
            return Stacks(process=key, round=round, error="has ended")
        program = os.path.basename((self.procfs.link(f"{key.pid}/exe") or "").removesuffix(" (deleted)"))
        if _NO_PYTHON.match(program):
            return Stacks(process=key, round=round, error=f"is no Python process ({program})")
        error = "py-spy is not installed (pip install py-spy)"
        for attempt in range(_TRIES if self.py_spy is not None else 0):
            answer = await self._ask(key.pid, until - loop.time())
            if answer.error is None:
                threads, error = parse_dump(answer.output, key.pid)
                if threads:
                    stack = Stacks(process=key, round=round, threads=tuple(marked(thread) for thread in threads), tool="py-spy")
                    stack = await self._name_ops(stack, answer.output, until - loop.time())
                    await self._name_locks(stack, until - loop.time())
                    return stack
            else:
                error = answer.error
            if answer.left_behind or not _worth_another_try(error) or until - loop.time() < 2 * _PAUSE or attempt == _TRIES - 1:
                break
            await asyncio.sleep(_PAUSE)
        return await self._by_pystack(key, round, error, max(until - loop.time(), 0.5))

    async def _ask(self, pid: int, seconds: float, *more: str) -> Outcome:
        assert self.py_spy is not None, "asked only where there is one"
        return await self._children.run((self.py_spy, "dump", "--nonblocking", "--json", *more, "--pid", str(pid)), seconds)

    async def _name_ops(self, stack: Stacks, raw: bytes, seconds: float) -> Stacks:
        """Threads in a native operation that no frame explains, with the operation that their generated code calls."""
        if seconds < _PAUSE or not any(calls_op(thread.frames) for thread in stack.threads):
            return stack
        calls = OpCalls(self.procfs, stack.process.pid)
        errand = self._reading.send(lambda: parse_dump(raw, stack.process.pid, calls)[0])
        if errand is None or not await asyncio.to_thread(errand.wait, min(seconds, 1.0)) or not errand.result:
            return stack
        return replace(stack, threads=tuple(marked(thread) for thread in errand.result))

    async def _name_locks(self, stack: Stacks, seconds: float) -> None:
        """The paths of locks that threads poll, from the variables of the polling functions."""
        asking = {thread.tid: one for thread in stack.threads if thread.sign and (one := signature(thread.sign)) and one.tell}
        if not asking or seconds < _PAUSE:
            return
        answer = await self._ask(stack.process.pid, seconds, "--locals", "--locals")
        for tid, told in told_by_locals(answer.output, {tid: one.tell for tid, one in asking.items()}).items():
            self.polled[stack.process.pid, tid] = PolledLock(told, asking[tid].stands)

    async def _by_pystack(self, key: ProcessKey, round: int, error: str, seconds: float) -> Stacks:
        if not self.pystack or importlib.util.find_spec("pystack") is None or (self.py_spy is not None and not _REFUSED.search(error)):
            return Stacks(process=key, round=round, error=_explained(error))
        errand = self._errands.send(lambda: _pystack_threads(key.pid))
        if errand is None or not await asyncio.to_thread(errand.wait, seconds):
            return Stacks(process=key, round=round, error=f"{_explained(error)}; pystack gave no answer within {seconds:.1f} s")
        if errand.result:
            return Stacks(process=key, round=round, threads=tuple(marked(one) for one in errand.result), tool="pystack")
        return Stacks(process=key, round=round, error=f"{_explained(error)}; pystack: {errand.error or 'found no threads'}")


async def take_stacks(targets: Iterable[ProcessKey], round: int, deadline: float = DEADLINE) -> list[Stacks]:
    """One round, without memory."""
    return await StackTaker().take(targets, round, deadline)


def switches_at_rest(procfs: Procfs, key: ProcessKey) -> int | None:
    """How often the main thread has been switched from, counted while it sleeps; None where it runs, is gone or does not tell. The same
    number twice: it has not run in between.
    """
    raw = procfs.read(f"{key.pid}/task/{key.pid}/status", 8192) or b""
    told = dict(line.split(b":", 1) for line in raw.split(b"\n") if b":" in line)
    counts = [told.get(name, b"").strip() for name in (b"voluntary_ctxt_switches", b"nonvoluntary_ctxt_switches")]
    stat = procfs.stat(key.pid)
    asleep = told.get(b"State", b"R").strip()[:1] not in (b"R", b"") and stat is not None and stat.start == key.start
    return sum(map(int, counts)) if asleep and all(count.isdigit() and len(count) < 20 for count in counts) else None


def find_py_spy() -> str | None:
    """Beside this Python, else in PATH."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")


def parse_dump(raw: bytes, pid: int, calls: OpCalls | None = None) -> tuple[tuple[ThreadStack, ...], str]:
    """py-spy's JSON → threads, main one first, and what is wrong where there are none. Never raises.

    `calls`: names what generated code calls; reads files then.
    """
    try:
        rows = json.loads(raw)
    except (ValueError, RecursionError):
        return (), "py-spy's answer is no JSON"
    found = [thread for row in rows[:_MOST_THREADS] if (thread := _thread(row, pid, calls)) is not None] if isinstance(rows, list) else []
    if not found:
        return (), "py-spy found no Python thread"
    if not any(thread.main for thread in found):  # it lists the newest first
        last = found[-1]
        found[-1] = ThreadStack(tid=last.tid, name=last.name, main=True, frames=last.frames, active=last.active)
    return tuple(sorted(found, key=lambda thread: (not thread.main, thread.tid))), ""


def told_by_locals(raw: bytes, asking: Mapping[int, tuple[str, ...]]) -> dict[int, str]:
    """py-spy's JSON with variables → by thread, the text that its signature's `tell` asks for. Never raises."""
    try:
        rows = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    found: dict[int, str] = {}
    for row in rows if isinstance(rows, list) else ():
        tid = row.get("os_thread_id") if isinstance(row, dict) else None
        frames = row.get("frames") if isinstance(row, dict) else None
        if not isinstance(tid, int) or tid not in asking or not isinstance(frames, list):
            continue
        values: dict[str, str] = {}
        for frame in frames[: _NEAR + 1]:
            for name, value in _variables(frame):
                values.setdefault(name, value)
        for wanted in asking[tid]:
            names = _VARIABLE.findall(wanted) or [wanted]
            if all(name in values for name in names):
                found[tid] = wanted.format_map(values) if "{" in wanted else values[wanted]
                break
    return found


def file_name(path: str, short: str | None = None) -> str:
    """As it is the same on all machines: without the folder of packages or of the standard library."""
    cut = _PACKAGES.sub("", path)
    return cut if cut != path or path.startswith("<") else short or path


def _thread(row: Any, pid: int, calls: OpCalls | None = None) -> ThreadStack | None:
    if not isinstance(row, dict):
        return None
    name, frames = row.get("thread_name"), row.get("frames")
    tid = next((number for number in (row.get("os_thread_id"), row.get("thread_id")) if isinstance(number, int)), 0)
    return ThreadStack(
        tid=tid,
        name=name if isinstance(name, str) else None,
        main=tid == pid or name == "MainThread",
        frames=tuple(_frames(frames[:_MOST_FRAMES] if isinstance(frames, list) else (), calls)),
        active=bool(row.get("active")) if isinstance(row.get("active"), bool) else None,
    )


def _frames(rows: Iterable[Any], calls: OpCalls | None) -> Iterable[Frame]:
    inner: Frame | None = None
    for row in rows:
        frame = _frame(row)
        if frame is None:
            continue
        if calls is not None and inner is not None and (op := calls.between(inner, row["filename"], frame)) is not None:
            yield op
        yield frame
        inner = frame


def _frame(row: Any) -> Frame | None:
    if not isinstance(row, dict) or not isinstance(row.get("name"), str):
        return None
    path, short, line = row.get("filename"), row.get("short_filename"), row.get("line")
    if isinstance(row.get("module"), str):
        return Frame("native code" if row["name"].startswith("0x") else row["name"], os.path.basename(row["module"]), 0, native=True)
    file = file_name(path if isinstance(path, str) else "", short if isinstance(short, str) else None)
    return Frame(row["name"], file, line if isinstance(line, int) and line > 0 else 0)


def _variables(frame: Any) -> Iterable[tuple[str, str]]:
    """Text values only, out of their quotes."""
    rows = frame.get("locals") if isinstance(frame, dict) else None
    for row in rows if isinstance(rows, list) else ():
        name, value = (row.get("name"), row.get("repr")) if isinstance(row, dict) else (None, None)
        if isinstance(name, str) and isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"' and "..." not in value[-5:]:
            yield name, value[1:-1]


def _worth_another_try(error: str) -> bool:
    """Memory that moved while it was read; not a refusal, nor a process that is no Python."""
    return not _REFUSED.search(error) and _NOT_PYTHON not in error and "executable name" not in error


def _explained(error: str) -> str:
    if not _REFUSED.search(error):
        return error
    return f"may not be traced (Yama's ptrace_scope, a container's profile, or another user's process): {error}"


def _pystack_threads(pid: int) -> tuple[ThreadStack, ...]:
    """Runs in a thread that can be left behind. Nonblocking: the target is never stopped."""
    engine: Any = importlib.import_module("pystack.engine")
    rows = engine.get_process_threads(pid, stop_process=False, native_mode=engine.NativeReportingMode.OFF)
    found = []
    for row in rows:
        frames: list[Frame] = []
        frame = row.frame
        while frame is not None and len(frames) < _MOST_FRAMES:
            code = frame.code
            frames.append(Frame(str(code.scope), file_name(str(code.filename)), int(code.location.lineno)))
            frame = frame.next
        main = row.tid == pid
        found.append(ThreadStack(tid=int(row.tid), name=str(row.name) if row.name else None, main=main, frames=tuple(reversed(frames))))
    return tuple(sorted(found, key=lambda thread: (not thread.main, thread.tid)))
