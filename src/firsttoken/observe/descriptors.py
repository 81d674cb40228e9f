"""What an open descriptor of another process leads to: file, FIFO, pipe, socket, terminal, pidfd, epoll set…

The link in /proc/PID/fd names it; fdinfo tells the rest (inode, mount, how it was opened, what an epoll set watches, whose pidfd it is)
without a stat, which would hang on a dead network mount. Inode and device as told by fdinfo and mountinfo are the ones that /proc/locks
has, where stat's may differ (overlay, btrfs).
"""

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from firsttoken.hosts.procfs import Procfs

_INODE = re.compile(r"^(pipe|socket):\[(\d{1,20})\]$")
_ANON = re.compile(r"^anon_inode:\[?([a-z_-]+)\]?$")
_TERMINAL = re.compile(r"^(?:/dev/pts/\d+|/dev/tty\w*|/dev/console)$")
_OCTAL = re.compile(r"\\([0-7]{3})")
REMOTE = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "ceph",
        "lustre",
        "beegfs",
        "gpfs",
        "fuse",
        "9p",
        "virtiofs",
        "afs",
        "orangefs",
        "ocfs2",
        "gfs2",
        "wekafs",
    }
)
"""types of file systems that somebody else than this machine's disks answers for"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """`device` as in /proc/locks: `major:minor`, hexadecimal."""

    device: str
    point: str
    fs_type: str

    @property
    def remote(self) -> bool:
        return self.fs_type.split(".")[0] in REMOTE


@dataclass(frozen=True, slots=True, kw_only=True)
class FdInfo:
    """/proc/PID/fdinfo/N. `mode`: 0 reads, 1 writes, 2 both. `locks`: its rows in the form of /proc/locks. `watched`: of an epoll set."""

    mode: int = 0
    inode: int | None = None
    mount: int | None = None
    pid: int | None = None
    locks: tuple[str, ...] = ()
    watched: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """`kind`: pipe, fifo, socket, file, device, terminal, or an anonymous one's (eventpoll, eventfd, pidfd, timerfd, signalfd…)."""

    fd: int
    link: str
    kind: str
    inode: int | None = None
    mode: int = 0
    mount: Mount | None = None
    pid: int | None = None
    watched: tuple[int, ...] = ()

    @property
    def identity(self) -> tuple[str, int] | None:
        """Device and inode as /proc/locks tells them."""
        return (self.mount.device, self.inode) if self.mount is not None and self.inode is not None else None


class Descriptors:
    """Of one process, each read when it is asked for."""

    def __init__(self, procfs: Procfs, pid: int) -> None:
        self._procfs = procfs
        self._pid = pid
        self._known: dict[int, Descriptor | None] = {}

    def get(self, fd: int, *, wchan: str | None = None, may_stat: bool = True) -> Descriptor | None:
        """None where there is no such descriptor, or it may not be read. `wchan` of a thread that is blocked on it tells a FIFO from a
        file; without it a stat does, but never on a file system that may not answer."""
        if fd not in self._known:
            self._known[fd] = self._read(fd, wchan, may_stat)
        return self._known[fd]

    def links(self) -> dict[int, str]:
        return self._procfs.fds(self._pid)

    @cached_property
    def mounts(self) -> Mapping[int, Mount]:
        return parse_mounts(self._procfs.read(f"{self._pid}/mountinfo"))

    def mount_of(self, path: str) -> Mount | None:
        """By the longest mount point that the path lies below."""
        found: Mount | None = None
        for mount in self.mounts.values():
            below = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
            if below and (found is None or len(mount.point) >= len(found.point)):
                found = mount
        return found

    def _read(self, fd: int, wchan: str | None, may_stat: bool) -> Descriptor | None:
        link = self._procfs.link(f"{self._pid}/fd/{fd}")
        if link is None:
            return None
        info = parse_fdinfo(self._procfs.read(f"{self._pid}/fdinfo/{fd}"))
        match = _INODE.match(link)
        if match is not None:
            return Descriptor(fd=fd, link=link, kind=match[1], inode=int(match[2]), mode=info.mode)
        anonymous = _ANON.match(link)
        if anonymous is not None:
            return Descriptor(fd=fd, link=link, kind=anonymous[1], mode=info.mode, pid=info.pid, watched=info.watched)
        mount = self.mounts.get(info.mount) if info.mount is not None else None
        kind = self._kind_of_path(fd, link, mount, wchan, may_stat)
        return Descriptor(fd=fd, link=link, kind=kind, inode=info.inode, mode=info.mode, mount=mount)

    def _kind_of_path(self, fd: int, link: str, mount: Mount | None, wchan: str | None, may_stat: bool) -> str:
        if _TERMINAL.match(link):
            return "terminal"
        if link.startswith("/dev/") and not link.startswith("/dev/shm/"):
            return "device"
        if wchan is not None and ("pipe" in wchan or "fifo" in wchan):
            return "fifo"
        if may_stat and mount is not None and not mount.remote:
            try:
                return "fifo" if stat.S_ISFIFO(os.stat(self._procfs.root / f"{self._pid}/fd/{fd}").st_mode) else "file"
            except (OSError, ValueError):
                pass
        return "file"


def parse_fdinfo(raw: bytes | None) -> FdInfo:
    """Never raises; what is missing keeps its default."""
    numbers: dict[str, int] = {}
    locks: list[str] = []
    watched: list[int] = []
    for line in (raw or b"").decode("utf8", "replace").split("\n"):
        name, _, value = line.partition(":")
        value = value.strip()
        if name == "lock":
            locks.append(value)
        elif name == "tfd":
            word = value.split(" ", 1)[0]
            if word.isdecimal() and len(word) < 10:
                watched.append(int(word))
        elif name == "flags":
            numbers["flags"] = int(value[-1:], 8) & 3 if value[-1:] in tuple("01234567") else 0
        elif name in ("ino", "mnt_id", "Pid") and value.isdecimal() and len(value) <= 20:
            numbers[name] = int(value)
    return FdInfo(
        mode=numbers.get("flags", 0),
        inode=numbers.get("ino"),
        mount=numbers.get("mnt_id"),
        pid=numbers.get("Pid"),
        locks=tuple(locks),
        watched=tuple(watched),
    )


def parse_mounts(raw: bytes | None) -> dict[int, Mount]:
    """/proc/PID/mountinfo by mount id. Lines that cannot be read are left out."""
    found: dict[int, Mount] = {}
    for line in (raw or b"").decode("utf8", "replace").split("\n"):
        left, _, right = line.partition(" - ")
        before, after = left.split(" "), right.split(" ")
        if len(before) < 5 or not right or not before[0].isdecimal() or len(before[0]) > 15:
            continue
        major, _, minor = before[2].partition(":")
        if major.isdecimal() and minor.isdecimal() and len(before[2]) < 20:
            device = f"{int(major):02x}:{int(minor):02x}"
            point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), before[4])
            found[int(before[0])] = Mount(device=device, point=point, fs_type=after[0])
    return found
