"""The keeper's side of the control socket: any number of clients, each with a cursor on the log and one on the events.

Nobody is waited for: a client that does not read keeps at most a quarter MiB here and otherwise only a cursor; when the rings have moved
past it, it is told where they begin (`behind`). An event is sent only after the log bytes that were read before it, so a client that wants
both sees them in the order in which they happened.
"""

import contextlib
import os
import selectors
import socket
import struct
import traceback
from collections.abc import Iterable
from typing import Any, Protocol

from firsttoken.launch.frames import Decoder, JsonFrame, encode_json, encode_json_bytes, encode_log
from firsttoken.launch.rings import EventRing, LogRing

MOST_CLIENTS = 64
_OUT_BYTES = 256 << 10
_FILL_BYTES = 128 << 10
_TURN_BYTES = 1 << 20


class Commands(Protocol):
    """What a client can have the keeper do."""

    def post(self, bodies: list[dict[str, Any]]) -> None: ...
    def forward(self, number: int) -> None: ...
    def stop(self, by: str, *, force: bool) -> None: ...
    def state(self) -> dict[str, Any]: ...
    def left(self, role: str, *, politely: bool) -> None: ...


class ControlServer:
    """Registers itself with the selector; each key's `data` is a callable that takes the event mask."""

    def __init__(self, path: str, selector: selectors.BaseSelector, log: LogRing, events: EventRing, commands: Commands) -> None:
        """OSError where the socket cannot be bound."""
        self.path = path
        self._selector = selector
        self._log = log
        self._events = events
        self._commands = commands
        self._clients: list[_Client] = []
        self._farewell: bytes | None = None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            self._listener.bind(path)
            os.chmod(path, 0o600)
            self._listener.listen(16)
        except OSError:
            self._listener.close()
            raise
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def roles(self) -> list[str]:
        """Of the connected clients that have said hello and not bye."""
        return [client.role for client in self._clients if client.role and not client.leaving]

    def pump(self) -> bool:
        """Sends what can be sent without waiting. True where there is more that can be sent at once."""
        more = False
        for client in list(self._clients):
            more = self._send(client) or more
        return more

    def say_ended(self, code: int | None, number: int | None) -> None:
        """The last word, after everything before it; the connection closes behind it."""
        self._farewell = encode_json({"ended": {"code": code, "signal": number}})

    @property
    def drained(self) -> bool:
        return not self._clients

    def close(self) -> None:
        for client in list(self._clients):
            self._drop(client)
        with contextlib.suppress(KeyError):
            self._selector.unregister(self._listener)
        self._listener.close()

    def _accept(self, _mask: int) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if len(self._clients) >= MOST_CLIENTS or not _may_talk(connection):
                connection.close()
                continue
            connection.setblocking(False)
            client = _Client(connection)
            self._clients.append(client)
            self._selector.register(connection, selectors.EVENT_READ, lambda mask, client=client: self._serve(client, mask))

    def _serve(self, client: "_Client", mask: int) -> None:
        if mask & selectors.EVENT_READ:
            try:
                data = client.connection.recv(1 << 18)
            except BlockingIOError:
                data = None
            except OSError:
                data = b""
            if data == b"":
                self._drop(client)
                return
            if data:
                self._hear_safely(client, data)
        if mask & selectors.EVENT_WRITE:
            self._send(client)

    def _hear_safely(self, client: "_Client", data: bytes) -> None:
        """The edge to programs that we did not write: whatever they say may end their connection and nothing else."""
        try:
            self._hear(client, data)
        except Exception:  # the edge
            traceback.print_exc()
            self._drop(client)

    def _hear(self, client: "_Client", data: bytes) -> None:
        for frame in client.decoder.feed(data):
            if isinstance(frame, JsonFrame):
                self._obey(client, frame.value)
        if client.decoder.broken is not None:
            self._drop(client)

    def _obey(self, client: "_Client", said: dict[str, Any]) -> None:
        if "hello" in said:
            client.role = str(said["hello"])
            client.event_cursor = _cursor(said.get("events_from"), 1, self._events.next)
            client.log_cursor = _cursor(said.get("log_from"), 0, self._log.end)
        if client.role is None:
            return
        post = said.get("post")
        if isinstance(post, list) and client.role == "observer":
            self._commands.post([body for body in post if isinstance(body, dict)])
        if isinstance(number := said.get("signal"), int):
            self._commands.forward(number)
        if isinstance(stop := said.get("stop"), dict):
            self._commands.stop(str(stop.get("by", client.role)), force=stop.get("force") is True)
        if said.get("ask") == "state":
            client.out += encode_json({"state": self._commands.state()})
        if said.get("bye") and not client.leaving:
            client.leaving = True
            self._commands.left(client.role, politely=True)

    def _send(self, client: "_Client") -> bool:
        sent = 0
        while sent < _TURN_BYTES:
            if len(client.out) < _OUT_BYTES:
                self._fill(client)
            if not client.out:
                if client.said_ended:
                    self._drop(client)
                else:
                    self._watch(client, selectors.EVENT_READ)
                return False
            try:
                size = client.connection.send(client.out)
            except BlockingIOError:
                self._watch(client, selectors.EVENT_READ | selectors.EVENT_WRITE)
                return False
            except OSError:
                self._drop(client)
                return False
            del client.out[:size]
            sent += size
        return True

    def _fill(self, client: "_Client") -> None:
        if client.role is None:  # its hello is on its way; the farewell comes after what it will ask for
            return
        self._tell_behind(client)
        if client.log_cursor is not None and client.log_cursor < self._log.end:
            t, data = self._log.read(client.log_cursor, _FILL_BYTES)
            client.out += encode_log(client.log_cursor, t, data)
            client.log_cursor += len(data)
        if client.event_cursor is not None and client.event_cursor < self._events.next:
            lines = self._events.read(client.event_cursor, client.log_cursor, _FILL_BYTES)
            if lines:
                client.out += encode_json_bytes(b'{"events":[' + b",".join(lines) + b"]}")
                client.event_cursor += len(lines)
        has_log = client.log_cursor in (None, self._log.end)
        has_events = client.event_cursor in (None, self._events.next)
        if self._farewell is not None and has_log and has_events and not client.said_ended:
            client.said_ended = True
            client.out += self._farewell

    def _tell_behind(self, client: "_Client") -> None:
        behind: dict[str, int | None] = {"events_from": None, "log_from": None}
        if client.event_cursor is not None and client.event_cursor < self._events.start:
            client.event_cursor = behind["events_from"] = self._events.start
        if client.log_cursor is not None and client.log_cursor < self._log.start:
            client.log_cursor = behind["log_from"] = self._log.start
        if any(value is not None for value in behind.values()):
            client.out += encode_json({"behind": behind})

    def _watch(self, client: "_Client", mask: int) -> None:
        if client.mask != mask:
            client.mask = mask
            self._selector.modify(client.connection, mask, self._selector.get_key(client.connection).data)

    def _drop(self, client: "_Client") -> None:
        if client not in self._clients:
            return
        self._clients.remove(client)
        with contextlib.suppress(KeyError):
            self._selector.unregister(client.connection)
        client.connection.close()
        if client.role is not None and not client.leaving and not client.said_ended:
            self._commands.left(client.role, politely=False)


class _Client:
    __slots__ = ("connection", "decoder", "event_cursor", "leaving", "log_cursor", "mask", "out", "role", "said_ended")

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.decoder = Decoder()
        self.role: str | None = None
        self.event_cursor: int | None = None
        self.log_cursor: int | None = None
        self.leaving = False
        self.said_ended = False
        self.mask = selectors.EVENT_READ
        self.out = bytearray()


def _cursor(asked: object, least: int, most: int) -> int | None:
    return max(least, min(asked, most)) if isinstance(asked, int) else None


def _may_talk(connection: socket.socket) -> bool:
    """The socket's mode keeps others out; this holds also where its folder was made too open."""
    try:
        _, uid, _ = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    except (OSError, struct.error):
        return False
    return uid in _trusted()


def _trusted() -> Iterable[int]:
    return (0, os.getuid())
