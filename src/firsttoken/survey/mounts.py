"""Which file system a path lies on, from mountinfo: nothing of the file system itself is asked, so that a dead one is named and not met."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_NETWORK = (
    "nfs",
    "cifs",
    "smb",
    "ceph",
    "lustre",
    "gpfs",
    "beegfs",
    "9p",
    "glusterfs",
    "afs",
    "wekafs",
    "orangefs",
    "ocfs2",
    "gfs2",
    "panfs",
)
_NETWORK_FUSE = (
    "s3",
    "gcs",
    "goofys",
    "juicefs",
    "sshfs",
    "rclone",
    "blobfuse",
    "ossfs",
    "cosfs",
    "alluxio",
    "ceph",
    "gluster",
    "mount-s3",
    "geesefs",
)


_HERE = frozenset(
    {
        "bcachefs", "bpf", "btrfs", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs", "erofs",
        "exfat", "ext2", "ext3", "ext4", "f2fs", "fusectl", "hugetlbfs", "iso9660", "jfs", "mqueue", "nsfs", "overlay", "aufs", "proc",
        "pstore", "ramfs", "reiserfs", "rootfs", "securityfs", "selinuxfs", "shiftfs", "squashfs", "sysfs", "tmpfs", "tracefs", "udf",
        "vfat", "xfs", "zfs", "binfmt_misc", "fuseblk",
    }
)  # fmt: skip
_MOST_LINKS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    point: str
    kind: str
    source: str

    @property
    def here(self) -> bool:
        """Served by this kernel alone. Any other one (network storage, a program, what is not known) may be asked and never answer."""
        return self.kind in _HERE

    @property
    def words(self) -> str:
        """`/mnt (nfs from server:/models)`"""
        return f"{self.point} ({self.kind} from {self.source})"

    @property
    def network(self) -> bool:
        kind = self.kind.lower()
        if kind.startswith("fuse"):
            return any(name in f"{kind} {self.source.lower()}" for name in _NETWORK_FUSE)
        return kind.startswith(_NETWORK)


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """/proc/PID/mountinfo, in the order of mounting. Lines that cannot be read are left out."""
    found = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        before, after = left.split(" "), right.split(" ")
        if len(before) >= 5 and len(after) >= 2:
            found.append(Mount(point=_plain(before[4]), kind=after[0], source=_plain(after[1])))
    return tuple(found)


def mount_of(path: str, mounts: Sequence[Mount]) -> Mount | None:
    """The one that holds an absolute path without links; of several at one point the last one mounted."""
    best: Mount | None = None
    for mount in mounts:
        point = mount.point.rstrip("/")
        if (path == point or path.startswith(point + "/")) and (best is None or len(point) >= len(best.point.rstrip("/"))):
            best = mount
    return best


def mount_behind(path: str, mounts: Sequence[Mount], read_link: Callable[[str], str] = os.readlink) -> Mount | None:
    """The one that an absolute path leads to, links followed. A link is read only where it lies on a mount that is `here`: the first one
    on the way that is not is the answer, whatever comes behind it."""
    at, ahead, links = "/", path.split("/")[::-1], 0
    while ahead:
        name = ahead.pop()
        if name in ("", "."):
            continue
        if name == "..":
            at = os.path.dirname(at)
            continue
        below = os.path.join(at, name)
        mount = mount_of(below, mounts)
        if mount is not None and not mount.here:
            return mount
        try:
            target = read_link(below) if links < _MOST_LINKS else ""
        except (OSError, ValueError):  # no link, or nothing there: then the name alone tells
            target = ""
        if target:
            links += 1
            at = "/" if target.startswith("/") else at
            ahead += target.split("/")[::-1]
        else:
            at = below
    return mount_of(at, mounts)


def _plain(escaped: str) -> str:
    return escaped.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
