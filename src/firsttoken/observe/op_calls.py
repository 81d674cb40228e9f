"""Which operation a line of generated code calls: no frame of a compiled model has a name that says it.

A compiler of models writes its programs to files, and py-spy tells file and line: the line names the operation, `torch.ops.…(`, that the
native code below is in. So a collective that spins in native code is known without native frames, for which the target had to be stopped.
"""

import re
from collections.abc import Sequence

from firsttoken.hosts.procfs import Procfs
from firsttoken.model.stillness import Frame

FILE = "<op>"
"""the file of a frame that stands for an operation"""
_DISPATCH = "torch/_ops.py"
_CALLED = re.compile(r"\btorch\.ops\.(\w+)\.(\w+)")
_INSTALLED = re.compile(r"/(?:site|dist)-packages/|/lib/python3\.")
_MOST_BYTES = 16 << 20


def calls_op(frames: Sequence[Frame]) -> bool:
    """Whether the innermost frame is the call of an operation."""
    return bool(frames) and frames[0].file == _DISPATCH


class OpCalls:
    """Of one process in one look. A file is read once; one that cannot be read tells nothing. Reading may block: it may be anywhere."""

    def __init__(self, procfs: Procfs, pid: int) -> None:
        self._procfs = procfs
        self._pid = pid
        self._lines: dict[str, list[bytes]] = {}

    def between(self, inner: Frame, path: object, outer: Frame) -> Frame | None:
        """The operation that `outer`, whose code is in `path` as the process sees it, calls; None where `inner` is no call of one."""
        if inner.file != _DISPATCH or not isinstance(path, str) or not path.startswith("/") or _INSTALLED.search(path):
            return None
        lines = self._lines.get(path)
        if lines is None:
            raw = self._procfs.read(f"{self._pid}/root{path}", _MOST_BYTES) or b""
            lines = self._lines.setdefault(path, raw.split(b"\n"))
        if not 0 < outer.line <= len(lines):
            return None
        called = _CALLED.search(lines[outer.line - 1].decode("utf8", "replace"))
        return Frame(f"{called[1]}::{called[2]}", FILE, 0) if called is not None else None
