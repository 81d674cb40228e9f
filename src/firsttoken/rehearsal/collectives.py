"""Collectives between ranks: all_reduce, barrier and broadcast over a full mesh of loopback TCP sockets.

Key insight: in a mesh every rank runs the same lines, so waiting ranks share one stack, and each is blocked in recv(2) on the
socket of exactly the rank that is missing. Sums are taken in rank order, so that every rank gets the same bits.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from .store import StoreClient

Floats = NDArray[np.float64]

_HEADER = struct.Struct("<II")
_SUM, _BARRIER, _BROADCAST = 1, 2, 3
_PATIENCE_S = 2.0
_HOW = socket.MSG_DONTWAIT if os.environ.get("REHEARSE_SPIN") == "1" else socket.MSG_WAITALL
"""Ranks on GPUs burn a core while they wait for each other; these do where they are asked to."""


class Mesh:
    """This rank's sockets to all others. With `patient` a lost peer is waited for without end, else for two seconds."""

    def __init__(self, rank: int, ranks: int, store: StoreClient, *, patient: bool = False) -> None:
        self.rank, self.ranks, self._patient = rank, ranks, patient
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=ranks)
        self._peers: dict[int, socket.socket] = {}
        store.set(f"address/{rank}", self._listener.getsockname()[1])
        addresses = [("127.0.0.1", int(store.wait(f"address/{peer}"))) for peer in range(ranks)]
        for peer, address in enumerate(addresses[:rank]):
            connection = socket.create_connection(address)
            connection.sendall(struct.pack("<I", rank))
            self._add(peer, connection)
        for _ in range(rank + 1, ranks):
            connection, _ = self._listener.accept()
            buffer = bytearray(4)
            _fill(connection, memoryview(buffer))
            self._add(int(struct.unpack("<I", buffer)[0]), connection)

    def all_reduce(self, values: Floats) -> Floats:
        """The sum of all ranks' arrays, which have one shape."""
        if self.ranks == 1:
            return values
        own = np.ascontiguousarray(values, dtype=np.float64)
        self._send_all(_SUM, own.tobytes())
        total = np.zeros_like(own)
        buffer = bytearray(_HEADER.size + own.nbytes)
        for peer in range(self.ranks):
            if peer == self.rank:
                total += own
                continue
            self._receive(peer, memoryview(buffer))
            _check(_HEADER.unpack_from(buffer), _SUM, own.nbytes, peer)
            total += np.frombuffer(buffer, dtype=np.float64, offset=_HEADER.size).reshape(own.shape)
        return total

    def barrier(self) -> None:
        """Returns when every rank has come."""
        self._send_all(_BARRIER, b"")
        buffer = bytearray(_HEADER.size)
        for peer in range(self.ranks):
            if peer != self.rank:
                self._receive(peer, memoryview(buffer))
                _check(_HEADER.unpack(buffer), _BARRIER, 0, peer)

    def broadcast(self, message: bytes | None) -> bytes:
        """Rank 0's message, on every rank."""
        if self.rank == 0:
            content = b"" if message is None else message
            self._send_all(_BROADCAST, content)
            return content
        header = bytearray(_HEADER.size)
        self._receive(0, memoryview(header))
        operation, size = _HEADER.unpack(header)
        _check((operation, size), _BROADCAST, size, 0)
        buffer = bytearray(size)
        self._receive(0, memoryview(buffer))
        return bytes(buffer)

    def close(self) -> None:
        for connection in (self._listener, *self._peers.values()):
            connection.close()

    def _add(self, peer: int, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 19)
        self._peers[peer] = connection

    def _send_all(self, operation: int, content: bytes) -> None:
        message = _HEADER.pack(operation, len(content)) + content
        for peer, connection in self._peers.items():
            try:
                connection.sendall(message)
            except (BrokenPipeError, ConnectionResetError):
                self._lost(peer)

    def _receive(self, peer: int, buffer: memoryview) -> None:
        try:
            complete = _fill(self._peers[peer], buffer)
        except ConnectionResetError:
            complete = False
        if not complete:
            self._lost(peer)

    def _lost(self, peer: int) -> NoReturn:
        """Gives a peer whose connection ended the chance to come back, then gives up."""
        while self._patient:
            self._listener.accept()
        select.select([self._listener], [], [], _PATIENCE_S)
        raise ConnectionResetError(f"rank {self.rank}: the connection to rank {peer} was closed by the peer")


def _fill(connection: socket.socket, buffer: memoryview) -> bool:
    """Fills the buffer; false where the peer closed before."""
    done = 0
    while done < len(buffer):
        try:
            count = connection.recv_into(buffer[done:], len(buffer) - done, _HOW)
        except BlockingIOError:
            continue
        if count == 0:
            return False
        done += count
    return True


def _check(header: tuple[int, ...], operation: int, size: int, peer: int) -> None:
    if header != (operation, size):
        raise RuntimeError(f"collective mismatch: rank {peer} sent operation {header[0]} of {header[1]} bytes, not {operation} of {size}")
