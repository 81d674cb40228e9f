"""What `py-spy dump` and `pystack` print, into stacks. Frames innermost first, as in all of firsttoken. Never raises.

py-spy prints innermost first; pystack prints innermost last, as Python's tracebacks do. Several dumps in one file are told apart.
"""

import re

from firsttoken.model.attached import StackDump
from firsttoken.model.stillness import Frame, ThreadStack

_PROCESS = re.compile(r"^(?:Process|Pyspy dump for PID) (?P<pid>\d{1,9})\b:? ?(?P<title>.*)$", re.IGNORECASE)
_THREAD = re.compile(r'^\s*Thread (?P<tid>0x[0-9a-fA-F]{1,16}|\d{1,12})(?: \((?P<state>[\w+ ]{1,30})\))?(?:: ?"(?P<name>[^"]{0,100})")?')
_FRAME = re.compile(r"^\s+(?P<function>\S[^(]{0,200}?) \((?P<file>[^()]{1,400}(?:\([^()]*\)[^()]*)?)\)\s*$")
_PLACE = re.compile(r"^(?P<file>.+?):(?P<line>\d{1,7})$")
_NATIVE = re.compile(r"\.so(?:[.\d]*|\.[^/]*)$|^(?:\[vdso\]|linux-vdso)|^lib[\w+-]+$")
_PYSTACK_THREAD = re.compile(
    r"^Traceback for thread (?P<tid>\d{1,12})(?: \((?P<name>[^)]{0,100})\))?(?P<flags>.*?)\(most recent call last\)"
)
_PYSTACK_FRAME = re.compile(
    r'^\s+\((?P<kind>Python|C)\) File "(?P<file>[^"]{1,400})", line (?P<line>\d{1,7}), in (?P<function>.{1,200}?)(?: \([^()]*\))?$'
)


def read_stacks(text: str, pid: int | None = None) -> tuple[StackDump, ...]:
    """`pid`: whose dump the file is by its name, where the text does not say. Lines of variables and of code are passed over."""
    dumps: list[StackDump] = []
    reader = _Reader(pid)
    for line in text.splitlines():
        match = _PROCESS.match(line.strip()) if "rocess" in line or "PID" in line else None
        if match is not None:
            dumps.extend(reader.close())
            reader = _Reader(int(match["pid"]), match["title"].strip())
        else:
            reader.read(line)
    dumps.extend(reader.close())
    taken: dict[int, int] = {}
    numbered = []
    for dump in dumps:
        number = taken.get(dump.pid, 0)
        taken[dump.pid] = number + 1
        numbered.append(StackDump(pid=dump.pid, title=dump.title, threads=dump.threads, active=dump.active, taken=number))
    return tuple(numbered)


class _Reader:
    def __init__(self, pid: int | None, title: str = "") -> None:
        self._pid, self._title = pid, title
        self._threads: list[ThreadStack] = []
        self._active: set[int] = set()
        self._frames: list[Frame] = []
        self._head: tuple[int, str | None] | None = None
        self._reverse = False

    def read(self, line: str) -> None:
        thread = _THREAD.match(line) or _PYSTACK_THREAD.match(line)
        if thread is not None:
            self._thread()
            tid = int(thread["tid"], 16) if thread["tid"].startswith("0x") else int(thread["tid"])
            self._head = (tid, thread["name"])
            self._reverse = thread.re is _PYSTACK_THREAD
            if not self._reverse and (thread["state"] or "").startswith("active"):
                self._active.add(tid)
            return
        if self._head is None:
            return
        frame = _PYSTACK_FRAME.match(line) if self._reverse else _FRAME.match(line)
        if frame is None:
            return
        if self._reverse:
            self._frames.append(Frame(frame["function"], frame["file"], int(frame["line"]), frame["kind"] == "C"))
            return
        place = _PLACE.match(frame["file"])
        file = place["file"] if place else frame["file"]
        native = place is None and _NATIVE.search(file) is not None
        self._frames.append(Frame(frame["function"].strip(), file, int(place["line"]) if place else 0, native))

    def close(self) -> list[StackDump]:
        self._thread()
        if self._pid is None or not self._threads:
            return []
        first = next((t for t in self._threads if t.name == "MainThread"), None) or next(
            (t for t in self._threads if t.tid == self._pid), None
        )
        main = first or self._threads[0]
        threads = (
            ThreadStack(tid=main.tid, name=main.name, main=True, frames=main.frames),
            *(thread for thread in self._threads if thread is not main),
        )
        return [StackDump(pid=self._pid, title=self._title, threads=threads, active=frozenset(self._active))]

    def _thread(self) -> None:
        if self._head is not None:
            frames = tuple(reversed(self._frames)) if self._reverse else tuple(self._frames)
            self._threads.append(ThreadStack(tid=self._head[0], name=self._head[1], frames=frames))
        self._head, self._frames = None, []
