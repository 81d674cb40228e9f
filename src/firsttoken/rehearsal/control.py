"""The line between the main process and one rank: JSON lines over a socket pair.

Key insight: the line is also the life line. Its end of file is how main learns that a rank died, and a rank that main died.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

Message = dict[str, Any]


class Control:
    """One end. Sending is safe from any thread; messages are read by one."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._lock = threading.Lock()

    def send(self, message: Message) -> None:
        """A message to an end that is gone is dropped: whoever reads will see the end of file."""
        try:
            with self._lock:
                self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            pass

    def messages(self) -> Iterator[Message]:
        """All messages until the other end is gone."""
        try:
            with self._socket.makefile("rb") as lines:
                for line in lines:
                    yield json.loads(line)
        except (OSError, json.JSONDecodeError):
            return
