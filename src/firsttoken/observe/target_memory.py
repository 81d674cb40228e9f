"""A few bytes of another process's memory: the arguments that a system call was given by address.

Read through /proc/PID/mem: it asks for the same right as /proc/PID/syscall does, never stops the target, and gives what there is up to the
end of a mapping. It takes the target's mmap lock, so it belongs into a thread that can be left behind. Layouts are those of 64-bit Linux,
in the machine's own byte order.
"""

import os
import socket
import struct
import sys
import time
from typing import NamedTuple

from firsttoken.hosts.procfs import Procfs

_PATH_MAX = 4096
_LONGEST_ADDRESS = 128
_MOST_DESCRIPTORS = 1024
_TIMESPEC = struct.Struct("=qq")
_POLLFD = struct.Struct("=ihh")
_MUTEX = struct.Struct("=iIi")
_TOP = 1 << 63
_READABLE, _WRITABLE = 0x001 | 0x002 | 0x040 | 0x080, 0x004 | 0x100


class PollEntry(NamedTuple):
    """`writes`: it waits until the descriptor can be written to, and for nothing to read."""

    fd: int
    writes: bool = False


class TargetMemory:
    """Every reader answers None (or nothing) where the bytes cannot be had."""

    __slots__ = ("_pid", "_procfs")

    def __init__(self, procfs: Procfs, pid: int) -> None:
        self._procfs = procfs
        self._pid = pid

    def read(self, address: int, size: int) -> bytes | None:
        """Up to `size` bytes; fewer at the end of a mapping."""
        if not 0 < address < _TOP - size or size <= 0:
            return None
        try:
            fd = os.open(self._procfs.root / f"{self._pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError):
            return None
        try:
            return os.pread(fd, size, address) or None
        except (OSError, ValueError, OverflowError):
            return None
        finally:
            os.close(fd)

    def text(self, address: int) -> str | None:
        """A C string, as file names are kept."""
        raw = self.read(address, _PATH_MAX)
        return None if raw is None or b"\0" not in raw else os.fsdecode(raw[: raw.index(b"\0")])

    def seconds(self, address: int, *, micro: bool = False) -> float | None:
        """A timespec (or, `micro`, a timeval)."""
        raw = self.read(address, _TIMESPEC.size)
        if raw is None or len(raw) < _TIMESPEC.size:
            return None
        whole: int
        part: int
        whole, part = _TIMESPEC.unpack(raw)
        return whole + part / (1e6 if micro else 1e9)

    def until(self, address: int, clock: int) -> float | None:
        """Seconds left until the time (of the clock with that number) at `address`: real, monotonic and boot time."""
        at = self.seconds(address)
        if at is None or clock not in (0, 1, 7):
            return None
        left: float = at - time.clock_gettime(clock)
        return max(left, 0.0)

    def poll_set(self, address: int, count: int) -> tuple[PollEntry, ...] | None:
        """The descriptors of poll(2)."""
        raw = self.read(address, min(count, _MOST_DESCRIPTORS) * _POLLFD.size)
        if raw is None:
            return None
        rows = _POLLFD.iter_unpack(raw[: len(raw) // _POLLFD.size * _POLLFD.size])
        return tuple(PollEntry(fd, bool(events & _WRITABLE) and not events & _READABLE) for fd, events, _ in rows if fd >= 0)

    def select_set(self, count: int, readable: int, writable: int) -> tuple[PollEntry, ...] | None:
        """The descriptors of select(2), from its two bitmaps."""
        size = (min(count, _MOST_DESCRIPTORS) + 7) // 8
        found: list[PollEntry] = []
        for address, writes in ((readable, False), (writable, True)):
            if not address or not size:
                continue
            raw = self.read(address, size)
            if raw is None:
                return None
            bits = int.from_bytes(raw, "little")
            found += [PollEntry(fd, writes) for fd in range(count) if bits >> fd & 1]
        return tuple(found)

    def word(self, address: int) -> int | None:
        """32 bits, unsigned."""
        raw = self.read(address, 4)
        return None if raw is None or len(raw) < 4 else int(struct.unpack("=I", raw)[0])

    def address(self, place: int, size: int) -> tuple[str, int] | str | None:
        """A socket address: host and port, or the path of a unix socket (`@` before a name that no file has)."""
        raw = self.read(place, min(size, _LONGEST_ADDRESS))
        if raw is None or len(raw) < 3:
            return None
        match int.from_bytes(raw[:2], sys.byteorder):
            case socket.AF_UNIX:
                name = raw[2:]
                return "@" + os.fsdecode(name[1:]) if name[:1] == b"\0" else os.fsdecode(name.split(b"\0", 1)[0]) or None
            case socket.AF_INET if len(raw) >= 8:
                return socket.inet_ntop(socket.AF_INET, raw[4:8]), int.from_bytes(raw[2:4], "big")
            case socket.AF_INET6 if len(raw) >= 24:
                return socket.inet_ntop(socket.AF_INET6, raw[8:24]), int.from_bytes(raw[2:4], "big")
            case _:
                return None

    def mapped(self, address: int) -> str | None:
        """The file whose mapping holds the address; None where there is none."""
        for line in (self._procfs.read(f"{self._pid}/maps") or b"").split(b"\n"):
            words = line.split(None, 5)
            if len(words) < 6 or words[4] == b"0":
                continue
            begin, _, end = words[0].partition(b"-")
            if int(begin, 16) <= address < int(end, 16):
                return os.fsdecode(words[5])
        return None

    def mutex_owner(self, address: int) -> int | None:
        """The thread that holds the pthread mutex whose futex word stands at `address`; None where it looks like none that is held.

        glibc keeps the word (2: held and waited for), a count and the owner's thread id side by side.
        """
        raw = self.read(address, _MUTEX.size)
        if raw is None or len(raw) < _MUTEX.size:
            return None
        word, _, owner = _MUTEX.unpack(raw)
        return owner if word == 2 and owner > 0 else None
