"""Which stretch of load goes to which server, in which order, and what has been measured so far.

A block is four stretches in the order A B B A; every block turns the order round. Both servers get the same prompts, which no other stretch
has. How many blocks there are is decided by the warm-up, before anything is measured: stopping when the numbers please would spoil the
interval.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from firsttoken.drive.client import LoadError, Reply
from firsttoken.drive.load import Stretch, stretch
from firsttoken.drive.prompts import Prompt, draw
from firsttoken.drive.weigh import Block, Pair
from firsttoken.model.speculation import Sampling
from firsttoken.session.speculating.servers import BASELINE, SPECULATIVE, BrokenOff, Serving

FEWEST_BLOCKS, MOST_BLOCKS = 8, 24
DRAFTED = 1400
"""Draft tokens that the warm-up must promise, so that at least 1,100 come: acceptance is then within 0.03 in 95 of 100 runs."""
_WARM_UP = 1_000_000
"""prompts from this number on are for warming up"""
_BASELINE_FIRST = ((BASELINE, 0), (SPECULATIVE, 0), (SPECULATIVE, 1), (BASELINE, 1))
_SPECULATIVE_FIRST = ((SPECULATIVE, 0), (BASELINE, 0), (BASELINE, 1), (SPECULATIVE, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is asked: `tokens` long answers to `prompts`, at each of `concurrencies`. `blocks` None: as many as needed."""

    prompts: tuple[Prompt, ...]
    concurrencies: tuple[int, ...] = (1, 4, 16)
    tokens: int = 64
    samplings: tuple[Sampling, Sampling] = (Sampling.GREEDY, Sampling.SAMPLED)
    temperature: float = 0.8
    blocks: int | None = None


@dataclass(slots=True, kw_only=True)
class Book:
    """What was measured, by side, concurrency, block and place in it."""

    load: Load
    stretches: dict[tuple[str, int, int, int], Stretch] = field(default_factory=dict)

    def blocks(self, concurrency: int) -> list[Block]:
        """Those that both sides have finished."""
        numbers = sorted({block for _, users, block, _ in self.stretches if users == concurrency})
        found = []
        for number in numbers:
            sides = [[self.stretches.get((side, concurrency, number, place)) for place in (0, 1)] for side in (BASELINE, SPECULATIVE)]
            pairs = [Pair(baseline=one, speculative=two) for one, two in zip(*sides, strict=True) if one is not None and two is not None]
            if len(pairs) == 2:
                found.append(tuple(pairs))
        return found

    def greedy(self) -> list[tuple[int, Reply, Reply]]:
        """Concurrency and both answers, of all prompts that both have answered greedily."""
        return [
            (users, one, two)
            for users in self.load.concurrencies
            for block in self.blocks(users)
            for pair in block
            if pair.baseline.sampling is Sampling.GREEDY
            for one, two in zip(pair.baseline.replies, pair.speculative.replies, strict=False)
        ]

    def prompts(self, concurrency: int, block: int, place: int) -> list[Prompt]:
        """As many as there are users."""
        most = max(MOST_BLOCKS, self.load.blocks or 0)
        before = sum(users * 2 * most for users in self.load.concurrencies[: self.load.concurrencies.index(concurrency)])
        first = before + (2 * block + place) * concurrency
        return [draw(self.load.prompts, number) for number in range(first, first + concurrency)]

    def prompt(self, name: str) -> Prompt | None:
        """The one that was drawn under this name."""
        for users in self.load.concurrencies:
            for block in range(len(self.blocks(users))):
                for place in (0, 1):
                    for prompt in self.prompts(users, block, place):
                        if prompt.name == name:
                            return prompt
        return None

    async def measure(self, side: Serving, concurrency: int, block: int, place: int) -> None:
        prompts = self.prompts(concurrency, block, place)
        self.stretches[side.side, concurrency, block, place] = await self._stretch(side, concurrency, prompts, self.load.samplings[place])

    async def warm_up(self, side: Serving, concurrency: int) -> list[Stretch]:
        """Both kinds once: what compiles at a new shape or is read for the first time is not measured."""
        prompts = [draw(self.load.prompts, _WARM_UP + number) for number in range(2 * concurrency)]
        halves = (prompts[:concurrency], prompts[concurrency:])
        return [await self._stretch(side, concurrency, half, kind) for half, kind in zip(halves, self.load.samplings, strict=True)]

    async def interleaved(self, baseline: Serving, speculative: Serving, concurrency: int, told: Callable[[int, int], None]) -> None:
        """All blocks of one concurrency, warm-up first. `told` hears of each block that is done, and of how many."""
        await self.warm_up(baseline, concurrency)
        blocks = self.wanted(await self.warm_up(speculative, concurrency))
        sides = {BASELINE: baseline, SPECULATIVE: speculative}
        for block in range(blocks):
            for side, place in _BASELINE_FIRST if block % 2 == 0 else _SPECULATIVE_FIRST:
                await self.measure(sides[side], concurrency, block, place)
            told(block + 1, blocks)

    async def in_turn(self, side: Serving, concurrency: int, blocks: Sequence[int]) -> None:
        """One side's share of some blocks, where the two servers do not live at the same time."""
        await self.warm_up(side, concurrency)
        for block in blocks:
            for place in (0, 1):
                await self.measure(side, concurrency, block, place)

    def wanted(self, warm: Sequence[Stretch]) -> int:
        """Blocks: enough for the interval, and for acceptance to be told."""
        if self.load.blocks is not None:
            return self.load.blocks
        drafted = sum(one.counts.drafted or 0.0 for one in warm if one.counts is not None)
        needed = math.ceil(DRAFTED / drafted) if drafted else FEWEST_BLOCKS
        return min(MOST_BLOCKS, max(FEWEST_BLOCKS, needed + needed % 2))

    async def _stretch(self, side: Serving, concurrency: int, prompts: Sequence[Prompt], kind: Sampling) -> Stretch:
        try:
            return await stretch(
                side.client,
                side.server,
                prompts,
                concurrency=concurrency,
                tokens=self.load.tokens,
                sampling=kind,
                temperature=self.load.temperature,
                names=side.names if side.side == SPECULATIVE else {},
            )
        except LoadError as error:
            raise BrokenOff(side.side, error) from error
