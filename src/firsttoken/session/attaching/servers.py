"""Servers that somebody else started: the process that a pid, a port or nothing at all leads to.

An engine is a tree, and any of its processes may be named: a rank, a worker, the one that listens. The server is the topmost ancestor that
is still the engine, by its command or by the title that it gave itself; a shell or a supervisor above it is not.
"""

import os
import pwd
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from firsttoken.hosts.procfs import Procfs, Stat
from firsttoken.knowledge.profile import Profile
from firsttoken.model.process import ProcessKey
from firsttoken.model.redact import mask_argv
from firsttoken.observe.errands import Errands
from firsttoken.observe.socket_tables import tcp_from_kernel, tcp_from_proc
from firsttoken.plan.recognise import by_output, start

_PATIENCE = 2.0
"""Seconds for reading the commands of all processes; one whose memory map is locked is passed over."""
_KERNEL_THREAD = 0x00200000
_SOCKET = re.compile(r"socket:\[(\d+)\]$")
_CONTAINER = re.compile(r"(?:/|-)([0-9a-f]{64})(?:\.scope)?(?:/|$)")
_RUNTIMES = (("libpod", "podman"), ("docker", "docker"), ("cri-containerd", "crictl"), ("crio", "crictl"), ("kubepods", "crictl"))
_UNIT = re.compile(r"/([\w@.:\\-]+\.service)(?:/|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """`argv` may hold secrets: show `command`. `user` None: its owner has no name here. `age_s` since it began. `env` is empty where it may
    not be read (`hidden`). `mark`: the firsttoken run that it belongs to. `managed`: a service manager began its session, and not a shell
    in a service that only happens to be above it (cron, sshd).
    """

    process: ProcessKey
    argv: tuple[str, ...]
    engine: str | None
    uid: int
    user: str | None
    age_s: float
    cwd: str = "/"
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    hidden: bool = False
    managed: bool = False
    cgroups: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        return " ".join(mask_argv(self.argv))

    @property
    def mark(self) -> str | None:
        return self.env.get("FIRSTTOKEN_RUN")

    @property
    def container(self) -> tuple[str, str] | None:
        """The client that stops it, and the container's id."""
        for path in self.cgroups:
            found = _CONTAINER.search(path)
            if found is not None:
                return next((client for word, client in _RUNTIMES if word in path), "docker"), found[1]
        return None

    @property
    def unit(self) -> tuple[str, bool] | None:
        """The innermost systemd service that it is, and whether it is one of the user's own manager."""
        for path in self.cgroups if self.managed else ():
            units = [name for name in _UNIT.findall(path) if not name.startswith("user@")]
            if units:
                return units[-1], "/user@" in path
        return None

    def how_to_stop(self) -> str:
        """What the user can type; nothing here is ever done by firsttoken."""
        if self.mark:
            return f"firsttoken stop {self.mark}"
        if self.container is not None:
            client, name = self.container
            return f"{client} stop {name[:12]}"
        if self.unit is not None:
            unit, users = self.unit
            return f"systemctl {'--user ' if users else ''}stop {unit}"
        return f"kill {self.process.pid}"


class Finder:
    """Looks at the processes of one machine once; ask several things of one look."""

    def __init__(self, profiles: Mapping[str, Profile], procfs: Procfs | None = None) -> None:
        self._profiles = profiles
        self._procfs = procfs or Procfs()
        self._stats: dict[int, Stat] = {pid: stat for pid, stat in self._procfs.stats().items() if not stat.dead}
        self._errands = Errands("firsttoken-attach")
        pids = [pid for pid, stat in self._stats.items() if not stat.flags & _KERNEL_THREAD]
        self._argv = self._errands.each(self._procfs.cmdline, pids, seconds=_PATIENCE)

    def alive(self, pid: int) -> bool:
        return pid in self._stats

    def found(self) -> list[Server]:
        """All servers of known engines, oldest first."""
        roots = {self.root_of(pid) for pid in self._stats if self._engine(pid) is not None}
        return sorted((server for pid in roots if (server := self.server(pid)) is not None), key=lambda one: (-one.age_s, one.process.pid))

    def root_of(self, pid: int) -> int:
        """The topmost process above `pid`, or itself, that is the engine; `pid` where none is."""
        root = pid
        above: set[int] = set()
        while pid in self._stats and pid not in above:
            above.add(pid)
            if self._engine(pid) is not None:
                root = pid
            pid = self._stats[pid].ppid
        return root

    def server(self, pid: int) -> Server | None:
        """None where the process is gone."""
        stat = self._stats.get(pid)
        if stat is None:
            return None
        uid = self._uid(pid)
        environ = self._errands.each(self._procfs.environ, (pid,), seconds=_PATIENCE).get(pid)
        env = dict(entry.split("=", 1) for entry in (environ or b"").decode("utf8", "surrogateescape").split("\0") if "=" in entry)
        groups = (self._procfs.read(f"{pid}/cgroup", 1 << 16) or b"").decode("utf8", "replace").splitlines()
        return Server(
            process=ProcessKey(os.uname().nodename, pid, stat.start),
            argv=self._argv.get(pid) or (stat.comm,),
            engine=self._engine(pid),
            uid=uid,
            user=_name(uid),
            age_s=age_s(self._procfs, stat.start),
            cwd=self._procfs.link(f"{pid}/cwd") or "/",
            env=env,
            hidden=environ is None,
            managed=self._managed(stat),
            cgroups=tuple(line.split(":", 2)[2] for line in groups if line.count(":") >= 2),
        )

    def holder(self, port: int) -> tuple[int | None, bool]:
        """The pid that holds the listening socket of a TCP port here, None where it cannot be seen; and whether anybody listens at all."""
        mine = os.getpid()
        table = tcp_from_kernel() if self._procfs.root == Path("/proc") else None
        table = tcp_from_proc(self._procfs, mine) if table is None else table
        inodes = {inode for inode, (_, bound, _) in table.items() if bound == port}
        if not inodes:
            return None, False
        holders = [pid for pid in self._stats if inodes & self._sockets(pid)]
        # a socket that children inherited is held by several: the one nearest to the top is the server's
        return min(holders, key=lambda pid: self._stats[pid].start, default=None), True

    def _sockets(self, pid: int) -> set[str]:
        return {found[1] for target in self._procfs.fds(pid).values() if (found := _SOCKET.match(target)) is not None}

    def _engine(self, pid: int) -> str | None:
        argv = self._argv.get(pid, ())
        if not argv:
            return None
        begun = start(argv, self._profiles)
        return begun.profile.name if begun is not None else by_output(self._profiles, titles=(" ".join(argv).strip(),))

    def _managed(self, stat: Stat) -> bool:
        leader = self._stats.get(stat.sid)
        above = self._stats.get(leader.ppid) if leader is not None else None
        return above is not None and above.comm == "systemd"

    def _uid(self, pid: int) -> int:
        for line in (self._procfs.read(f"{pid}/status", 1 << 14) or b"").split(b"\n"):
            if line.startswith(b"Uid:"):
                fields = line.split()
                return int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else -1
        return -1


def age_s(procfs: Procfs, start: int) -> float:
    """How long a process with these start ticks has run; they count from boot, sleep included. 0 where the kernel does not tell."""
    booted = (procfs.read("uptime", 256) or b"0").split()
    try:
        return max(float(booted[0]) - start / os.sysconf("SC_CLK_TCK"), 0.0)
    except (ValueError, IndexError):
        return 0.0


def not_ours(servers: Iterable[Server]) -> list[Server]:
    """Those of other users; for root too, since it is not asked lightly."""
    return [server for server in servers if server.uid != os.getuid()]


def _name(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError, ValueError):
        return None
