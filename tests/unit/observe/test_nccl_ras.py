import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.model.collectives import Discord
from firsttoken.model.process import ListenSocket
from firsttoken.observe.nccl_ras import NoAnswer, ask, heard, port_of, socket_of
from firsttoken.observe.nccl_ras_report import compared, read_report

PIDS = {200 + rank: rank for rank in range(4)}


def communicator(counts: list[int], missing: tuple[int, ...] = (), **status: bool) -> dict[str, Any]:
    """As NCCL writes it; rank n is process 200 + n."""
    ranks = [
        {"rank": rank, "host": "10.0.0.1", "pid": 200 + rank, "cuda_dev": rank, "nvml_dev": rank,
         "status": {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False},
         "collective_counts": {"Broadcast": 3, "AllReduce": count}}
        for rank, count in enumerate(counts)
        if rank not in missing
    ]  # fmt: skip
    absent = [{"rank": r, "host": "10.0.0.1", "pid": 200 + r, "cuda_dev": r, "nvml_dev": r,
               "status": {"unresponsive": True, "considered_dead": False, **status}} for r in missing]  # fmt: skip
    return {"hash": "0xabc", "secondary_hash": "0x1:0x2", "size": len(counts), "ranks_count": len(ranks),
            "missing_ranks_count": len(absent), "ranks": ranks, "missing_ranks": absent}  # fmt: skip


def report(*communicators: dict[str, Any]) -> str:
    return json.dumps({"nccl_version": "2.30.7", "communicators_count": len(communicators), "communicators": communicators})


TEXT = """\
NCCL version 2.27.3 compiled with CUDA 12.9
Job summary
===========

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         4         4         4   RUNNING  MISMATCH

Errors
======

Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 41
  Rank 2 has launched up to operation 40 -- GPU 2 managed by process 202 on node 10.0.0.1

"""

Reply = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def with_server(reply: Reply, then: Callable[[ListenSocket], Awaitable[Any]]) -> Any:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reply(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        return await then(ListenSocket(200, "127.0.0.1", server.sockets[0].getsockname()[1], None))


def ras(told: str, *, knows_json: bool = True) -> Reply:
    """A monitor that speaks the protocol."""

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := (await reader.readline()).decode().strip().lower():
            if line.startswith("client protocol"):
                writer.write(b"SERVER PROTOCOL 2\n")
            elif line.startswith("timeout") or (line == "set format json" and knows_json):
                writer.write(b"OK\n")
            elif line in ("status", "verbose status"):
                assert line.startswith("verbose") is not knows_json
                writer.write(told.encode())
                await writer.drain()
                return
            else:
                writer.write(f"ERROR: Unknown command {line}\n".encode())
            await writer.drain()

    return reply


def test_a_rank_that_launched_fewer_operations_is_behind() -> None:
    told = asyncio.run(with_server(ras(report(communicator([41, 41, 40, 41]))), lambda at: heard(at, PIDS, PIDS, 4)))
    assert (told.source, told.ranks, told.behind) == ("nccl_ras", (0, 1, 2, 3), (2,))
    assert "41 AllReduce operations were launched, but by rank 2: 40" in told.disagreements[0].text


def test_an_older_monitor_that_knows_no_json_is_read_as_text() -> None:
    told = asyncio.run(with_server(ras(TEXT, knows_json=False), lambda at: heard(at, PIDS, PIDS, 4)))
    assert told.behind == (2,)


def test_a_rank_that_the_monitor_has_no_answer_from_is_behind() -> None:
    told = compared(read_report(report(communicator([7, 7, 7, 7], missing=(3,)))), PIDS, PIDS, 4)
    assert told is not None
    assert (told.behind, told.disagreements[0].kind) == ((3,), Discord.UNRESPONSIVE)


def test_world_ranks_come_from_pids_and_not_from_the_communicators_own_numbers() -> None:
    told = compared(read_report(report(communicator([5, 4]))), {200: 6, 201: 7}, [200, 201], 8)
    assert told is not None
    assert told.behind == (7,)


def test_equal_counts_say_that_nobody_is_behind() -> None:
    told = compared(read_report(report(communicator([5, 5]))), PIDS, PIDS, 2)
    assert told is not None
    assert (told.ranks, told.behind, told.disagreements) == ((0, 1), (), ())


def test_the_monitor_of_another_job_counts_for_nothing() -> None:
    assert compared(read_report(report(communicator([5, 4]))), {1: 0}, [1], 2) is None
    with pytest.raises(NoAnswer, match="names no process of this run"):
        asyncio.run(with_server(ras(report(communicator([5, 4]))), lambda at: heard(at, {}, [1], 2)))


def test_who_listens_there_and_is_no_monitor_is_told() -> None:
    async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    with pytest.raises(NoAnswer, match="not NCCL's monitor"):
        asyncio.run(with_server(http, ask))


def test_a_monitor_that_never_answers_has_a_deadline() -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    with pytest.raises(NoAnswer, match="no answer within"):
        asyncio.run(with_server(mute, lambda at: ask(at, within=0.1)))


def test_it_is_asked_only_where_a_process_of_the_run_holds_the_port() -> None:
    sockets = [ListenSocket(7, "127.0.0.1", 28028, None), ListenSocket(200, "127.0.0.1", 8000, None)]
    assert socket_of(sockets, [200]) is None
    assert socket_of(sockets, [7]) == sockets[0]
    assert socket_of(sockets, [200], port_of("localhost:8000")) == sockets[1]
    assert (port_of(None), port_of("[::1]:x"), port_of("host:99999")) == (28028, 28028, 28028)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["ranks", "rank", "pid", "status", "size", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.one_of(st.text(max_size=200), JSON.map(lambda inner: json.dumps({"communicators": [inner, {"ranks": inner}]}))))
def test_a_report_is_read_whatever_it_holds(text: str) -> None:
    compared(read_report(text), PIDS, PIDS, 4)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(TEXT.splitlines()), max_size=12))
def test_a_text_in_any_pieces_is_read(lines: list[str]) -> None:
    compared(read_report("\n".join(lines)), PIDS, PIDS, 4)
