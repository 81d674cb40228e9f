"""The order in which servers are launched and asked, and what becomes of those that do not answer. The servers are fakes over real HTTP."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from fake_streams import Told, fake, text_events

from firsttoken.drive.prompts import shipped
from firsttoken.knowledge.load import profiles
from firsttoken.model.plan import Policy
from firsttoken.model.result import Result
from firsttoken.model.speculation import Answer, Sampling
from firsttoken.model.words import Verdict
from firsttoken.plan.speculation import speculating
from firsttoken.plan.world import World
from firsttoken.session.speculating.blocks import Load
from firsttoken.session.speculating.place import other_gpus
from firsttoken.session.speculating.servers import BASELINE, SPECULATIVE, BrokenOff, NotServing, Serving, Stage, addressed
from firsttoken.session.speculating.speculate import Trial

COMMAND = ("firsttoken", "rehearse", "--speculative", "draft", "--port", "0")
WORDS = ["one", " two", " three"]


class FakeStage(Stage):
    """Launches nothing: each launch is a fake server. `dies_after`: answers that the speculative one gives before its connection breaks."""

    def __init__(self, *, refuses: tuple[str, ...] = (), dies_after: int | None = None) -> None:
        self.lines: list[str] = []
        super().__init__(said=self.lines.append, policy=Policy())
        self.launches: list[tuple[str, tuple[str, ...]]] = []
        self.asked: list[str] = []
        self.refuses, self.dies_after = refuses, dies_after

    @asynccontextmanager
    async def launched(self, side: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> AsyncIterator[Serving]:
        self.launches.append((side, tuple(argv)))
        if side in self.refuses:
            raise NotServing(side, Result(run=f"run-{side}", verdict=Verdict.CRASHED, reason="it died"), 69)
        numbers = itertools.count(1)

        def script(path: str, body: dict[str, Any]) -> Told:
            if path == "/v1/models":
                return Told(body={"data": [{"id": "m"}]})
            if not path.endswith("completions"):
                return Told(status=404, body={})
            self.asked.append(side)
            events = text_events(WORDS, chat=True, usage=6 if side == SPECULATIVE else 3)
            dead = side == SPECULATIVE and self.dies_after is not None and next(numbers) > self.dies_after
            return Told(events=events[:1], breaks=True) if dead else Told(events=events)

        async with fake(script) as made, addressed(side, made.url, None) as serving:
            serving.engine = "rehearsal"
            try:
                yield serving
            except BrokenOff as error:
                if error.side != side:
                    raise
                raise NotServing(side, Result(run=f"run-{side}", verdict=Verdict.CRASHED, reason="it died"), 69) from error


def answered(stage: FakeStage, *, movable: bool = True, tune: bool = False) -> Answer:
    known = speculating(COMMAND, World(env={}), profiles())
    load = Load(prompts=shipped(), concurrencies=(1, 2), tokens=8, blocks=4, samplings=(Sampling.GREEDY, Sampling.SAMPLED))
    trial = Trial(stage=stage, load=load, prompts="ours", speculating=replace(known, movable=movable), tune=tune)
    return asyncio.run(trial.run())


def test_side_by_side_each_is_launched_once_and_asked_in_the_order_a_b_b_a() -> None:
    stage = FakeStage()
    answer = answered(stage)
    assert [side for side, _ in stage.launches] == [SPECULATIVE, BASELINE]
    assert "--speculative" not in stage.launches[1][1]
    assert [one.concurrency for one in answer.levels] == [1, 2]
    measured = stage.asked[2 + 4 :]  # settling asks each once, warming up each twice
    assert measured[:8] == [BASELINE, SPECULATIVE, SPECULATIVE, BASELINE, SPECULATIVE, BASELINE, BASELINE, SPECULATIVE]
    assert answer.measured is not None
    assert (answer.measured.arrangement, answer.code in (0, 76)) == ("interleaved", True)


def test_where_they_cannot_live_side_by_side_the_launches_go_a_b_b_a() -> None:
    stage = FakeStage()
    answer = answered(stage, movable=False)
    assert [side for side, _ in stage.launches] == [SPECULATIVE, BASELINE, SPECULATIVE]
    assert [one.speedup.blocks for one in answer.levels] == [4, 4]
    assert answer.measured is not None
    assert answer.measured.arrangement == "in turn"
    assert any("one server at a time" in line for line in stage.lines)


def test_a_speculative_server_that_does_not_start_is_told_and_the_baseline_is_tried() -> None:
    stage = FakeStage(refuses=(SPECULATIVE,))
    answer = answered(stage)
    assert [side for side, _ in stage.launches] == [SPECULATIVE, BASELINE]
    assert (answer.opinion.pays, answer.opinion.cause, answer.code) == (None, "does-not-serve", 69)
    assert "without it the same command serves" in answer.opinion.reason
    assert answer.results[SPECULATIVE] is not None


def test_where_neither_serves_speculation_is_not_blamed() -> None:
    answer = answered(FakeStage(refuses=(SPECULATIVE, BASELINE)))
    assert "speculation is not the cause" in answer.opinion.reason
    baseline = answered(FakeStage(refuses=(BASELINE,)))
    assert (baseline.opinion.cause, baseline.code) == ("baseline-does-not-serve", 69)


def test_a_server_that_dies_under_load_is_told_by_its_verdict() -> None:
    answer = answered(FakeStage(dies_after=3))
    assert (answer.opinion.pays, answer.opinion.cause, answer.code) == (None, "does-not-serve", 69)
    assert answer.runs[SPECULATIVE] == "run-speculative"


def test_the_second_set_of_gpus_is_the_next_ones_of_the_same_kind() -> None:
    four = dict.fromkeys("0123", "H200")
    assert other_gpus(2, None, four) == "2,3"
    assert other_gpus(2, "3,1,0,2", four) == "0,2"
    assert other_gpus(4, None, four) is None
    assert other_gpus(1, None, {"0": "H200", "1": "A10"}) is None
    assert other_gpus(1, "GPU-5f2e,GPU-77aa", four) is None
