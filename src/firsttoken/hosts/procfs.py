"""Reading /proc, cheaply and without ever raising on a process that is gone.

A process may vanish between any two reads, so every reader answers None (or something empty) instead of raising. The root is a
parameter: a test builds a fake one in a folder. Costs on one slow core: `stat` about 15 µs, `pids` 3 µs a process.

**Some files can block.** `cmdline`, `environ`, `maps` and `smaps*` take the target's mmap lock: a reader hangs as long as a stuck thread of
the target holds it for writing. `stat`, `io`, `status`, `wchan`, `fd` and `children` do not. Callers that must never hang (the keeper's
loop) read only the latter, or read the former in a thread that they can leave behind.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from firsttoken.model.process import ProcessKey

_GONE = (OSError, ValueError)
_CHUNK = 1 << 16
_EXITING = 0x00000004
"""PF_EXITING among a process's flags"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    """/proc/PID/stat (or of one thread). CPU times and `start` are clock ticks (USER_HZ); `start` counts from boot."""

    pid: int
    comm: str
    state: str
    ppid: int
    pgid: int
    sid: int
    tty: int
    flags: int
    minor_faults: int
    major_faults: int
    utime: int
    stime: int
    child_utime: int
    child_stime: int
    threads: int
    start: int
    rss_pages: int
    exit_status: int = 0
    """of a zombie, as waitpid gives it; 0 where it may not be seen"""

    @property
    def dead(self) -> bool:
        """A zombie, or gone but for its entry: it cannot be killed. One whose first thread alone has ended (Z with threads) lives."""
        return self.state in "ZXx" and self.threads <= 1


def parse_stat(raw: bytes) -> Stat | None:
    """None where `raw` is not a whole stat line. `comm` may hold blanks, parentheses and newlines: the last `)` ends it."""
    opening, closing = raw.find(b"("), raw.rfind(b")")
    if opening < 1 or closing < opening:
        return None
    rest = raw[closing + 1 :].split()
    if len(rest) < 22:
        return None
    try:
        return Stat(
            pid=int(raw[:opening]),
            comm=raw[opening + 1 : closing].decode("utf8", "replace"),
            state=rest[0].decode("ascii", "replace"),
            ppid=int(rest[1]),
            pgid=int(rest[2]),
            sid=int(rest[3]),
            tty=int(rest[4]),
            flags=int(rest[6]),
            minor_faults=int(rest[7]),
            major_faults=int(rest[9]),
            utime=int(rest[11]),
            stime=int(rest[12]),
            child_utime=int(rest[13]),
            child_stime=int(rest[14]),
            threads=int(rest[17]),
            start=int(rest[19]),
            rss_pages=int(rest[21]),
            exit_status=int(rest[49]) if len(rest) > 49 else 0,
        )
    except ValueError:
        return None


class Procfs:
    """Readers of one /proc. Holds no state but its root: safe in threads, and after a fork."""

    __slots__ = ("_prefix", "root")

    def __init__(self, root: Path | str = "/proc") -> None:
        self.root = Path(root)
        self._prefix = os.fspath(root).rstrip("/") + "/"

    def read(self, name: str, limit: int | None = None) -> bytes | None:
        """A file below the root, whole or its first `limit` bytes; None where it is gone, forbidden or cannot be read."""
        try:
            fd = os.open(self._prefix + name, os.O_RDONLY | os.O_CLOEXEC)
        except _GONE:
            return None
        try:
            first = os.read(fd, _CHUNK if limit is None else limit)
            if limit is not None or not first:
                return first
            parts = [first]
            while more := os.read(fd, _CHUNK):
                parts.append(more)
            return b"".join(parts)
        except _GONE:
            return None
        finally:
            os.close(fd)

    def chunks(self, name: str) -> Iterator[bytes]:
        """A file below the root, as the kernel hands it out (about a page of whole lines a read): for tables that may be left early."""
        try:
            fd = os.open(self._prefix + name, os.O_RDONLY | os.O_CLOEXEC)
        except _GONE:
            return
        try:
            while chunk := os.read(fd, _CHUNK):
                yield chunk
        except _GONE:
            return
        finally:
            os.close(fd)

    def names(self, folder: str) -> tuple[str, ...]:
        """Names in a folder below the root, empty where it cannot be listed."""
        try:
            return tuple(os.listdir(self._prefix + folder))
        except _GONE:
            return ()

    def link(self, name: str) -> str | None:
        try:
            return os.readlink(self._prefix + name)
        except _GONE:
            return None

    def pids(self) -> tuple[int, ...]:
        return _numbers(self.names(""))

    def stat(self, pid: int) -> Stat | None:
        raw = self.read(f"{pid}/stat", 4096)
        return None if raw is None else parse_stat(raw)

    def threads(self, pid: int) -> tuple[int, ...]:
        return _numbers(self.names(f"{pid}/task"))

    def thread_stat(self, pid: int, tid: int) -> Stat | None:
        raw = self.read(f"{pid}/task/{tid}/stat", 4096)
        return None if raw is None else parse_stat(raw)

    def cmdline(self, pid: int) -> tuple[str, ...]:
        """The arguments (or the title that a process gave itself, as one); empty for kernel threads, zombies and the gone. May block."""
        raw = self.read(f"{pid}/cmdline", 1 << 17)
        if not raw:
            return ()
        return tuple(part.decode("utf8", "replace") for part in raw.rstrip(b"\0").split(b"\0"))

    def environ(self, pid: int) -> bytes | None:
        """The environment at exec, entries ended by NUL. May block."""
        return self.read(f"{pid}/environ")

    def environ_has(self, pid: int, mark: bytes) -> bool:
        """Whether `mark` (`NAME=value`) is one whole entry of the process's environment. May block."""
        raw = self.environ(pid)
        return raw is not None and b"\0" + mark + b"\0" in b"\0" + raw + b"\0"

    def fds(self, pid: int) -> dict[int, str]:
        """Open descriptors and what they lead to (`/path`, `socket:[inode]`, `pipe:[inode]`…)."""
        found: dict[int, str] = {}
        for name in self.names(f"{pid}/fd"):
            target = self.link(f"{pid}/fd/{name}")
            if target is not None and name.isdigit():
                found[int(name)] = target
        return found

    def hides_files(self, pid: int) -> bool:
        """Whether the process is alive but its open files may not be read (another user's); a kernel thread's too."""
        if self.names(f"{pid}/fd") or self.link(f"{pid}/exe") is not None:
            return False
        stat = self.stat(pid)  # read last: one that is ending loses its files first
        return stat is not None and not stat.dead and not stat.flags & _EXITING

    def children(self, pid: int) -> tuple[int, ...] | None:
        """Direct children, zombies too; None where the process is gone or the kernel does not list children (then use `family`)."""
        found: list[int] = []
        seen = False
        for tid in self.names(f"{pid}/task"):
            raw = self.read(f"{pid}/task/{tid}/children")
            if raw is not None:
                seen = True
                found.extend(int(word) for word in raw.split() if word.isdigit())
        return tuple(found) if seen else None

    def stats(self) -> dict[int, Stat]:
        """One sweep over all processes: 20 µs each."""
        found: dict[int, Stat] = {}
        for pid in self.pids():
            stat = self.stat(pid)
            if stat is not None:
                found[pid] = stat
        return found

    def family(self, roots: Iterable[int], *, stats: dict[int, Stat] | None = None) -> dict[int, Stat]:
        """All descendants of `roots` (these left out) by a walk over parents, from one sweep or the given one; zombies are in."""
        known = self.stats() if stats is None else stats
        below: dict[int, list[int]] = {}
        for pid, stat in known.items():
            below.setdefault(stat.ppid, []).append(pid)
        found: dict[int, Stat] = {}
        tops = set(roots)
        todo = list(tops)
        while todo:
            for pid in below.get(todo.pop(), ()):
                if pid not in found and pid not in tops:
                    found[pid] = known[pid]
                    todo.append(pid)
        return found

    def alive(self, pid: int, start: int) -> bool:
        """Whether the process with that key still runs: not gone, not replaced by another with its pid, not a zombie."""
        stat = self.stat(pid)
        return stat is not None and stat.start == start and not stat.dead

    def key(self, node: str, pid: int) -> ProcessKey | None:
        stat = self.stat(pid)
        return None if stat is None else ProcessKey(node, pid, stat.start)

    def boot_id(self) -> str:
        """Tells one boot from the next: pids and start ticks mean nothing across it. Empty where it cannot be read."""
        return (self.read("sys/kernel/random/boot_id", 64) or b"").decode("ascii", "replace").strip()


def _numbers(names: Iterable[str]) -> tuple[int, ...]:
    return tuple(int(name) for name in names if name.isdigit())
