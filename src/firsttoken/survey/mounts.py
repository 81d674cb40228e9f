"""Which file system a path lies on, from mountinfo: nothing of the file system itself is asked, so that a dead one is named and not met."""

from collections.abc import Sequence
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    point: str
    kind: str
    source: str

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


def _plain(escaped: str) -> str:
    return escaped.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
