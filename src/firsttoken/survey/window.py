"""A file that is read in small pieces, wherever it lies inside another: `read` never fails, it gives what is there.

`pread` and not a mapping: a file that somebody truncates while it is mapped kills its reader with SIGBUS, and a page fault per header reads
128 KiB around each. Nothing is ever read whole: the caller asks for headers.
"""

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass

_MOST = 64 << 20
"""Bytes of one read, at most: no length that stands in a corrupt file makes us allocate more."""


class Damaged(ValueError):
    """What was read makes no sense; the text says where and why. It never leaves `survey`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """`size` bytes, of which `source(offset, length)` gives any piece."""

    source: Callable[[int, int], bytes]
    size: int
    start: int = 0

    @classmethod
    def of_bytes(cls, content: bytes) -> "Window":
        return cls(source=lambda offset, length: content[offset : offset + length], size=len(content))

    @classmethod
    def of_file(cls, fd: int) -> "Window":
        return cls(source=lambda offset, length: os.pread(fd, length, offset), size=os.fstat(fd).st_size)

    def read(self, offset: int, length: int) -> bytes:
        """Fewer bytes than asked where the window ends."""
        if not 0 <= offset < self.size:
            return b""
        return self.source(self.start + offset, max(0, min(length, self.size - offset, _MOST)))

    def part(self, offset: int, length: int) -> "Window":
        offset = min(max(offset, 0), self.size)
        return Window(source=self.source, size=max(0, min(length, self.size - offset)), start=self.start + offset)

    def unpack(self, form: struct.Struct, offset: int, what: str) -> tuple[int, ...]:
        """Damaged where the window ends before it."""
        content = self.read(offset, form.size)
        if len(content) < form.size:
            raise Damaged(f"{what} at {offset} lies beyond the end")
        return form.unpack(content)
