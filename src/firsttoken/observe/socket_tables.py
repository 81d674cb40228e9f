"""The tables of listening sockets: from the kernel over netlink for our own network namespace, else from /proc.

/proc/net/tcp walks the whole table of connections even where there are none (1.2 ms each for tcp and tcp6 with 262,144 buckets, measured);
netlink's sock_diag walks the listening ones alone (0.02 ms). It cannot look into another namespace, and sandboxes may refuse it.
"""

import socket
import struct
import sys

from firsttoken.hosts.procfs import Procfs

Address = tuple[str | None, int | None, str | None]
"""host, port, path"""

_LISTEN = b"0A"
_ACCEPTS = 0x00010000
_TABLE_CAP = 4 << 20
_ANSWERS = 4096
_SOCK_DIAG, _BY_FAMILY, _DUMP = 4, 20, 0x301
_ERROR, _DONE = 2, 3
_TCP, _STATE_LISTEN = 6, 10
_HEADER = struct.Struct("=IHHII")
_PATIENCE = 0.5


def tcp_from_kernel() -> dict[str, Address] | None:
    """Our own namespace's listening TCP sockets by inode; None where the kernel does not answer."""
    found: dict[str, Address] = {}
    try:
        for family in (socket.AF_INET, socket.AF_INET6):
            with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as netlink:
                netlink.settimeout(_PATIENCE)
                ask = struct.pack("=BBBBI48x", family, _TCP, 0, 0, 1 << _STATE_LISTEN)
                netlink.send(_HEADER.pack(_HEADER.size + len(ask), _BY_FAMILY, _DUMP, 1, 0) + ask)
                for _ in range(_ANSWERS):
                    more = parse_diag(netlink.recv(1 << 16), found)
                    if more is None:
                        return None
                    if not more:
                        break
    except (OSError, AttributeError):
        return None
    return found


def tcp_from_proc(procfs: Procfs, pid: int) -> dict[str, Address]:
    return {**parse_tcp(_head(procfs, f"{pid}/net/tcp")), **parse_tcp(_head(procfs, f"{pid}/net/tcp6"))}


def unix_from_proc(procfs: Procfs, pid: int) -> dict[str, Address]:
    return parse_unix(procfs.read(f"{pid}/net/unix") or b"")


def parse_diag(raw: bytes, found: dict[str, Address]) -> bool | None:
    """Adds one datagram's sockets to `found`. True: more will come; None: the kernel refused, or the answer is not understood."""
    at = 0
    while at + _HEADER.size <= len(raw):
        length, kind, *_ = _HEADER.unpack_from(raw, at)
        if kind == _DONE:
            return False
        if kind == _ERROR or length < _HEADER.size:
            return None
        body = raw[at + _HEADER.size : at + length]
        if len(body) >= 72:
            port = int.from_bytes(body[4:6], "big")
            inode = int.from_bytes(body[68:72], sys.byteorder)
            found[str(inode)] = (_host(body[8:24] if body[0] == socket.AF_INET6 else body[8:12]), port, None)
        at += length + 3 & ~3
    return True


def _head(procfs: Procfs, name: str) -> bytes:
    """A TCP table up to its last listening row: those come first, however many connections follow."""
    parts = bytearray()
    for chunk in procfs.chunks(name):
        parts += chunk
        rows = parts.rsplit(b"\n", 2)
        if len(rows) == 3 and len(last := rows[1].split(None, 4)) > 3 and last[0] != b"sl" and last[3] != _LISTEN:
            break
        if len(parts) > _TABLE_CAP:
            break
    return bytes(parts)


def parse_tcp(raw: bytes) -> dict[str, Address]:
    """/proc/PID/net/tcp or tcp6 → the listening ones by inode. Rows that cannot be read are left out."""
    found: dict[str, Address] = {}
    for line in raw.split(b"\n"):
        fields = line.split(None, 10)
        if len(fields) < 10 or fields[3] != _LISTEN or not fields[9].isdigit():
            continue
        address = parse_address(fields[1])
        if address is not None:
            found[fields[9].decode("ascii")] = (*address, None)
    return found


def parse_unix(raw: bytes) -> dict[str, Address]:
    """/proc/PID/net/unix → the listening ones by inode. A path in the abstract namespace keeps the kernel's `@`."""
    found: dict[str, Address] = {}
    for line in raw.split(b"\n"):
        fields = line.split(None, 7)
        if len(fields) < 8 or not fields[6].isdigit():
            continue
        try:
            accepts = int(fields[3], 16) & _ACCEPTS
        except ValueError:
            continue
        if accepts:
            found[fields[6].decode("ascii")] = (None, None, fields[7].decode("utf8", "replace"))
    return found


def parse_address(text: bytes) -> tuple[str, int] | None:
    """`0100007F:1F90` → 127.0.0.1, 8080. Each 32-bit word stands in the machine's byte order."""
    host, _, port = text.partition(b":")
    try:
        raw = bytes.fromhex(host.decode("ascii"))
        number = int(port, 16)
    except ValueError:
        return None
    if len(raw) not in (4, 16) or not 0 <= number < 1 << 16:
        return None
    if sys.byteorder == "little":
        raw = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    return _host(raw), number


def _host(raw: bytes) -> str:
    """4 or 16 bytes in network order; a mapped IPv4 address is told as IPv4."""
    if len(raw) == 16 and raw.startswith(bytes(10) + b"\xff\xff"):
        raw = raw[12:]
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)
