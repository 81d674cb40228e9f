"""Trials that are made up, for the shell around the search: a world that answers each launch by its command line."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firsttoken.history.runs import RunFolder
from firsttoken.isolate.settings import Wishes
from firsttoken.model.isolation import Isolation, Outcome, Purpose, Trial
from firsttoken.model.result import ExitRow, RankGroup, RanksRow, Result
from firsttoken.model.words import Phase, Verdict
from firsttoken.session.isolating.command import read
from firsttoken.session.isolating.isolate import Isolating
from firsttoken.session.isolating.ledger import Ledger
from firsttoken.session.isolating.options import Options
from firsttoken.session.isolating.trial import Ran
from firsttoken.session.launch import Asked

COMMAND = (
    "firsttoken", "rehearse", "--port", "0", "--graphs", "--speculative", "draft", "--attention-backend", "fast", "--shards", "2",
    "--api-key", "secret-word-17",
)  # fmt: skip
ABOUT = {"cwd": "/"}
BEGUN = Trial(number=1, kept=(), changed=(), purpose=Purpose.BASELINE, outcome=Outcome.UNRESOLVED, verdict="unknown", seconds=0.0)
Judge = Callable[[tuple[str, ...]], Result]


class Killed(BaseException):
    """Our own process is gone."""


@dataclass
class World:
    """Answers each launch by its command line. `dies_at`: the number of the launch in which we are killed."""

    tmp: Path
    judge: Judge
    dies_at: int | None = None
    launched: list[tuple[str, ...]] = field(default_factory=list)
    beyond: list[Phase | None] = field(default_factory=list)
    until: str = "decided"

    async def run_trial(self, asked: Asked, *, beyond: Phase | None, started: Callable[[RunFolder], None], **_: Any) -> Ran:
        self.launched.append(asked.argv)
        self.beyond.append(beyond)
        folder = RunFolder(self.tmp / f"run-{len(self.launched)}")
        started(folder)
        if len(self.launched) == self.dies_at:
            raise Killed
        return Ran(result=self.judge(asked.argv), until=self.until, seconds=2.0, folder=folder)

    def isolate(self, ledger: Ledger, **options: Any) -> Isolation:
        asked = read(COMMAND, Wishes(), gpus=False)
        isolating = Isolating(read=asked, options=Options(**options), ledger=ledger)
        isolating.run_trial = self.run_trial
        return asyncio.run(isolating.run())


PLACES = RanksRow(groups=(RankGroup(ranks=(0,), where="wait"),))
HUNG = Result(verdict=Verdict.HUNG, phase=Phase.GRAPH_CAPTURE, reason="rank 1 is behind", ranks=PLACES)
READY = Result(verdict=Verdict.READY, phase=Phase.FIRST_TOKEN, reason="a token came")
FAILED = Result(verdict=Verdict.FAILED, phase=Phase.CONFIG, reason="ValueError: no", exit=ExitRow(code=1))


def graphs_hang(argv: tuple[str, ...]) -> Result:
    return READY if "--no-graphs" in argv else HUNG
