"""A control group of the run's own, beside the keeper: for listing and killing only, never for limits.

Version 2 where it can be written, else the freezer or pids hierarchy of version 1, else none. A new group without controllers of its own
changes nothing for the server: it is accounted and limited where the keeper is. It lists processes that left the tree and its environment,
also after the keeper's death, so its path is recorded. Source: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1.
"""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

PREFIX = "firsttoken-"
_V1_CHOICES = ("freezer", "pids")


@dataclass(frozen=True, slots=True)
class Cgroup:
    path: Path

    def pids(self) -> tuple[int, ...]:
        """Processes in it (zombies may be among them); empty where it is gone."""
        try:
            return tuple(int(line) for line in (self.path / "cgroup.procs").read_bytes().split())
        except (OSError, ValueError):
            return ()

    def open_procs(self) -> int | None:
        """A descriptor to which a process writes `0` to move itself in."""
        try:
            return os.open(self.path / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            return None

    def kill(self) -> bool:
        """SIGKILL to all of it in one step, where the kernel can (5.14, version 2)."""
        return _write(self.path / "cgroup.kill", b"1")

    def thaw(self) -> None:
        """A frozen process of version 1 does not die; ours are never frozen by us, but somebody else may have."""
        if (self.path / "freezer.state").exists():
            _write(self.path / "freezer.state", b"THAWED")
        elif (self.path / "cgroup.freeze").exists():
            _write(self.path / "cgroup.freeze", b"0")

    def remove(self, seconds: float = 2.0) -> bool:
        """Removes it with the groups that were made inside; the kernel may need a moment after the last process."""
        deadline = time.monotonic() + seconds
        while True:
            for inner, _, _ in os.walk(self.path, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(inner)
            if not self.path.exists():
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)


def create(name: str, *, mountinfo: str | None = None, membership: str | None = None) -> Cgroup | None:
    """A new group `firsttoken-<name>` beside this process; None where none can be made. The texts are those of /proc/self, for tests."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
        own = Path("/proc/self/cgroup").read_text() if membership is None else membership
    except (OSError, UnicodeDecodeError):
        return None
    for parent in _parents(mounts, own):
        path = parent / f"{PREFIX}{name}"
        try:
            path.mkdir(mode=0o755, exist_ok=True)
        except OSError:
            continue
        if os.access(path / "cgroup.procs", os.W_OK):
            return Cgroup(path)
        with contextlib.suppress(OSError):
            path.rmdir()
    return None


def recorded(path: str | None) -> Cgroup | None:
    """The group that a record names, if it is there and has one of our names."""
    if path is None or not Path(path).name.startswith(PREFIX) or not (Path(path) / "cgroup.procs").exists():
        return None
    return Cgroup(Path(path))


def _parents(mountinfo: str, membership: str) -> list[Path]:
    """The groups of this process in which one for the run may be made, best first."""
    own: dict[str, str] = {}
    for line in membership.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                own[controller] = parts[2]
    found: list[tuple[int, Path]] = []
    for line in mountinfo.splitlines():
        left, dash, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if not dash or len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2" and "" in own:
            found.append((0, _below(fields[4], fields[3], own[""])))
        elif kind[0] == "cgroup":
            for rank, controller in enumerate(_V1_CHOICES, 1):
                if controller in kind[2].split(",") and controller in own:
                    found.append((rank, _below(fields[4], fields[3], own[controller])))
    return [path for _, path in sorted(found)]


def _below(mount: str, root: str, group: str) -> Path:
    """Where a group is seen: mounts inside containers show a part of the hierarchy, `root`."""
    inner = group[len(root) :] if root != "/" and (group == root or group.startswith(root + "/")) else group
    return Path(_unescape(mount)) / inner.lstrip("/")


def _unescape(text: str) -> str:
    """mountinfo writes blanks as octal escapes."""
    return text.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")


def _write(path: Path, data: bytes) -> bool:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(fd, data)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
