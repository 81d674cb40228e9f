import asyncio
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from firsttoken.judge.motion import Motion
from firsttoken.judge.state import State
from firsttoken.model.events import Collectives, Missed
from firsttoken.model.process import ListenSocket, Member, ProcessKey, RankTag
from firsttoken.session.witnesses import Witnesses

MEMBERS = {200 + rank: Member(process=ProcessKey("n", 200 + rank, 1), parent=1, title="rank", tag=RankTag(rank=rank)) for rank in range(2)}
STILL = State(members=MEMBERS, motion=Motion(still=10.0))
REPORT = json.dumps(
    {
        "communicators": [
            {"hash": "0x1", "size": 2, "ranks": [{"rank": r, "pid": 200 + r, "collective_counts": {"AllReduce": 5 - r}} for r in (0, 1)]}
        ]
    }
)


def record(rank: int, last: int) -> bytes:
    """Rank 0 waits in a collective, if `last` is its number."""
    entries = [
        {"process_group": ["0", "default_pg"], "collective_seq_id": seq, "profiling_name": "nccl:all_reduce", "state": state}
        for seq, state in ((1, "completed"), (2, "started"))
        if seq <= last
    ]
    return json.dumps(
        {"version": "2.10", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}, "entries": entries}
    ).encode()


def test_dumps_are_asked_for_and_compared_once_they_are_there(tmp_path: Path) -> None:
    records = tmp_path / "flight_recorder"
    records.mkdir()
    os.mkfifo(records / "pipe_0.pipe")
    reader = os.open(records / "pipe_0.pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        witnesses = Witnesses(tmp_path)
        assert asyncio.run(witnesses.hear(STILL, {})) == []
        assert os.read(reader, 100) == b"1\n"
    finally:
        os.close(reader)
    for rank, last in ((0, 2), (1, 1)):
        (records / f"rank_{rank}").write_bytes(record(rank, last))
        os.utime(records / f"rank_{rank}", (time.time() - 1, time.time() - 1))
    (told,) = asyncio.run(witnesses.hear(STILL, {}))
    assert isinstance(told, Collectives)
    assert (told.comparison.source, told.comparison.behind) == ("flight_recorder", (1,))
    assert asyncio.run(witnesses.hear(STILL, {})) == []


def test_a_pipe_that_nobody_reads_holds_nobody_up(tmp_path: Path) -> None:
    (tmp_path / "flight_recorder").mkdir()
    os.mkfifo(tmp_path / "flight_recorder" / "pipe_0.pipe")
    assert asyncio.run(Witnesses(tmp_path).hear(STILL, {})) == []


async def monitor(text: str, state: State, tmp_path: Path) -> list[object]:
    """What is heard of an NCCL monitor that answers `text`, asked twice."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := (await reader.readline()).strip().lower():
            writer.write(b"SERVER PROTOCOL 2\n" if line.startswith(b"client") else text.encode() if line == b"status" else b"OK\n")
            await writer.drain()
            if line == b"status":
                break
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        state = replace(state, sockets=(ListenSocket(200, "127.0.0.1", port, None),))
        witnesses = Witnesses(tmp_path)
        return [body for _ in range(2) for body in await witnesses.hear(state, {"NCCL_RAS_ADDR": f"localhost:{port}"})]


def test_the_monitor_of_the_run_is_heard_and_not_asked_again_at_once(tmp_path: Path) -> None:
    (told,) = asyncio.run(monitor(REPORT, STILL, tmp_path))
    assert isinstance(told, Collectives)
    assert (told.comparison.source, told.comparison.behind) == ("nccl_ras", (1,))


def test_a_monitor_that_knows_other_processes_only_is_told_as_missed(tmp_path: Path) -> None:
    (told,) = asyncio.run(monitor(REPORT.replace("20", "90"), STILL, tmp_path))
    assert isinstance(told, Missed)


@pytest.mark.parametrize("state", [replace(STILL, motion=Motion(still=1.0)), replace(STILL, ready_at=3.0)])
def test_nobody_is_asked_while_it_moves_or_serves(tmp_path: Path, state: State) -> None:
    assert asyncio.run(monitor(REPORT, state, tmp_path)) == []
