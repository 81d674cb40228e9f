import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fake_proc import FakeProc
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.hosts.procfs import Procfs
from firsttoken.model.process import ListenSocket
from firsttoken.observe.socket_tables import Address, parse_diag, parse_tcp, parse_unix, tcp_from_kernel, tcp_from_proc
from firsttoken.observe.sockets import SocketWatcher, listening

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
UNIX_HEAD = "Num       RefCount Protocol Flags    Type St Inode Path\n"


def row(address: str, inode: int, state: str = "0A") -> str:
    queues = "00000000:00000000 00:00000000 00000000     0        0"
    return f"   0: {address} 00000000:0000 {state} {queues} {inode} 1 0000000000000000 100 0 0 10 0\n"


def v4(host: str) -> str:
    raw = socket.inet_aton(host)
    return (raw[::-1] if sys.byteorder == "little" else raw).hex().upper()


def v6(host: str) -> str:
    raw = socket.inet_pton(socket.AF_INET6, host)
    words = [raw[at : at + 4] for at in range(0, 16, 4)]
    return b"".join(word[::-1] if sys.byteorder == "little" else word for word in words).hex().upper()


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


def with_socket(proc: FakeProc, pid: int, inode: int, fd: int = 3) -> None:
    proc.link(f"{pid}/fd/{fd}", f"socket:[{inode}]")


def test_addresses_of_all_kinds_are_decoded(proc: FakeProc) -> None:
    proc.process(10)
    for fd, inode in enumerate((101, 102, 103, 104, 105, 106, 107)):
        with_socket(proc, 10, inode, fd)
    proc.write("10/net/tcp", HEAD + row(f"{v4('127.0.0.1')}:1F90", 101) + row(f"{v4('0.0.0.0')}:0050", 102))
    tcp6 = row(f"{v6('::')}:1F91", 103) + row(f"{v6('::1')}:1F92", 104)
    proc.write("10/net/tcp6", HEAD + tcp6 + row(f"{v6('::ffff:10.1.2.3')}:1F93", 105) + row(f"{v6('fe80::1:2')}:1F94", 106))
    proc.write("10/net/unix", UNIX_HEAD + "0000000000000000: 00000002 00000000 00010000 0001 01 107 /run/a b.sock\n")
    found = {(socket.host, socket.port, socket.path) for socket in listening(proc.procfs, [10]).sockets}
    assert found == {
        ("127.0.0.1", 8080, None), ("0.0.0.0", 80, None), ("::", 8081, None), ("::1", 8082, None),
        ("10.1.2.3", 8083, None), ("fe80::1:2", 8084, None), (None, None, "/run/a b.sock"),
    }  # fmt: skip


def test_sockets_of_others_and_connected_ones_are_left_out(proc: FakeProc) -> None:
    proc.process(10)
    with_socket(proc, 10, 101)
    proc.write("10/net/tcp", HEAD + row(f"{v4('127.0.0.1')}:1F90", 999) + row(f"{v4('127.0.0.1')}:1F91", 101, state="01"))
    proc.write("10/net/unix", UNIX_HEAD + "0000000000000000: 00000003 00000000 00000000 0001 03 101 /connected\n")
    assert listening(proc.procfs, [10]).sockets == ()


def test_a_change_is_told_once(proc: FakeProc) -> None:
    proc.process(10)
    proc.write("10/net/tcp", HEAD)
    watcher = SocketWatcher(proc.procfs)
    assert watcher.look([10]) is None
    with_socket(proc, 10, 101)
    proc.write("10/net/tcp", HEAD + row(f"{v4('127.0.0.1')}:1F90", 101))
    told = watcher.look([10])
    assert told is not None
    assert told.sockets == (ListenSocket(10, "127.0.0.1", 8080, None),)
    assert watcher.look([10]) is None
    proc.write("10/net/tcp", HEAD)
    told = watcher.look([10])
    assert told is not None
    assert told.sockets == ()


def test_descriptors_are_read_only_when_something_is_new(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    proc.process(10)
    proc.write("10/net/tcp", HEAD + row(f"{v4('127.0.0.1')}:1F90", 999))
    watcher = SocketWatcher(proc.procfs)
    watcher.look([10])
    read: list[str] = []
    names = Procfs.names
    monkeypatch.setattr(Procfs, "names", lambda self, folder: read.append(folder) or names(self, folder))
    watcher.look([10])
    assert read == []
    proc.process(11)
    with_socket(proc, 11, 999)
    told = watcher.look([10, 11])
    assert told is not None
    assert [socket.pid for socket in told.sockets] == [11]
    assert read == ["11/fd"]


def test_an_inherited_socket_is_told_for_the_first_and_passes_on_when_that_ends(proc: FakeProc) -> None:
    for pid in (10, 11):
        proc.process(pid)
        with_socket(proc, pid, 101)
        proc.write(f"{pid}/net/tcp", HEAD + row(f"{v4('127.0.0.1')}:1F90", 101))
        proc.link(f"{pid}/ns/net", "net:[1]")
    watcher = SocketWatcher(proc.procfs)
    assert [socket.pid for socket in watcher.listening([10, 11]).sockets] == [10]
    assert [socket.pid for socket in watcher.listening([11]).sockets] == [11]


def test_each_network_namespace_is_read(proc: FakeProc) -> None:
    for pid in (10, 11):
        proc.process(pid)
        proc.link(f"{pid}/ns/net", f"net:[{pid}]")
        with_socket(proc, pid, 100 + pid)
        proc.write(f"{pid}/net/tcp", HEAD + row(f"{v4('127.0.0.1')}:1F9{pid - 10}", 100 + pid))
    assert [socket.port for socket in listening(proc.procfs, [10, 11]).sockets] == [8080, 8081]


def test_files_that_may_not_be_read_are_said_once(proc: FakeProc) -> None:
    proc.process(10)
    (proc.root / "10/exe").unlink()
    proc.write("10/net/tcp", HEAD + row(f"{v4('127.0.0.1')}:1F90", 101))
    watcher = SocketWatcher(proc.procfs)
    watcher.listening([10])
    assert [missed.request for missed in watcher.missed()] == ["sockets"]
    proc.write("10/net/tcp", HEAD + row(f"{v4('127.0.0.1')}:1F90", 102))
    watcher.listening([10])
    assert watcher.missed() == []


@contextmanager
def listener(family: socket.AddressFamily, address: object) -> Iterator[socket.socket]:
    with socket.socket(family) as server:
        server.bind(address)
        server.listen()
        yield server


def test_our_own_sockets_are_found(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    watcher = SocketWatcher(Procfs())
    before = watcher.listening([os.getpid()]).sockets
    with listener(socket.AF_INET, ("127.0.0.1", 0)) as tcp, listener(socket.AF_UNIX, path):
        found = set(watcher.listening([os.getpid()]).sockets) - set(before)
        assert found == {ListenSocket(os.getpid(), "127.0.0.1", tcp.getsockname()[1], None), ListenSocket(os.getpid(), None, None, path)}
    assert set(watcher.listening([os.getpid()]).sockets) == set(before)


def test_the_kernel_and_proc_tell_the_same_listeners() -> None:
    with listener(socket.AF_INET, ("127.0.0.1", 0)) as one, listener(socket.AF_INET6, ("::", 0)) as other:
        asked = tcp_from_kernel()
        if asked is None:
            pytest.skip("sock_diag is not permitted here")
        ports = {one.getsockname()[1], other.getsockname()[1]}
        read = tcp_from_proc(Procfs(), os.getpid())
        ours = {inode: address for inode, address in asked.items() if address[1] in ports}
        assert ours == {inode: address for inode, address in read.items() if address[1] in ports}
        assert {address[0] for address in ours.values()} == {"127.0.0.1", "::"}


@given(st.binary(max_size=300))
def test_any_netlink_answer_is_parsed_without_raising(raw: bytes) -> None:
    found: dict[str, Address] = {}
    parse_diag(raw, found)
    parse_diag(b"\x58\x00\x00\x00\x14\x00" + raw, found)


@given(st.binary(max_size=400) | st.builds(lambda a, i: (HEAD + row(a, i)).encode(), st.text(max_size=40), st.integers(-9, 1 << 40)))
def test_any_table_is_parsed_without_raising(raw: bytes) -> None:
    for host, port, path in [*parse_tcp(raw).values(), *parse_unix(raw).values()]:
        assert (host is None) == (port is None) != (path is None)


@given(st.ip_addresses() if hasattr(st, "ip_addresses") else st.nothing(), st.integers(0, 65535))
def test_every_address_comes_back(address: object, port: int) -> None:
    text = str(address).split("%")[0]
    packed = v6(text) if ":" in text else v4(text)
    ((host, number, _),) = parse_tcp(row(f"{packed}:{port:04X}", 5).encode()).values()
    raw = socket.inet_pton(socket.AF_INET6, text) if ":" in text else b""
    mapped = raw.startswith(bytes(10) + b"\xff\xff")
    expected = socket.inet_ntoa(raw[12:]) if mapped else text
    assert number == port
    assert host == expected or socket.inet_pton(socket.AF_INET6, host or "") == raw
