"""A /proc in a folder, with just what the readers look at."""

import shutil
from pathlib import Path

from firsttoken.hosts.procfs import Procfs
from firsttoken.model.process import ProcessKey

NODE = "here"


class FakeProc:
    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.procfs = Procfs(root)

    def write(self, name: str, content: str | bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    def link(self, name: str, target: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    def process(
        self,
        pid: int,
        ppid: int = 1,
        start: int = 1000,
        title: str = "python",
        environ: bytes = b"HOME=/\0",
        state: str = "S",
        comm: str = "python",
        flags: int = 0,
        threads: int = 1,
        status: int = 0,
        utime: int = 0,
        cutime: int = 0,
        minflt: int = 0,
        majflt: int = 0,
        rss: int = 0,
    ) -> ProcessKey:
        rest = [state, ppid, pid, pid, 0, -1, flags, minflt, 0, majflt, 0, utime, 0, cutime, 0, 20, 0, threads, 0, start, 4096, rss]
        rest += [0] * 27 + [status]
        line = f"{pid} ({comm}) " + " ".join(map(str, rest)) + "\n"
        self.write(f"{pid}/stat", line)
        self.write(f"{pid}/task/{pid}/stat", line)
        self.write(f"{pid}/cmdline", title.replace(" ", "\0") + "\0")
        self.write(f"{pid}/environ", environ)
        (self.root / f"{pid}/fd").mkdir(exist_ok=True)
        self.link(f"{pid}/exe", "/usr/bin/python3")
        return ProcessKey(NODE, pid, start)

    def io(self, pid: int, rchar: int = 0, wchar: int = 0, read_bytes: int = 0) -> None:
        self.write(f"{pid}/io", f"rchar: {rchar}\nwchar: {wchar}\nsyscr: 1\nsyscw: 1\nread_bytes: {read_bytes}\nwrite_bytes: 0\n")

    def end(self, pid: int) -> None:
        shutil.rmtree(self.root / str(pid))


class Clock:
    """Time that stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now
