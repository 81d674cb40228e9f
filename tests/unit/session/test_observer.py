"""An observer beside a keeper: what it posts, what it asks for, and how it leaves, dies and comes back."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fake_keeper import BEGIN, PLAN, FakeKeeper, gone, in_time
from test_follow import READY, TOKEN

from firsttoken.history.runs import RunFolder
from firsttoken.judge.state import State
from firsttoken.model.events import Body, Counters, Emptied, HttpAsked, Judged, Listening, LogActivity, LogLine, Missed, Planned
from firsttoken.model.plan import Policy
from firsttoken.model.process import ListenSocket
from firsttoken.model.requests import AskForToken, Request
from firsttoken.model.words import ProbeKind, Verdict
from firsttoken.session.observer import Observer

QUICK = Policy(sample_interval=0.05)
LISTENS = Listening(sockets=(ListenSocket(100, "127.0.0.1", 8000, None),))
CLAIM = LogLine(offset=0, length=1, text="ready", claims_ready=True)


@dataclass
class FakeSenses:
    """Sees what a test lets it see. `fails`: which of its senses raise."""

    lines: list[tuple[bytes, int]] = field(default_factory=list)
    asked: list[Request] = field(default_factory=list)
    fails: tuple[str, ...] = ()
    activity: Body | None = None
    answer: Body = TOKEN

    def log(self, data: bytes, offset: int, wall: float) -> Sequence[Body]:
        self.lines.append((data, offset))
        return [LogLine(offset=offset, length=len(data), text=data.decode())]

    def log_activity(self) -> Body | None:
        found, self.activity = self.activity, None
        return found

    async def sample(self, state: State, interval: float) -> Sequence[Body]:
        if "sample" in self.fails:
            raise RuntimeError("no counters today")
        return [Counters(interval=interval, samples=())]

    async def ask(self, request: Request, state: State, emit: Callable[[Body], None]) -> None:
        self.asked.append(request)
        if "ask" in self.fails:
            raise RuntimeError("no probe today")
        emit(HttpAsked(probe=ProbeKind.COMPLETION, url="http://127.0.0.1:8000/v1/completions"))
        emit(self.answer)

    def replan(self, state: State) -> Planned | None:
        return None


def observe(folder: Path, play: Callable[[FakeKeeper], Any], senses: FakeSenses) -> list[Body]:
    """An observer beside what the keeper plays, until it has left; all events."""

    async def story() -> list[Body]:
        async with FakeKeeper(RunFolder(folder)) as keeper:
            await keeper.play(*BEGIN[1:])
            task = asyncio.ensure_future(Observer(folder=keeper.folder, senses=senses).run([Planned(plan=PLAN, policy=QUICK)]))
            await keeper.joined()
            await play(keeper)
            await task
            return [event.body for event in keeper.events]

    found: list[Body] = in_time(story())
    return found


async def leaves(keeper: FakeKeeper) -> None:
    await keeper.play(gone(code=0), Emptied())
    await keeper.heard(lambda message: message == {"bye": True})
    await keeper.end()


def test_it_says_goodbye_when_nothing_is_left_so_that_nobody_waits_for_it(tmp_path: Path) -> None:
    events = observe(tmp_path, leaves, FakeSenses())
    assert events[-1] != Emptied()
    last = [event for event in events if isinstance(event, Judged)][-1]
    assert last.verdict is Verdict.FAILED


def test_changes_are_posted_and_the_result_is_written(tmp_path: Path) -> None:
    async def play(keeper: FakeKeeper) -> None:
        await keeper.play(*READY)
        await keeper.recorded(lambda body: isinstance(body, Judged) and body.verdict is Verdict.READY)
        await leaves(keeper)

    observe(tmp_path, play, FakeSenses())
    assert RunFolder(tmp_path).result()["verdict"] == "ready"


def test_tokens_are_asked_for_twice_and_no_more(tmp_path: Path) -> None:
    async def play(keeper: FakeKeeper) -> None:
        await keeper.play(LISTENS, CLAIM)
        await keeper.recorded(lambda body: isinstance(body, Judged) and body.verdict is Verdict.READY)
        for _ in range(3):
            await keeper.play(CLAIM)
        await leaves(keeper)

    senses = FakeSenses()
    observe(tmp_path, play, senses)
    assert senses.asked == [AskForToken(number=1), AskForToken(number=2)]


def test_senses_that_fail_say_so_once_and_the_run_goes_on(tmp_path: Path) -> None:
    async def play(keeper: FakeKeeper) -> None:
        await keeper.play(LISTENS, CLAIM)
        for _ in range(5):
            await asyncio.sleep(0.06)
            await keeper.play(CLAIM)
        await leaves(keeper)

    events = observe(tmp_path, play, FakeSenses(fails=("sample", "ask")))
    assert sorted(event.reason for event in events if isinstance(event, Missed)) == [
        "RuntimeError: no counters today",
        "RuntimeError: no probe today",
    ]


def test_log_bytes_become_events_and_what_was_said_last_is_told_at_the_end(tmp_path: Path) -> None:
    senses = FakeSenses()

    async def play(keeper: FakeKeeper) -> None:
        await keeper.output(b"one")
        await keeper.recorded(lambda body: isinstance(body, LogLine) and body.text == "one")
        senses.activity = LogActivity(bytes=3, lines=1, fresh=1, offset=3, last="last words")
        await leaves(keeper)

    events = observe(tmp_path, play, senses)
    assert (b"one", 0) in senses.lines
    assert any(isinstance(event, LogActivity) and event.last == "last words" for event in events)
    assert "last words" in RunFolder(tmp_path).result()["reason"]


def test_one_that_is_started_again_goes_on_where_the_record_ends(tmp_path: Path) -> None:
    async def story() -> tuple[list[Body], FakeSenses]:
        async with FakeKeeper(RunFolder(tmp_path)) as keeper:
            await keeper.play(*BEGIN[1:])
            first = asyncio.ensure_future(Observer(folder=keeper.folder, senses=FakeSenses()).run([Planned(plan=PLAN, policy=QUICK)]))
            await keeper.joined()
            await keeper.output(b"one")
            await keeper.recorded(lambda body: isinstance(body, LogLine))
            await keeper.recorded(lambda body: isinstance(body, Counters))
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            await keeper.output(b"two")
            senses = FakeSenses()
            again = asyncio.ensure_future(Observer(folder=keeper.folder, senses=senses).run([Planned(plan=PLAN, policy=QUICK)]))
            await keeper.recorded(lambda body: isinstance(body, LogLine) and body.text == "two")
            await leaves(keeper)
            await again
            return [event.body for event in keeper.events], senses

    events, senses = in_time(story())
    assert senses.lines == [(b"two", 3)]
    assert sum(isinstance(event, Planned) for event in events) == 1
    verdicts = [event.verdict for event in events if isinstance(event, Judged)]
    assert verdicts == ["starting", "failed"]


def test_one_that_is_started_after_the_end_says_goodbye_too(tmp_path: Path) -> None:
    async def story() -> list[Body]:
        async with FakeKeeper(RunFolder(tmp_path)) as keeper:
            await keeper.play(*BEGIN, gone(code=1), Emptied())
            observer = asyncio.ensure_future(Observer(folder=keeper.folder, senses=FakeSenses()).run())
            await keeper.heard(lambda message: message == {"bye": True})
            await keeper.end(1)
            await observer
            return [event.body for event in keeper.events]

    assert [body.verdict for body in in_time(story()) if isinstance(body, Judged)] == ["starting", "failed"]
