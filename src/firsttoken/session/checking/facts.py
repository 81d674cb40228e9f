"""What the checks need to know of this machine, read once: sockets and who holds them, locks, memory, addresses."""

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlsplit

from firsttoken.hosts.procfs import Procfs
from firsttoken.model.redact import mask_argv
from firsttoken.observe.cgroups import memory_cgroup
from firsttoken.observe.locks import parse_locks
from firsttoken.observe.socket_tables import Address, tcp_from_kernel, tcp_from_proc
from firsttoken.survey.build_checks import Held
from firsttoken.survey.memory_checks import Host
from firsttoken.survey.network_checks import Taken

_HUB_PATIENCE = 2.0
_MOST_HOLDERS = 64
_SHOWN = 80


def taken(procfs: Procfs, wanted: Iterable[int], *, without: frozenset[int] = frozenset()) -> list[Taken]:
    """Listening sockets on the wanted ports. `without`: processes whose own they may be."""
    ports = set(wanted)
    listening = _listening(procfs, ports)
    if not listening:
        return []
    holders = _holders(procfs, listening)
    found = []
    for inode, (host, port, _) in listening.items():
        pid = holders.get(inode)
        if port is not None and pid not in without:
            found.append(Taken(port=port, host=host, holder=titled(procfs, pid) if pid is not None else None))
    return found


def _listening(procfs: Procfs, ports: set[int]) -> dict[str, Address]:
    kernel = tcp_from_kernel() if str(procfs.root) == "/proc" else None
    table = kernel if kernel is not None else tcp_from_proc(procfs, os.getpid()) or tcp_from_proc(procfs, 1)
    return {inode: address for inode, address in table.items() if address[1] in ports}


def _holders(procfs: Procfs, inodes: Iterable[str]) -> dict[str, int]:
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[str, int] = {}
    for pid in procfs.pids():
        for target in procfs.fds(pid).values():
            if target in wanted:
                found.setdefault(wanted[target], pid)
        if len(found) == len(wanted):
            break
    return found


def titled(procfs: Procfs, pid: int) -> str:
    """`python -m server (pid 12)`, secrets masked."""
    words = mask_argv(procfs.cmdline(pid))
    stat = procfs.stat(pid)
    name = " ".join(words)[:_SHOWN] or (stat.comm if stat is not None else "a process that has ended")
    return f"{name} (pid {pid})"


def who_has_open(procfs: Procfs, path: str) -> str | None:
    """A live process that has a file open."""
    real = os.path.realpath(path)
    pid = next((pid for pid in procfs.pids() if real in procfs.fds(pid).values()), None)
    return titled(procfs, pid) if pid is not None else None


def held_locks(procfs: Procfs, folders: Sequence[str]) -> list[Held]:
    """Locks that live processes hold on files below these folders."""
    if not folders:
        return []
    rows = [row for row in parse_locks(procfs.read("locks")) if not row.waiting and row.pid > 0]
    inodes = {row.file[1] for row in rows}
    found: dict[str, Held] = {}
    for pid in list(dict.fromkeys(row.pid for row in rows))[:_MOST_HOLDERS]:
        for path in procfs.fds(pid).values():
            if path.startswith(tuple(f"{folder}/" for folder in folders)) and _inode(path) in inodes:
                found[path] = Held(path=path, holder=titled(procfs, pid))
    return list(found.values())


def host_memory(procfs: Procfs) -> Host:
    rows = dict(line.split(":", 1) for line in (procfs.read("meminfo") or b"").decode("ascii", "replace").splitlines() if ":" in line)

    def size(name: str) -> int | None:
        words = rows.get(name, "").split()
        return int(words[0]) << 10 if words and words[0].isdecimal() else None

    cgroup = memory_cgroup(procfs, os.getpid())
    return Host(
        total=size("MemTotal"),
        available=size("MemAvailable"),
        cgroup_limit=cgroup.limit() if cgroup is not None else None,
        cgroup_used=cgroup.used() if cgroup is not None else None,
    )


def pids_room(procfs: Procfs, root: str = "/") -> int | None:
    """Processes that our cgroup still allows; None without a limit."""
    for line in (procfs.read("self/cgroup") or b"").decode("utf8", "replace").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            folder = f"{root.rstrip('/')}/sys/fs/cgroup{path}"
        elif "pids" in controllers.split(","):
            folder = f"{root.rstrip('/')}/sys/fs/cgroup/pids{path}"
        else:
            continue
        most, now = _number(f"{folder}/pids.max"), _number(f"{folder}/pids.current")
        if most is not None:
            return max(0, most - (now or 0))
    return None


def cpu_quota(procfs: Procfs, root: str = "/") -> float | None:
    """CPUs' worth of time that our cgroup grants; None without a limit."""
    for line in (procfs.read("self/cgroup") or b"").decode("utf8", "replace").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        base = f"{root.rstrip('/')}/sys/fs/cgroup"
        if number == "0" and not controllers:
            words = _text(f"{base}{path}/cpu.max").split()
            if len(words) == 2 and words[0].isdecimal() and words[1].isdecimal():
                return int(words[0]) / int(words[1])
        elif "cpu" in controllers.split(","):
            quota, period = _number(f"{base}/cpu{path}/cpu.cfs_quota_us"), _number(f"{base}/cpu{path}/cpu.cfs_period_us")
            if quota and period:
                return quota / period
    return None


def room_of(folder: str) -> tuple[int, int] | None:
    """Bytes in all, and free for us, of the file system that a folder (or the nearest one above it) lies on."""
    path = os.path.abspath(folder)
    while True:
        try:
            found = os.statvfs(path)
            return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
        except OSError:
            above = os.path.dirname(path)
            if above == path:
                return None
            path = above


def one_a_disk(places: Mapping[str, str]) -> dict[str, str]:
    """Each file system once, by the first folder that lies on it."""
    seen: dict[int, tuple[str, str]] = {}
    for name, folder in places.items():
        path = folder
        while path != "/" and not os.path.exists(path):
            path = os.path.dirname(path) or "/"
        try:
            seen.setdefault(os.stat(path).st_dev, (name, folder))
        except OSError:
            continue
    return dict(seen.values())


def hub_answers(env: Mapping[str, str]) -> tuple[bool, str]:
    """Whether the hub (or the proxy to it) accepts a connection, within two seconds; and where it was looked for."""
    endpoint = env.get("HF_ENDPOINT") or "https://huggingface.co"
    proxy = env.get("https_proxy") or env.get("HTTPS_PROXY") or env.get("all_proxy") or env.get("ALL_PROXY")
    try:
        parts = urlsplit(proxy or endpoint)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((parts.hostname or "", port), timeout=_HUB_PATIENCE).close()
    except (OSError, ValueError):
        return False, endpoint
    return True, endpoint


def own_addresses() -> tuple[str, ...]:
    """This machine's addresses, as the kernel's routing table of local ones tells them."""
    found = ["127.0.0.1"]
    try:
        with open("/proc/net/fib_trie", encoding="ascii") as file:
            last = ""
            for line in file:
                words = line.split()
                if len(words) >= 2 and words[0] == "|--":
                    last = words[1]
                elif "host LOCAL" in line and last:
                    found.append(last)
        with open("/proc/net/if_inet6", encoding="ascii") as file:
            found += [socket.inet_ntop(socket.AF_INET6, bytes.fromhex(line.split()[0])) for line in file if line.split()]
    except (OSError, ValueError):
        pass
    return tuple(dict.fromkeys(found))


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


def _number(path: str) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(4096)
    except OSError:
        return ""
