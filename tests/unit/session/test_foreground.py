"""Signals of a foreground run: what goes to the keeper, before ready, after it, and when nobody is there to take it."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from fake_keeper import BEGIN, FakeKeeper, gone, in_time
from test_follow import READY

from firsttoken.history.runs import RunFolder
from firsttoken.model.events import Emptied, Judged, Missed, StopAsked
from firsttoken.model.words import Phase, Verdict
from firsttoken.session.follow import Follower, Seen
from firsttoken.session.foreground import Foreground, held_signals

Play = Callable[[FakeKeeper], Coroutine[Any, Any, None]]


def run(folder: Path, play: Play, **options: Any) -> tuple[Seen, int, list[dict[str, Any]]]:
    """A foreground run beside what the keeper plays; how it ended, and what clients asked of the keeper."""

    async def story() -> tuple[Seen, int, list[dict[str, Any]]]:
        async with FakeKeeper(RunFolder(folder)) as keeper:
            await keeper.play(*BEGIN)
            task = asyncio.ensure_future(Foreground(Follower(folder=keeper.folder, hello="face"), **options).run())
            await keeper.joined()
            await play(keeper)
            seen, code = await task
            return seen, code, [message for message in keeper.said if "hello" not in message and "bye" not in message]

    with held_signals():  # a signal that comes before our loop is ready for it must not end the tests
        result: tuple[Seen, int, list[dict[str, Any]]] = in_time(story())
    return result


async def ended(keeper: FakeKeeper, code: int | None = None, number: int | None = None) -> None:
    await keeper.play(gone(code=code, signal=number), Emptied())
    await keeper.end(code)


def test_the_servers_end_is_ours(tmp_path: Path) -> None:
    seen, code, asked = run(tmp_path, lambda keeper: ended(keeper, 3))
    assert (code, seen.result.verdict, asked) == (3, Verdict.FAILED, [])
    _, code, _ = run(tmp_path / "other", lambda keeper: ended(keeper, number=9))
    assert code == 137


def test_a_signal_while_starting_is_a_stop_and_a_second_one_forces_it(tmp_path: Path) -> None:
    said: list[str] = []

    async def play(keeper: FakeKeeper) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await keeper.heard(lambda message: "stop" in message)
        os.kill(os.getpid(), signal.SIGTERM)
        await keeper.heard(lambda message: message.get("stop", {}).get("force") is True)
        await ended(keeper, number=15)

    _, code, asked = run(tmp_path, play, said=said.append)
    assert code == 130
    assert asked == [{"stop": {"by": "signal SIGINT", "force": False}}, {"stop": {"by": "signal SIGTERM", "force": True}}]
    assert said == ["SIGINT: stopping the server, which is still starting; once more to kill it"]


def test_a_signal_after_ready_is_forwarded_as_it_came(tmp_path: Path) -> None:
    async def play(keeper: FakeKeeper) -> None:
        await keeper.play(*READY, Judged(verdict=Verdict.READY, phase=Phase.FIRST_TOKEN, reason="so"))
        await asyncio.sleep(0.1)
        for number in (signal.SIGUSR2, signal.SIGHUP):
            os.kill(os.getpid(), number)
            await keeper.heard(lambda message, number=number: message.get("signal") == int(number))
        await ended(keeper, 0)

    _, code, asked = run(tmp_path, play)
    assert (code, asked) == (0, [{"signal": int(signal.SIGUSR2)}, {"signal": int(signal.SIGHUP)}])


def test_what_a_server_leaves_behind_after_a_forwarded_signal_is_stopped(tmp_path: Path) -> None:
    async def play(keeper: FakeKeeper) -> None:
        await keeper.play(*READY)
        await asyncio.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)
        await keeper.heard(lambda message: "signal" in message)
        await keeper.play(gone(code=0))
        await keeper.heard(lambda message: message == {"stop": {"by": "signal SIGINT", "force": False}})
        await keeper.play(Emptied())
        await keeper.end(0)

    assert run(tmp_path, play)[1] == 0


def test_a_signal_when_only_leftovers_live_stops_them(tmp_path: Path) -> None:
    async def play(keeper: FakeKeeper) -> None:
        await keeper.play(*READY, gone(code=0))
        await asyncio.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)
        await keeper.heard(lambda message: "stop" in message)
        await keeper.play(StopAsked(by="signal SIGINT"), Emptied())
        await keeper.end(0)

    said: list[str] = []
    run(tmp_path, play, said=said.append)
    assert said == ["SIGINT: stopping what the server left; once more to kill it"]


def test_signals_that_came_during_the_launch_are_acted_on(tmp_path: Path) -> None:
    async def play(keeper: FakeKeeper) -> None:
        await keeper.heard(lambda message: message.get("stop") == {"by": "signal SIGTERM", "force": False})
        await ended(keeper, number=15)

    assert run(tmp_path, play, held=[signal.SIGTERM])[1] == 143


def test_held_signals_are_kept_and_then_let_through_again() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    with held_signals() as held:
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGINT)
    assert held == [signal.SIGUSR1, signal.SIGINT]
    assert signal.getsignal(signal.SIGUSR1) is before


def test_what_we_were_told_to_ignore_stays_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)

    async def play(keeper: FakeKeeper) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGUSR1)
        await keeper.heard(lambda message: "signal" in message)
        await ended(keeper, 0)

    try:
        assert run(tmp_path, play)[2] == [{"signal": int(signal.SIGUSR1)}]
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_server_that_no_signal_ends_is_left_to_its_keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firsttoken.session.foreground._LEFT_AFTER", 0.2)
    said: list[str] = []

    async def play(keeper: FakeKeeper) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await keeper.heard(lambda message: "stop" in message)
        await keeper.play(StopAsked(by="signal SIGTERM"), Missed(request="stop", reason="it is in state D."))

    assert run(tmp_path, play, said=said.append)[1] == 143
    assert said[-1].startswith("it is in state D. Its keeper waits for that; we do not")


def test_a_signal_takes_the_link_that_there_is_where_the_runs_folder_may_be_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firsttoken.session.foreground.FAR.far", lambda path: path == str(tmp_path))
    greeted: list[object] = []

    async def play(keeper: FakeKeeper) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await keeper.heard(lambda message: "stop" in message)
        greeted.extend(message["hello"] for message in keeper.said if "hello" in message)
        await ended(keeper, number=15)

    assert run(tmp_path, play)[1] == 143
    assert greeted == ["face"]


def test_until_ready_takes_the_server_along_with_the_status_of_the_decision(tmp_path: Path) -> None:
    async def play(keeper: FakeKeeper) -> None:
        await keeper.play(*READY)
        await keeper.heard(lambda message: message == {"stop": {"by": "run --until ready", "force": False}})
        await ended(keeper, number=15)

    seen, code, _ = run(tmp_path, play, until_ready=True)
    assert (code, seen.result.verdict) == (0, Verdict.READY)


def test_until_ready_has_an_end_in_time(tmp_path: Path) -> None:
    async def play(keeper: FakeKeeper) -> None:
        await keeper.heard(lambda message: "stop" in message)
        await ended(keeper, number=15)

    seen, code, _ = run(tmp_path, play, until_ready=True, max_wait=0.05)
    assert (code, seen.result.verdict) == (124, Verdict.STARTING)


def test_an_end_that_nobody_saw_is_unknown(tmp_path: Path) -> None:
    async def play(keeper: FakeKeeper) -> None:
        await keeper.die()

    seen, code, _ = run(tmp_path, play)
    assert (code, seen.result.verdict) == (76, Verdict.UNKNOWN)
