"""A small synchronous client of the keeper's control socket, every wait with a deadline. For cleanup, scripts and tests.

Long-lived clients (faces, observers) read the same frames in their own event loop.
"""

import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

from firsttoken.launch.frames import Decoder, Frame, JsonFrame, encode_json


class ControlError(Exception):
    """The keeper could not be reached or did not answer; the text says which and for how long it was tried."""


class Control:
    """One connection. Use as a context manager."""

    def __init__(self, path: str, *, seconds: float = 5.0) -> None:
        """ControlError where nobody listens at `path`."""
        self._decoder = Decoder()
        self._frames: deque[Frame] = deque()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(seconds)
        self.closed = False
        try:
            self._socket.connect(path)
        except OSError as cause:
            self._socket.close()
            raise ControlError(f"no keeper answers at {path}: {cause.strerror or cause}") from cause

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._socket.close()

    def hello(self, role: str, *, events_from: int | None = None, log_from: int | None = None) -> None:
        self.send({"hello": role, "events_from": events_from, "log_from": log_from})

    def send(self, value: dict[str, Any]) -> None:
        """ControlError where the keeper is gone or takes nothing within the connection's seconds."""
        try:
            self._socket.sendall(encode_json(value))
        except OSError as cause:
            raise ControlError(f"the keeper does not take what it is sent: {cause.strerror or cause}") from cause

    def frames(self, *, seconds: float) -> Iterator[Frame]:
        """What comes, until the keeper closes (`closed`) or the time is over."""
        deadline = time.monotonic() + seconds
        while True:
            while self._frames:
                yield self._frames.popleft()
            left = deadline - time.monotonic()
            if self.closed or left <= 0:
                return
            self._socket.settimeout(left)
            try:
                data = self._socket.recv(1 << 18)
            except TimeoutError:
                return
            except OSError:
                data = b""
            self.closed = not data or self._decoder.broken is not None
            self._frames.extend(self._decoder.feed(data))

    def await_frame(self, wanted: Callable[[Frame], bool], *, seconds: float) -> Frame | None:
        """The first frame that is wanted (those before it are gone); None where the time is over or the keeper closed."""
        for frame in self.frames(seconds=seconds):
            if wanted(frame):
                return frame
        return None

    def state(self, *, seconds: float = 5.0) -> dict[str, Any]:
        """The keeper's state. ControlError where it does not answer in time."""
        self.send({"ask": "state"})
        frame = self.await_frame(lambda item: isinstance(item, JsonFrame) and "state" in item.value, seconds=seconds)
        if not isinstance(frame, JsonFrame):
            raise ControlError(f"the keeper did not tell its state within {seconds:.0f} s")
        state: dict[str, Any] = frame.value["state"]
        return state
