"""The memory cgroup of a process, in version 1 and 2: where its files are, its limit, its page cache, its count of OOM kills.

A cgroup's path in /proc/PID/cgroup is relative to its hierarchy's root, while the mount that we see may show only a part of it (in a
container): mountinfo tells which part.
"""

from dataclasses import dataclass
from pathlib import Path

from firsttoken.hosts.procfs import Procfs

_NO_LIMIT = 1 << 60
"""version 1 writes a huge number for none"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCgroup:
    """`folder` and `top`: the cgroup and the highest ancestor that can be seen."""

    version: int
    folder: Path
    top: Path

    def limit(self) -> int | None:
        """Bytes: the tightest of its own and its ancestors' limits, None where there is none."""
        name = "memory.max" if self.version == 2 else "memory.limit_in_bytes"
        limits: list[int] = []
        folder = self.folder
        for _ in range(64):
            value = _number(_read(folder / name))
            if value is not None and value < _NO_LIMIT:
                limits.append(value)
            if folder == self.top or folder.parent == folder:
                break
            folder = folder.parent
        return min(limits, default=None)

    def page_cache(self) -> int | None:
        """Bytes of files' pages charged to it (whoever touched a page first pays for it)."""
        told = _pairs(_read(self.folder / "memory.stat"))
        return told.get("file") if self.version == 2 else told.get("total_cache", told.get("cache"))

    def used(self) -> int | None:
        """Bytes that are charged to it and cannot simply be dropped: without the pages of files."""
        charged = _number(_read(self.folder / ("memory.current" if self.version == 2 else "memory.usage_in_bytes")))
        return max(0, charged - (self.page_cache() or 0)) if charged is not None else None

    def oom_kills(self) -> int | None:
        """How many of its processes the OOM killer took since it was made; None where the kernel does not count them."""
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        return _pairs(_read(self.folder / name)).get("oom_kill")


def memory_cgroup(procfs: Procfs, pid: int) -> MemoryCgroup | None:
    """None where the process is gone, or no memory controller is mounted here."""
    paths = _paths((procfs.read(f"{pid}/cgroup", 1 << 16) or b"").decode("utf8", "replace"))
    mounts = _mounts((procfs.read("self/mountinfo", None) or b"").decode("utf8", "replace"))
    for version in (1, 2):
        path, mount = paths.get(version), mounts.get(version)
        if path is None or mount is None:
            continue
        root, point = mount
        inner = path if root == "/" else path[len(root) :] if path == root or path.startswith(root + "/") else "/"
        folder = point / inner.strip("/") if ".." not in inner.split("/") else point
        if version == 1 or (folder / "memory.events").exists() or (folder / "memory.max").exists():
            return MemoryCgroup(version=version, folder=folder, top=point)
    return None


def _paths(text: str) -> dict[int, str]:
    found: dict[int, str] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            found[1] = path
        elif number == "0" and not controllers and path:
            found[2] = path
    return found


def _mounts(text: str) -> dict[int, tuple[str, Path]]:
    """By version: root of what is mounted, mount point. The first mount of each counts."""
    found: dict[int, tuple[str, Path]] = {}
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        before, after = left.split(" "), right.split(" ")
        if len(before) < 5 or not right:
            continue
        if after[0] == "cgroup2":
            found.setdefault(2, (_plain(before[3]), Path(_plain(before[4]))))
        elif after[0] == "cgroup" and "memory" in after[-1].split(","):
            found.setdefault(1, (_plain(before[3]), Path(_plain(before[4]))))
    return found


def _plain(escaped: str) -> str:
    return escaped.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(1 << 16).decode("utf8", "replace")
    except (OSError, ValueError):
        return ""


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isdecimal() and len(text) <= 20 else None


def _pairs(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        number = _number(value)
        if number is not None:
            found[name] = number
    return found
