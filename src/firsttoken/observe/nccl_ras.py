"""Asks NCCL's own monitor, which listens in every process of an NCCL job (2.24 or newer, unless NCCL_RAS_ENABLE=0), what it knows.

It listens on the loopback (NCCL_RAS_ADDR, by default localhost:28028), where the first process of the machine has the port: so it is asked
only where a process of the run holds that port, and what it tells counts only for processes of the run. Asking costs the job a round of
small messages between its monitor threads, and takes up to ten seconds where one of them does not answer.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping

from firsttoken.model.collectives import Comparison
from firsttoken.model.process import ListenSocket
from firsttoken.observe.nccl_ras_report import compared, read_report

PORT = 28028
PROTOCOL = 2
WAITS = 3
"""seconds for which the monitor itself waits for its peers"""
_WITHIN = 12.0
_MOST_TEXT = 32 << 20


class NoAnswer(Exception):
    """The monitor told nothing; the text says why."""


def port_of(address: str | None) -> int:
    """Of NCCL_RAS_ADDR."""
    tail = (address or "").rpartition(":")[2]
    return int(tail) if tail.isdecimal() and 0 < int(tail) < 65536 else PORT


def socket_of(sockets: Iterable[ListenSocket], pids: Iterable[int], port: int = PORT) -> ListenSocket | None:
    """The monitor's, where a process of the run holds it."""
    members = set(pids)
    return next((one for one in sockets if one.port == port and one.pid in members), None)


async def ask(socket: ListenSocket, *, within: float = _WITHIN) -> str:
    """The monitor's report, JSON where it knows that and text else. NoAnswer."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", None: "127.0.0.1"}.get(socket.host, socket.host)
    try:
        async with asyncio.timeout(within):
            reader, writer = await asyncio.open_connection(host, socket.port, limit=1 << 16)
            try:
                return await _talk(reader, writer)
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except TimeoutError as error:
        raise NoAnswer(f"no answer within {within:.0f} s") from error
    except (OSError, ValueError) as error:
        raise NoAnswer(str(error)) from error


async def _talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    hello = await _said(reader, writer, f"CLIENT PROTOCOL {PROTOCOL}")
    if not hello.upper().startswith("SERVER PROTOCOL"):
        raise NoAnswer(f"it is not NCCL's monitor: {hello[:60]!r}")
    await _said(reader, writer, f"TIMEOUT {WAITS}")
    knows_json = (await _said(reader, writer, "SET FORMAT json")).upper().startswith("OK")
    writer.write(b"STATUS\n" if knows_json else b"VERBOSE STATUS\n")
    parts, size = [], 0
    while size < _MOST_TEXT and (part := await reader.read(1 << 16)):
        parts.append(part)
        size += len(part)
    return b"".join(parts).decode("utf8", "replace")


async def _said(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: str) -> str:
    writer.write(line.encode() + b"\n")
    await writer.drain()
    return (await reader.readline()).decode("utf8", "replace").strip()


async def heard(socket: ListenSocket, rank_of: Mapping[int, int], pids: Iterable[int], world: int) -> Comparison:
    """NoAnswer too where it knows no process of the run."""
    text = await ask(socket)
    told = compared(read_report(text), rank_of, pids, world)
    if told is None:
        raise NoAnswer("it names no process of this run (another pid namespace, or nothing differs and it lists nobody)")
    return told
