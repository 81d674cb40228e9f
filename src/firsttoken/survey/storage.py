"""Where a file's bytes come from: the mount, the block device behind it, its read-ahead, and how fast it reads in sequence.

Key insight: mountinfo and sysfs name the file system without asking it, so that a dead one is named and not met; only `direct_rate` reads
the file, past the page cache (O_DIRECT), so that it measures the device and leaves no trace in memory. Several reads at a time: one alone
waits for each answer, which a drive or a network file system that could give ten times as much shows as slow.
"""

import contextlib
import mmap
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from firsttoken.survey.mounts import Mount, mount_of, parse_mounts

_PIECE = 4 << 20
_READERS = 4
_MOST_READ = 1 << 30
_MEMORY = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")
_DEFAULT_READ_AHEAD = 128 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """`device`: the block device (`nvme0n1`), None where there is none (network, memory). `read_ahead` in bytes.

    `key` names it for remembering: the same after a reboot, another one on another machine."""

    point: str
    kind: str
    source: str
    network: bool = False
    memory: bool = False
    device: str | None = None
    rotational: bool | None = None
    read_ahead: int = _DEFAULT_READ_AHEAD

    @property
    def key(self) -> str:
        return f"{os.uname().nodename} {self.device or self.source} {self.kind}"

    @property
    def words(self) -> str:
        """`/mnt (nfs from server:/models)`"""
        return f"{self.point} ({self.kind}{f' from {self.source}' if self.network else f' on {self.device}' if self.device else ''})"


def mount_for(path: str, root: str = "/") -> Mount | None:
    """The mount that an absolute path without links lies on, by its name alone: nothing is asked of the file system."""
    return mount_of(path, parse_mounts(_text(os.path.join(root, "proc/self/mountinfo"), 1 << 20)))


def storage_of(path: str, number: int, root: str = "/") -> Storage | None:
    """`path`: absolute, without links; `number`: its `st_dev`. `root` of /proc and /sys."""
    mount = mount_for(path, root)
    if mount is None:
        return None
    major_minor = f"{os.major(number)}:{os.minor(number)}"
    device = _device(os.path.join(root, "sys/dev/block", major_minor))
    ahead = _number(os.path.join(root, "sys/class/bdi", major_minor, "read_ahead_kb"))
    rotational = _number(os.path.join(root, "sys/block", device, "queue/rotational")) if device else None
    return Storage(
        point=mount.point,
        kind=mount.kind,
        source=mount.source,
        network=mount.network,
        memory=mount.kind in _MEMORY,
        device=device,
        rotational=None if rotational is None else bool(rotational),
        read_ahead=_DEFAULT_READ_AHEAD if ahead is None else ahead << 10,
    )


def direct_rate(paths: Sequence[str], *, seconds: float = 0.6, readers: int = _READERS, piece: int = _PIECE) -> float:
    """Bytes a second of these files, read in turn past the page cache for about so long. OSError where the file system takes no direct
    reads, or a file none; blocks where it hangs."""
    fds: list[int] = []
    try:
        for path in paths:  # one at a time: those that are open are closed whatever comes
            fds.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT))  # noqa: PERF401
        pieces = iter([(fd, at) for fd in fds for at in range(0, os.fstat(fd).st_size - piece + 1, piece)][: _MOST_READ // piece])
        lock, read, failed = threading.Lock(), [0], list[OSError]()
        until = time.perf_counter() + seconds

        def work() -> None:
            with mmap.mmap(-1, piece) as buffer:
                while time.perf_counter() < until and not failed:
                    with lock:
                        fd, at = next(pieces, (-1, 0))
                    if fd < 0:
                        return
                    try:
                        got = os.preadv(fd, [buffer], at)
                    except OSError as error:
                        failed.append(error)
                        return
                    with lock:
                        read[0] += got

        threads = [threading.Thread(target=work, daemon=True) for _ in range(readers)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - began
        if failed:
            raise failed[0]
        if not read[0]:
            raise OSError("no file is long enough to measure by")
        return read[0] / took
    finally:
        for fd in fds:
            with contextlib.suppress(OSError):
                os.close(fd)


def _device(link: str) -> str | None:
    """The whole disk of a partition; what lies below a mapped or RAID device is not looked for: its own rate is what counts."""
    try:
        real = os.path.realpath(link, strict=True)
    except OSError:
        return None
    if os.path.exists(os.path.join(real, "partition")):
        real = os.path.dirname(real)
    return os.path.basename(real)


def _number(path: str) -> int | None:
    text = _text(path, 64).strip()
    return int(text) if text.isdecimal() else None


def _text(path: str, most: int) -> str:
    try:
        with open(path, encoding="utf8", errors="surrogateescape") as file:
            return file.read(most)
    except OSError:
        return ""
