"""Tables of sockets and who is at their other ends."""

import os
import socket
import struct

from hypothesis import given
from hypothesis import strategies as st

from firsttoken.hosts.procfs import Procfs
from firsttoken.observe.connections import Connections, parse_local, parse_tcp_rows, parse_unix_diag, unix_from_kernel


def inode(one: socket.socket) -> int:
    return os.fstat(one.fileno()).st_ino


def test_both_ends_of_a_tcp_connection_find_each_other() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as ours:
        theirs, _ = listener.accept()
        with theirs:
            table = Connections(Procfs(), [os.getpid()])
            one = table.tcp(os.getpid(), inode(ours))
            assert one is not None
            other = table.other_end(one)
            assert other is not None
            assert (other.inode, other.state_name) == (inode(theirs), "established")
            assert [found.inode for found in table.listeners(listener.getsockname())] == [inode(listener)]
            assert table.is_here("127.0.0.1")
            assert not table.is_here("192.0.2.1")


def test_both_ends_of_a_unix_pair_find_each_other() -> None:
    one, other = socket.socketpair()
    with one, other:
        found = unix_from_kernel()
        assert found is not None
        assert found[inode(one)].peer == inode(other)


def test_own_addresses_are_read_from_the_routes() -> None:
    trie = b"""Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     |-- 10.0.2.15
        /32 host LOCAL
     |-- 10.0.2.255
        /32 link BROADCAST
"""
    v6 = b"fe80000000000000a8aa1bfffe2c3d01 02 40 20 80     eth0\n"
    assert parse_local(trie, v6) == {"10.0.2.15", "fe80::a8aa:1bff:fe2c:3d01"}


def test_a_name_in_the_abstract_namespace_is_told_as_proc_tells_it() -> None:
    attribute = struct.pack("=HH", 4 + 5, 0) + b"\0name\0\0\0"
    body = struct.pack("=BBBBIII", 1, 1, 1, 0, 77, 0, 0) + attribute
    found: dict[int, object] = {}
    parse_unix_diag(struct.pack("=IHHII", 16 + len(body), 20, 0, 0, 0) + body, found)  # type: ignore[arg-type]  # a dict of sockets
    assert found[77].path == "@name"  # type: ignore[attr-defined]  # a socket


@given(st.binary(max_size=300))
def test_no_bytes_are_too_odd(raw: bytes) -> None:
    parse_tcp_rows(raw)
    parse_local(raw, raw)
    parse_unix_diag(raw, {})
