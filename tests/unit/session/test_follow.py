"""When following stops, with which status, and what is told on the way."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_keeper import BEGIN, PLAN, FakeKeeper, gone, in_time

from firsttoken.history.runs import RunFolder
from firsttoken.hosts.procfs import Procfs
from firsttoken.model import codec
from firsttoken.model.events import Body, Counters, Emptied, Event, HttpAnswer, Listening, LogLine, Planned, Tick
from firsttoken.model.plan import Policy
from firsttoken.model.process import ListenSocket, Sample
from firsttoken.model.result import Result
from firsttoken.model.words import ProbeKind, Verdict
from firsttoken.session.follow import Follower, Seen
from firsttoken.session.stream import Ended

TOKEN = HttpAnswer(probe=ProbeKind.COMPLETION, url="http://127.0.0.1:8000/v1/completions", status=200, tokens=8, text=" the", sane=True)
READY: tuple[Body, ...] = (Listening(sockets=(ListenSocket(100, "127.0.0.1", 8000, None),)), TOKEN, TOKEN)
ERROR = LogLine(offset=0, length=1, text="RuntimeError: no", error="e", fatal=True)


@asynccontextmanager
async def following(keeper: FakeKeeper, **options: Any) -> AsyncIterator[Follower]:
    follower = Follower(folder=keeper.folder, **options)
    try:
        yield follower
    finally:
        await follower.leave()


async def still(keeper: FakeKeeper, seconds: int) -> None:
    """So many rounds of counters in which nothing moves."""
    for _ in range(seconds):
        keeper.t += 1
        await keeper.play(Counters(interval=1.0, samples=(Sample(100, 1, "S", 0, 0, 0, 0, 0, 0, 0, 1000, 4),)))


def test_a_run_that_is_ready_is_decided_at_once_without_a_further_event(tmp_path: Path) -> None:
    async def story() -> Seen:
        async with FakeKeeper(RunFolder(tmp_path)) as keeper:
            await keeper.play(*BEGIN, *READY)
            async with following(keeper) as follower:
                seen = await follower.until_decided()
            await keeper.heard(lambda message: "bye" in message)
            return seen

    seen = in_time(story())
    assert (seen.code, seen.result.verdict, seen.ended) == (0, Verdict.READY, None)


def test_a_verdict_of_the_past_is_no_decision(tmp_path: Path) -> None:
    async def story() -> Seen:
        async with FakeKeeper(RunFolder(tmp_path)) as keeper:
            await keeper.play(*BEGIN)
            await still(keeper, 200)  # stalled beyond patience, once
            keeper.t += 1
            moving = Sample(100, 1, "S", 0, 0, 0, 10**9, 0, 0, 0, 1000, 4)
            await keeper.play(Counters(interval=1.0, samples=(moving,)))
            async with following(keeper) as follower:
                return await follower.until_decided(max_wait=0.1)

    seen = in_time(story())
    assert (seen.code, seen.result.verdict) == (None, Verdict.STARTING)


def test_a_stalled_start_is_decided_by_the_callers_patience(tmp_path: Path) -> None:
    def hasty(_: Policy) -> Policy:
        return Policy(stall_patience=15, long_stall_patience=15)

    async def story() -> tuple[Seen, Seen]:
        async with FakeKeeper(RunFolder(tmp_path)) as keeper:
            await keeper.play(*BEGIN)
            await still(keeper, 20)
            async with following(keeper) as usual, following(keeper, patience=hasty) as other:
                return await usual.until_decided(max_wait=0.1), await other.until_decided()

    usual, impatient = in_time(story())
    assert (usual.code, usual.result.verdict) == (None, Verdict.STALLED)
    assert impatient.code == 75


def test_when_time_is_up_the_state_so_far_is_told_and_following_can_go_on(tmp_path: Path) -> None:
    async def story() -> tuple[Seen, Seen]:
        async with FakeKeeper(RunFolder(tmp_path)) as keeper:
            await keeper.play(*BEGIN)
            async with following(keeper) as follower:
                early = await follower.until_decided(max_wait=0.05)
                await keeper.play(*READY)
                return early, await follower.until_decided()

    early, late = in_time(story())
    assert (early.code, early.result.verdict) == (None, Verdict.STARTING)
    assert early.result.next[0].startswith("firsttoken wait a-run")
    assert (late.code, late.result.verdict) == (0, Verdict.READY)


def test_no_time_at_all_is_enough_for_a_run_that_is_decided(tmp_path: Path) -> None:
    async def story() -> Seen:
        async with FakeKeeper(RunFolder(tmp_path)) as keeper:
            await keeper.play(*BEGIN, *READY)
            async with following(keeper) as follower:
                return await follower.until_decided(max_wait=0)

    assert in_time(story()).code == 0


def test_a_death_is_told_with_the_last_words_that_come_behind_it(tmp_path: Path) -> None:
    async def story() -> Seen:
        async with FakeKeeper(RunFolder(tmp_path)) as keeper:
            await keeper.play(*BEGIN)
            await keeper.play(gone(code=1), ERROR, Emptied())
            async with following(keeper) as follower:
                task = asyncio.ensure_future(follower.until_decided())
                await keeper.end(1)
                return await task

    seen = in_time(story())
    assert (seen.code, seen.ended) == (69, Ended(True, 1, None))
    assert "RuntimeError: no" in seen.result.reason


def test_a_death_that_leaves_processes_behind_is_told_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firsttoken.session.follow.LAST_WORDS", 0.05)

    async def story() -> tuple[Seen, Seen]:
        async with FakeKeeper(RunFolder(tmp_path)) as keeper:
            await keeper.play(*BEGIN, gone(code=1))
            async with following(keeper) as follower:
                seen = await follower.until_decided()
                await keeper.play(Emptied())
                await keeper.end(1)
                return seen, await follower.until_end()

    decided, ended = in_time(story())
    assert (decided.code, decided.ended) == (69, None)
    assert ended.ended == Ended(True, 1, None)


def test_what_is_told_on_the_way_comes_in_order(tmp_path: Path) -> None:
    changes: list[Result] = []
    log: list[bytes] = []
    kinds: list[str] = []

    async def story() -> None:
        async with FakeKeeper(RunFolder(tmp_path)) as keeper:
            await keeper.play(*BEGIN)
            told = {"on_change": changes.append, "on_log": log.append, "on_event": lambda event: kinds.append(event.body.kind)}
            await keeper.output(b"hello ")
            async with following(keeper, log_from=0, **told) as follower:
                await follower.until_decided(max_wait=0.05)
                await keeper.output(b"world")
                await keeper.play(*READY, gone(code=0), Emptied())
                task = asyncio.ensure_future(follower.until_end())
                await keeper.end()
                await task

    in_time(story())
    assert b"".join(log) == b"hello world"
    assert kinds == ["plan", "launched", "listening", "http_answer", "http_answer", "exited", "emptied"]
    assert [change.verdict for change in changes] == ["starting", "starting", "starting", "ready"]


def test_a_run_whose_keeper_and_observer_are_gone_is_unknown_and_does_not_wait(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    write(folder, *BEGIN, Tick())
    seen = in_time(Follower(folder=folder).until_decided())
    assert (seen.code, seen.result.verdict) == (76, Verdict.UNKNOWN)
    assert "nobody follows this run any more" in seen.result.reason
    assert seen.result.next[0] == "firsttoken cleanup a-run"
    stored = Follower(folder=folder).stored()
    assert (stored.verdict, stored.reason) == (Verdict.UNKNOWN, seen.result.reason)


def test_a_run_that_was_over_keeps_its_verdict_without_a_keeper(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    write(folder, *BEGIN, gone(code=3), Emptied())
    seen = in_time(Follower(folder=folder).until_decided())
    assert (seen.code, seen.result.verdict, seen.result.exit.code) == (69, Verdict.FAILED, 3)
    assert Follower(folder=folder).stored().verdict is Verdict.FAILED


def test_a_folder_without_a_record_says_so(tmp_path: Path) -> None:
    stored = Follower(folder=RunFolder(tmp_path)).stored()
    assert (stored.run, stored.verdict) == (tmp_path.name, Verdict.UNKNOWN)
    assert "its launch was broken off" in stored.reason


def test_a_run_in_its_observers_hands_is_followed_without_a_keeper(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    stat = Procfs().stat(os.getpid())
    assert stat is not None
    folder.write_json("keeper.json", {"observer": {"pid": os.getpid(), "start": stat.start}})
    write(folder, Planned(plan=PLAN, policy=Policy()), *BEGIN[1:], *READY)
    seen = in_time(Follower(folder=folder).until_decided())
    assert (seen.code, seen.ended) == (0, None)


def write(folder: RunFolder, *bodies: Body) -> None:
    with folder.events_file.open("ab") as file:
        for number, body in enumerate(bodies, 1):
            file.write(codec.encode(Event(seq=number, t=float(number), wall=1e9 + number, node="node", body=body)))
