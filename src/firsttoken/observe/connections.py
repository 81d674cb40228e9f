"""Sockets of all kinds by inode, and the socket at the other end of each.

TCP over loopback or between the run's network namespaces: the other end is the row with both addresses swapped. A row that no process has
accepted yet has inode 0, and its listener is who could. Unix sockets: /proc tells no peers, the kernel's sock_diag does, for the network
namespace of the thread that asks; another namespace is entered by a short-lived thread, where that is permitted.
"""

import ctypes
import os
import socket
import struct
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from firsttoken.hosts.procfs import Procfs
from firsttoken.observe.socket_tables import parse_address

Endpoint = tuple[str, int]

ESTABLISHED, SYN_SENT, LISTEN = 1, 2, 10
_STATES = {1: "established", 2: "SYN-SENT", 3: "SYN-RECV", 4: "FIN-WAIT-1", 5: "FIN-WAIT-2", 6: "TIME-WAIT", 7: "closed", 8: "CLOSE-WAIT",
           9: "LAST-ACK", 10: "listening", 11: "closing"}  # fmt: skip
_TABLE_CAP = 16 << 20
_ANY = frozenset({"0.0.0.0", "::"})
_NETLINK_SOCK_DIAG, _BY_FAMILY, _DUMP = 4, 20, 0x301
_ERROR, _DONE = 2, 3
_SHOW_NAME_AND_PEER = 0x5
_NAME, _PEER = 0, 2
_HEADER = struct.Struct("=IHHII")
_PATIENCE = 0.5
_MOST_ANSWERS = 4096
_NEW_NET = 0x40000000


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpSocket:
    """`state` as the kernel numbers it; `inode` 0: no process has it (not accepted yet, or on its way out)."""

    local: Endpoint
    remote: Endpoint
    state: int
    inode: int

    @property
    def state_name(self) -> str:
        return _STATES.get(self.state, f"state {self.state}")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnixSocket:
    inode: int
    peer: int | None = None
    path: str | None = None
    listens: bool = False


@dataclass(slots=True)
class _Namespace:
    tcp: dict[int, TcpSocket] = field(default_factory=dict)
    by_ends: dict[tuple[Endpoint, Endpoint], TcpSocket] = field(default_factory=dict)
    listening: list[TcpSocket] = field(default_factory=list)
    addresses: frozenset[str] = frozenset()
    unix: Mapping[int, UnixSocket] | None = None
    unix_asked: bool = False


class Connections:
    """Sockets of the network namespaces of the run's processes in one round; tables are read when they are needed. `pids`: the run's."""

    def __init__(self, procfs: Procfs, pids: Iterable[int]) -> None:
        self._procfs = procfs
        self._pids = tuple(pids)
        self._spaces: dict[str, _Namespace] = {}
        self._pid_of: dict[str, int] = {}
        self._ours = procfs.link("self/ns/net")

    def tcp(self, pid: int, inode: int) -> TcpSocket | None:
        return self._space(pid).tcp.get(inode)

    def other_end(self, one: TcpSocket) -> TcpSocket | None:
        """In any of the run's namespaces."""
        for space in self._all():
            found = space.by_ends.get((one.remote, one.local))
            if found is not None and found is not one:
                return found
        return None

    def listeners(self, address: Endpoint) -> tuple[TcpSocket, ...]:
        """Those that a connection to this address would reach."""
        host, port = address
        found = []
        for space in self._all():
            if host in space.addresses or is_loopback(host):
                found += [one for one in space.listening if one.local[1] == port and (one.local[0] == host or one.local[0] in _ANY)]
        return tuple(found)

    def is_here(self, host: str) -> bool:
        """Whether the address is one of this machine (in the namespaces of the run)."""
        return is_loopback(host) or any(host in space.addresses for space in self._all())

    def unix(self, pid: int, inode: int) -> UnixSocket | None:
        """None where there is no such socket, or nobody tells."""
        return self._unix_of(pid).get(inode)

    def unix_listeners(self, pid: int, path: str) -> tuple[int, ...]:
        """Inodes of the sockets that listen under that path, as `pid` sees it."""
        return tuple(one.inode for one in self._unix_of(pid).values() if one.path == path and one.listens)

    def _unix_of(self, pid: int) -> Mapping[int, UnixSocket]:
        space = self._space(pid)
        if not space.unix_asked:
            space.unix_asked = True
            space.unix = self._unix_sockets(pid)
        return space.unix or {}

    def _unix_sockets(self, pid: int) -> Mapping[int, UnixSocket] | None:
        name = self._procfs.link(f"{pid}/ns/net")
        if name is None or name == self._ours:
            return unix_from_kernel()
        return _elsewhere(self._procfs.root / f"{pid}/ns/net")

    def _all(self) -> list[_Namespace]:
        for pid in self._pids:
            self._space(pid)
        return list(self._spaces.values())

    def _space(self, pid: int) -> _Namespace:
        name = self._procfs.link(f"{pid}/ns/net") or f"of {pid}"
        if name not in self._spaces:
            self._spaces[name] = self._read(pid)
        return self._spaces[name]

    def _read(self, pid: int) -> _Namespace:
        space = _Namespace(addresses=parse_local(self._procfs.read(f"{pid}/net/fib_trie"), self._procfs.read(f"{pid}/net/if_inet6")))
        for table in ("tcp", "tcp6"):
            for row in parse_tcp_rows(self._procfs.read(f"{pid}/net/{table}", None)):
                if row.inode:
                    space.tcp[row.inode] = row
                if row.state == LISTEN:
                    space.listening.append(row)
                else:
                    space.by_ends[row.local, row.remote] = row
        return space


def is_loopback(host: str) -> bool:
    return host.startswith("127.") or host == "::1"


def parse_tcp_rows(raw: bytes | None) -> tuple[TcpSocket, ...]:
    """/proc/PID/net/tcp or tcp6. Rows that cannot be read are left out."""
    found: list[TcpSocket] = []
    for line in (raw or b"")[:_TABLE_CAP].split(b"\n"):
        words = line.split(None, 10)
        if len(words) < 10 or not words[9].isdigit() or len(words[9]) > 20:
            continue
        local, remote = parse_address(words[1]), parse_address(words[2])
        try:
            state = int(words[3], 16)
        except ValueError:
            continue
        if local is not None and remote is not None:
            found.append(TcpSocket(local=local, remote=remote, state=state, inode=int(words[9])))
    return tuple(found)


def parse_local(fib_trie: bytes | None, if_inet6: bytes | None) -> frozenset[str]:
    """The addresses of a namespace's own interfaces."""
    found: set[str] = set()
    last = ""
    for line in (fib_trie or b"").decode("ascii", "replace").split("\n"):
        text = line.strip()
        if text.startswith("|-- "):
            last = text[4:]
        elif text == "/32 host LOCAL" and last:
            found.add(last)
    for line in (if_inet6 or b"").decode("ascii", "replace").split("\n"):
        try:
            found.add(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(line.split(" ", 1)[0])))
        except (ValueError, OSError):
            continue
    return frozenset(found)


def unix_from_kernel() -> Mapping[int, UnixSocket] | None:
    """All unix sockets of our own network namespace with their peers; None where the kernel does not answer."""
    found: dict[int, UnixSocket] = {}
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as netlink:
            netlink.settimeout(_PATIENCE)
            ask = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, _SHOW_NAME_AND_PEER, 0, 0)
            netlink.send(_HEADER.pack(_HEADER.size + len(ask), _BY_FAMILY, _DUMP, 1, 0) + ask)
            for _ in range(_MOST_ANSWERS):
                more = parse_unix_diag(netlink.recv(1 << 17), found)
                if more is None:
                    return None
                if not more:
                    return found
    except (OSError, AttributeError):
        return None
    return None


def parse_unix_diag(raw: bytes, found: dict[int, UnixSocket]) -> bool | None:
    """Adds one datagram's sockets to `found`. True: more will come; None: the kernel refused, or the answer is not understood."""
    at = 0
    while at + _HEADER.size <= len(raw):
        length, kind, *_ = _HEADER.unpack_from(raw, at)
        if kind == _DONE:
            return False
        if kind == _ERROR or length < _HEADER.size:
            return None
        body = raw[at + _HEADER.size : at + length]
        if len(body) >= 16:
            inode = int.from_bytes(body[4:8], sys.byteorder)
            told = _attributes(body[16:])
            peer = int.from_bytes(told[_PEER][:4], sys.byteorder) if _PEER in told else None
            found[inode] = UnixSocket(inode=inode, peer=peer, path=_path(told.get(_NAME, b"")), listens=body[2] == LISTEN)
        at += length + 3 & ~3
    return True


def _path(name: bytes) -> str | None:
    """A name in the abstract namespace begins with NUL, and is told with `@` as /proc does."""
    if not name.rstrip(b"\0"):
        return None
    return ("@" if name.startswith(b"\0") else "") + name.strip(b"\0").decode("utf8", "replace")


def _attributes(raw: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(raw):
        length, kind = struct.unpack_from("=HH", raw, at)
        if length < 4:
            break
        found[kind] = raw[at + 4 : at + length]
        at += length + 3 & ~3
    return found


def _elsewhere(namespace: os.PathLike[str]) -> Mapping[int, UnixSocket] | None:
    """Asked from inside another network namespace, by a thread of its own that ends with it."""
    answer: list[Mapping[int, UnixSocket] | None] = [None]

    def ask() -> None:
        try:
            fd = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError):
            return
        try:
            if ctypes.CDLL(None, use_errno=True).setns(fd, _NEW_NET) == 0:
                answer[0] = unix_from_kernel()
        except (OSError, AttributeError):
            pass
        finally:
            os.close(fd)

    thread = threading.Thread(target=ask, name="firsttoken-namespace", daemon=True)
    thread.start()
    thread.join(2 * _PATIENCE)
    return answer[0]
