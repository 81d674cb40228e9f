"""Where the output of a server that somebody else started can still be read: a file, a journal, a container's log; else the reason why not.

Its standard output tells: a regular file is read where it lies (through /proc, so a deleted or a container's file counts too), a pipe may
have a reader that writes a file (`… | tee server.log`), a socket is a journal's, and a container's runtime keeps what comes out of it.
"""

import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from firsttoken.hosts.procfs import Procfs
from firsttoken.session.attaching.servers import Server

_WRITES = os.O_WRONLY | os.O_RDWR


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """`path` is what is opened, `shown` what people know it as. `follow_name`: a new file under the same name is gone over to."""

    path: str
    shown: str
    follow_name: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCommand:
    """A helper that prints the log, and what comes, to its standard output."""

    argv: tuple[str, ...]

    @property
    def shown(self) -> str:
        return " ".join(self.argv)


LogSource = LogFile | LogCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`missing`: why there is no log, as a sentence's part; None where there is one."""

    sources: tuple[LogSource, ...] = ()
    missing: str | None = None


def given(path: str) -> Found:
    """OSError where the file cannot be read."""
    with open(path, "rb"):
        pass
    return Found(sources=(LogFile(path=os.path.abspath(path), shown=path, follow_name=True),))


def find_log(
    server: Server, *, recorded: Path | None = None, procfs: Procfs | None = None, which: Callable[[str], str | None] = shutil.which
) -> Found:
    """`recorded`: the log that a run of ours keeps of it. Standard output comes first, then standard error where that goes elsewhere."""
    procfs = procfs or Procfs()
    pid = server.process.pid
    if recorded is not None and recorded.exists():
        return Found(sources=(LogFile(path=str(recorded), shown=str(recorded)),))
    links = {fd: link for fd in (1, 2) if (link := procfs.link(f"{pid}/fd/{fd}")) is not None}
    if not links and procfs.hides_files(pid):
        return Found(missing="its open files may not be read (another user's process?): give --log FILE")
    files = _files(procfs, pid, links)
    if files:
        return Found(sources=files)
    beside = [file for link in links.values() if link.startswith("pipe:") for file in _readers_files(procfs, pid, link)]
    if beside:
        return Found(sources=tuple(dict.fromkeys(beside)))
    command = _command(server, links, which)
    if command is not None:
        return Found(sources=(command,))
    return Found(
        missing=f"its output goes to {_where(links)}, where it cannot be read from outside: give --log FILE if it is kept anywhere"
    )


def _files(procfs: Procfs, pid: int, links: dict[int, str]) -> tuple[LogFile, ...]:
    found: dict[tuple[int, int], LogFile] = {}
    for fd, link in links.items():
        path = f"{procfs.root}/{pid}/fd/{fd}"
        try:
            told = os.stat(path)
        except OSError:
            continue
        if stat.S_ISREG(told.st_mode):
            found.setdefault((told.st_dev, told.st_ino), LogFile(path=path, shown=link))
    return tuple(found.values())


def _readers_files(procfs: Procfs, pid: int, pipe: str) -> list[LogFile]:
    """The one file that a process writes whose standard input is this pipe."""
    for other in procfs.pids():
        if other == pid or procfs.link(f"{other}/fd/0") != pipe:
            continue
        written = []
        for fd in procfs.fds(other):
            path = f"{procfs.root}/{other}/fd/{fd}"
            if fd > 0 and _is_file(path) and _flags(procfs, other, fd) & _WRITES:
                written.append(LogFile(path=path, shown=procfs.link(f"{other}/fd/{fd}") or path))
        if len(written) == 1:
            return written
    return []


def _command(server: Server, links: dict[int, str], which: Callable[[str], str | None]) -> LogCommand | None:
    if server.container is not None:
        client, name = server.container
        return LogCommand(argv=(client, "logs", "--follow", "--timestamps", name)) if which(client) else None
    if server.unit is not None and which("journalctl") and (not links or any(link.startswith("socket:") for link in links.values())):
        unit, users = server.unit
        since = f"--since=-{server.age_s + 1:.0f}s"
        whose = ("--user",) if users else ()
        return LogCommand(argv=("journalctl", *whose, "-u", unit, "--follow", "--no-tail", "--utc", "-q", "-o", "short", since))
    return None


def _where(links: dict[int, str]) -> str:
    target = links.get(1) or links.get(2)
    if target is None:
        return "nowhere that can be seen"
    if target.startswith("pipe:"):
        return "a pipe that another process reads"
    if target.startswith("socket:"):
        return "a socket that another process reads"
    return "a terminal" if target.startswith(("/dev/pts/", "/dev/tty")) else target


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def _flags(procfs: Procfs, pid: int, fd: int) -> int:
    for line in (procfs.read(f"{pid}/fdinfo/{fd}", 4096) or b"").split(b"\n"):
        if line.startswith(b"flags:"):
            try:
                return int(line.split()[1], 8)
            except (ValueError, IndexError):
                return 0
    return 0
