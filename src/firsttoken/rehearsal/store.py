"""The rendezvous: a key-value store in the main process, as torch's TCPStore, and the client that ranks use.

Key insight: `get` answers only when the key is there. A client that waits for a key that never comes is blocked in recv(2)
on its socket to the main process, with `wait` as its innermost Python frame, which is what a real store barrier looks like.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import Any


class StoreServer:
    """Serves on a free loopback port, one daemon thread per client."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._changed = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="store", daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), name="store-client", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rwb") as stream:
                for line in stream:
                    request = json.loads(line)
                    stream.write(json.dumps(self._answer(request)).encode() + b"\n")
                    stream.flush()
        except OSError:
            return

    def _answer(self, request: dict[str, Any]) -> Any:
        key = request["key"]
        with self._changed:
            if "value" in request:
                self._values[key] = request["value"]
                self._changed.notify_all()
                return True
            self._changed.wait_for(lambda: key in self._values)
            return self._values[key]


class StoreClient:
    def __init__(self, port: int) -> None:
        self.port = port
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._lines = self._socket.makefile("rb")

    def set(self, key: str, value: Any) -> None:
        self._send({"key": key, "value": value})
        self._lines.readline()

    def wait(self, key: str) -> Any:
        """The value of `key`, as soon as somebody has set it."""
        self._send({"key": key})
        line = self._lines.readline()
        if not line:
            raise ConnectionResetError("the rendezvous store is gone")
        return json.loads(line)

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def _send(self, request: dict[str, Any]) -> None:
        self._socket.sendall(json.dumps(request).encode() + b"\n")
