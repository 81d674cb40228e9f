"""The other end of the control socket, in our own event loop: plays events, takes posts and gives them their place, and dies on demand."""

import asyncio
import os
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from firsttoken.history.runs import RunFolder
from firsttoken.hosts.procfs import Procfs
from firsttoken.launch.frames import Decoder, JsonFrame, encode_json, encode_log
from firsttoken.model import codec
from firsttoken.model.events import Body, Event, Exited, Launched, Planned
from firsttoken.model.plan import Endpoint, Plan, Policy
from firsttoken.model.process import ProcessKey

SECONDS = 20.0
ROOT = ProcessKey("node", 100, 1)
PLAN = Plan(command=("engine", "serve"), engine="engine", endpoint=Endpoint(port=8000))
BEGIN: tuple[Body, ...] = (Planned(plan=PLAN, policy=Policy()), Launched(process=ROOT, argv=("engine", "serve"), run="a-run"))


class FakeKeeper:
    """`async with FakeKeeper(folder) as keeper:`. `t` is its clock. `said` holds every message of every client but posts, in order."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.t = 0.0
        self.events: list[Event] = []
        self.log_bytes = b""
        self.said: list[dict[str, Any]] = []
        self._clients: set[asyncio.StreamWriter] = set()
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()
        self._place = tempfile.TemporaryDirectory(prefix="firsttoken-test-")

    async def __aenter__(self) -> "FakeKeeper":
        self.folder.path.mkdir(parents=True, exist_ok=True)
        socket = str(Path(self._place.name) / "s")
        self._server = await asyncio.start_unix_server(self._serve, socket)
        procfs = Procfs()
        own = procfs.stat(os.getpid())
        assert own is not None
        self.folder.write_json("keeper.json", {"socket": socket, "pid": os.getpid(), "start": own.start, "boot_id": procfs.boot_id()})
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.die()
        self._place.cleanup()

    async def play(self, *bodies: Body, stored: bool = True) -> None:
        """Records and sends. `stored` False: the disk does not have it (yet)."""
        for body in bodies:
            event = Event(seq=len(self.events) + 1, t=self.t, wall=1e9 + self.t, node="node", body=body)
            self.events.append(event)
            if stored:
                with self.folder.events_file.open("ab") as file:
                    file.write(codec.encode(event))
            self._send(encode_json({"events": [_fields(event)]}))
        async with self._changed:
            self._changed.notify_all()
        await asyncio.sleep(0)

    async def output(self, data: bytes) -> None:
        self._send(encode_log(len(self.log_bytes), self.t, data))
        self.log_bytes += data
        await asyncio.sleep(0)

    async def send(self, frame: bytes) -> None:
        """Any bytes, once there is somebody to hear them."""
        await self.joined()
        self._send(frame)

    async def end(self, code: int | None = 0) -> None:
        """The farewell."""
        await self.send(encode_json({"ended": {"code": code, "signal": None}}))
        await self.die()

    async def die(self) -> None:
        self._server.close()
        for writer in self._open:
            writer.close()
        await asyncio.sleep(0)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # what was closed is let go of

    async def heard(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Waits for a message; the first one that fits."""
        found: list[dict[str, Any]] = []

        def fits() -> bool:
            found[:] = [message for message in self.said if condition(message)]
            return bool(found)

        await self._until(fits)
        return found[0]

    async def recorded(self, condition: Callable[[Body], bool]) -> Body:
        """Waits for an event; the first body that fits."""
        found: list[Body] = []

        def fits() -> bool:
            found[:] = [event.body for event in self.events if condition(event.body)]
            return bool(found)

        await self._until(fits)
        return found[0]

    async def joined(self) -> None:
        """Waits for the first client."""
        await self.heard(lambda message: "hello" in message)

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS), self._changed:
            await self._changed.wait_for(condition)

    def _send(self, frame: bytes) -> None:
        for writer in self._clients:
            writer.write(frame)

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Not a coroutine: one that is cancelled before it began would leave the connection open."""
        self._open.add(writer)
        task = asyncio.ensure_future(self._listen(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = Decoder()
        with suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(1 << 16):
                for frame in decoder.feed(data):
                    assert isinstance(frame, JsonFrame)
                    await self._hear(writer, frame.value)
        self._clients.discard(writer)
        self._open.discard(writer)
        writer.close()

    async def _hear(self, writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        if "hello" in message:
            self._clients.add(writer)
            start = message["log_from"]
            if start is not None and self.log_bytes[start:]:
                writer.write(encode_log(start, self.t, self.log_bytes[start:]))
            if message["events_from"] is not None:
                writer.write(encode_json({"events": [_fields(event) for event in self.events if event.seq >= message["events_from"]]}))
        if "post" in message:
            await self.play(*(codec.body_from_fields(str(fields.pop("kind")), fields) for fields in message["post"]))
            return
        self.said.append(message)
        async with self._changed:
            self._changed.notify_all()


def gone(code: int | None = None, signal: int | None = None) -> Exited:
    """The launched command's end."""
    return Exited(process=ROOT, code=code, signal=signal, root=True)


def in_time(story: Coroutine[Any, Any, Any]) -> Any:
    """Runs it to its end, with a deadline."""

    async def bounded() -> Any:
        async with asyncio.timeout(SECONDS):
            return await story

    return asyncio.run(bounded())


def _fields(event: Event) -> dict[str, Any]:
    head = {"seq": event.seq, "t": event.t, "wall": event.wall, "node": event.node}
    return {**head, **codec.body_to_fields(event.body)}
