"""Does speculation pay? Both servers are started, asked the same in turns, compared, and stopped.

Where they can live side by side, their stretches are interleaved: the machine's drift falls on both. Where they cannot (one set of GPUs, an
engine that polls while idle, too little memory), the launches themselves go A B B A.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace

from firsttoken.drive.asking import settled
from firsttoken.drive.client import LoadError, choices
from firsttoken.drive.counters import from_lines
from firsttoken.drive.opinion import opinion, tuned
from firsttoken.drive.outputs import compare, explained, lossless, place
from firsttoken.drive.weigh import candidates, level, so_far
from firsttoken.knowledge.load import profiles
from firsttoken.model.exits import UNKNOWN
from firsttoken.model.redact import mask_argv
from firsttoken.model.result import Result
from firsttoken.model.speculation import Answer, Level, Measured, Opinion, Outputs, Parted, Tried
from firsttoken.plan.speculation import Speculating
from firsttoken.session.speculating.blocks import Book, Load
from firsttoken.session.speculating.place import Place, beside
from firsttoken.session.speculating.servers import (
    BASELINE,
    MOST_IDLE,
    SPECULATIVE,
    BrokenOff,
    NotServing,
    Serving,
    Stage,
    addressed,
    free_port,
)

_EXPLAINED = 8
"""partings that are looked into"""
_SIDES = (BASELINE, SPECULATIVE)
_OPEN = ("undecided", "not-measured")
"""causes that leave the question as it was"""


@dataclass(slots=True, kw_only=True)
class Trial:
    """What is asked for. Each side has an address in `urls` or is launched, from `speculating`."""

    stage: Stage
    load: Load
    prompts: str
    speculating: Speculating | None = None
    urls: Mapping[str, str] = field(default_factory=dict)
    tune: bool = False
    key: str | None = None
    seed: int = 0
    _book: Book = field(init=False)
    _runs: dict[str, str | None] = field(default_factory=lambda: dict.fromkeys(_SIDES))
    _results: dict[str, Result | None] = field(default_factory=lambda: dict.fromkeys(_SIDES))
    _log: str = ""
    _partings: dict[str, Parted] = field(default_factory=dict)
    _tried: list[Tried] = field(default_factory=list)
    _place: Place = field(default_factory=lambda: Place(together=True, why=""))
    _engine: str | None = None
    _settled: Serving | None = None

    def __post_init__(self) -> None:
        self._book = Book(load=self.load)

    async def run(self) -> Answer:
        """Never raises for what a server does. Cancelled, it ends what it launched."""
        began = time.monotonic()
        try:
            await self._measure()
            levels = self._levels()
            found = opinion(levels, draft_tokens=self._draft_tokens, copies=self._copies)
            answer = self._answer(tuned(found, levels, self._tried), levels)
        except NotServing as error:
            answer = await self._not_serving(error)
        except BrokenOff as error:
            reason = f"it could not be measured: the {error.side} server did not answer as it must: {error}"
            answer = self._answer(Opinion(pays=None, cause="not-measured", reason=reason, suggestion="see what the server says about it"))
        return replace(answer, seconds=time.monotonic() - began)

    # ---------------------------------------------------------------- measuring

    async def _measure(self) -> None:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(AsyncExitStack())
            speculative = await self._enter(first, SPECULATIVE)
            self._place = await beside(speculative, self.speculating, launches=BASELINE not in self.urls)
            second = await stack.enter_async_context(AsyncExitStack())
            baseline = await self._beside(second)
            if baseline is None:
                await self._in_turn(speculative, first)
                return
            for users in self.load.concurrencies:
                await self._book.interleaved(baseline, speculative, users, self._teller(self._book, users))
            self._log += speculative.log()
            await self._look_into_partings(baseline)
            await first.aclose()
            if self.tune:
                await self._tune(baseline)

    async def _beside(self, stack: AsyncExitStack) -> Serving | None:
        """The baseline beside the other server; None where it cannot live there."""
        if not self._place.together:
            return None
        baseline = await self._enter(stack, BASELINE, self._place.env, move=True)
        share = await baseline.idle_share() if baseline.folder is not None else 0.0
        if share <= MOST_IDLE:
            return baseline
        await stack.aclose()
        self._place = Place(together=False, why=f"the idle baseline takes {share:.2f} of a core")
        return None

    async def _in_turn(self, speculative: Serving, stack: AsyncExitStack) -> None:
        """Launches A B B A; the two in the middle are one, for nothing would change between them."""
        self.stage.said(f"one server at a time, in the order A B B A: {self._place.why}")
        halves: dict[int, tuple[range, range]] = {}
        for users in self.load.concurrencies:
            blocks = self._book.wanted(await self._book.warm_up(speculative, users))
            halves[users] = range(blocks // 2), range(blocks // 2, blocks)
        await self._share(speculative, {users: half[0] for users, half in halves.items()})
        self._log += speculative.log()
        await stack.aclose()
        async with AsyncExitStack() as own:
            baseline = await self._enter(own, BASELINE)
            await self._share(baseline, {users: range(half[0].start, half[1].stop) for users, half in halves.items()})
            await self._look_into_partings(baseline)
        async with AsyncExitStack() as own:
            again = await self._enter(own, SPECULATIVE)
            await self._share(again, {users: half[1] for users, half in halves.items()})
            self._log += again.log()
        if self.tune:
            await self._tune(None)

    async def _share(self, side: Serving, blocks: Mapping[int, range]) -> None:
        for users, numbers in blocks.items():
            await self._book.in_turn(side, users, numbers)
            self.stage.said(f"{side.side}: {len(numbers)} blocks measured at {users} at a time")

    async def _tune(self, baseline: Serving | None) -> None:
        """Other numbers of draft tokens, each tried once at the first concurrency. A number that does not serve is an answer too."""
        users = self.load.concurrencies[0]
        for number in candidates(self._levels(), self._draft_tokens):
            changed = self.speculating.with_draft_tokens(number) if self.speculating is not None else None
            if changed is None:
                return
            self.stage.said(f"trying {number} drafted at a time")
            book = Book(load=replace(self.load, concurrencies=(users,)))
            try:
                async with AsyncExitStack() as own:
                    trial = await self._enter(own, SPECULATIVE, argv=changed.argv)
                    if baseline is not None:
                        await book.interleaved(baseline, trial, users, self._teller(book, users))
                    else:
                        book.stretches |= {key: one for key, one in self._book.stretches.items() if key[0] == BASELINE}
                        await book.in_turn(trial, users, range(len(self._book.blocks(users))))
                found = level(users, book.blocks(users), draft_tokens=number, seed=self.seed)
            except NotServing as error:
                self._tried.append(
                    Tried(draft_tokens=number, ratio=None, run=error.result.run, note=f"{error.result.verdict}: {error.result.reason}")
                )
                continue
            except BrokenOff as error:
                self._tried.append(Tried(draft_tokens=number, ratio=None, note=str(error)))
                continue
            if found is not None:
                self._tried.append(Tried(draft_tokens=number, ratio=found.speedup, acceptance=found.acceptance.rate, run=trial.run))

    async def _look_into_partings(self, baseline: Serving) -> None:
        """Asks the baseline once more where the outputs part: does it repeat itself, and how sure was it?"""
        pairs = {one.prompt: one for _, one, _ in self._book.greedy()}
        others = {one.prompt: two for _, one, two in self._book.greedy()}
        for parted in compare(self._book.greedy()).parted[:_EXPLAINED]:
            prompt, before = self._book.prompt(parted.prompt), pairs[parted.prompt]
            at = place(before.text, others[parted.prompt].text)
            if prompt is not None and at is not None:
                again = await choices(baseline.client, baseline.server, prompt, tokens=self.load.tokens)
                self._partings[parted.prompt] = explained(parted, before.text, again, at)

    def _teller(self, book: Book, users: int) -> Callable[[int, int], None]:
        def tell(done: int, blocks: int) -> None:
            found = so_far(book.blocks(users))
            told = f", {found:.2f} times as fast so far" if found is not None else ""
            self.stage.said(f"{users} at a time: block {done} of {blocks}{told}")

        return tell

    # ---------------------------------------------------------------- the servers

    async def _enter(
        self,
        stack: AsyncExitStack,
        side: str,
        env: Mapping[str, str] | None = None,
        *,
        move: bool = False,
        argv: tuple[str, ...] | None = None,
    ) -> Serving:
        """A server that is up and takes our requests, in the same form as the other one."""
        serving = await stack.enter_async_context(self._serving(side, argv or self._argv(side, move), env))
        if argv is None:
            self._runs[side], self._results[side] = serving.run, serving.result
        self._engine = self._engine or serving.engine
        profile = profiles().get(serving.engine or "")
        body = profile.speculation.body if profile is not None and profile.speculation is not None else {"ignore_eos": True}
        try:
            serving.server = await settled(
                serving.client, serving.server, body, like=self._settled.server if self._settled is not None else None
            )
        except LoadError as error:
            raise BrokenOff(side, error) from error
        self._settled = self._settled or serving
        return serving

    def _serving(self, side: str, argv: tuple[str, ...], env: Mapping[str, str] | None) -> AbstractAsyncContextManager[Serving]:
        if side in self.urls:
            return addressed(side, self.urls[side], self.key)
        return self.stage.launched(side, argv, env)

    def _argv(self, side: str, move: bool) -> tuple[str, ...]:
        if self.speculating is None:
            return ()
        argv = self.speculating.argv if side == SPECULATIVE else self.speculating.baseline
        return self.speculating.on_port(argv, free_port()) if move and self.speculating.movable else argv

    # ---------------------------------------------------------------- the answer

    @property
    def _draft_tokens(self) -> int | None:
        return self.speculating.draft_tokens if self.speculating is not None else None

    @property
    def _copies(self) -> bool:
        return self.speculating is not None and self.speculating.copies

    def _levels(self) -> tuple[Level, ...]:
        profile = profiles().get(self._engine or "")
        pattern = profile.speculation.log if profile is not None and profile.speculation is not None else None
        logged = from_lines(self._log.splitlines(), pattern) if pattern is not None else None
        found = [
            level(users, self._book.blocks(users), draft_tokens=self._draft_tokens, logged=logged, seed=self.seed)
            for users in self.load.concurrencies
        ]
        return tuple(one for one in found if one is not None)

    def _answer(self, found: Opinion, levels: tuple[Level, ...] = ()) -> Answer:
        outputs = self._outputs()
        spec = self.speculating
        return Answer(
            opinion=found,
            code=UNKNOWN if found.cause in _OPEN else 0,
            engine=self._engine,
            command=mask_argv(spec.argv) if spec is not None else (),
            baseline_command=mask_argv(spec.baseline) if spec is not None and BASELINE not in self.urls else (),
            levels=levels,
            outputs=outputs,
            lossless=lossless(outputs),
            tried=tuple(self._tried),
            measured=Measured(
                arrangement="interleaved" if self._place.together else "in turn",
                why=self._place.why,
                prompts=self.prompts,
                route=self._settled.server.route if self._settled is not None else None,
                output_tokens=self.load.tokens,
                samplings=self.load.samplings,
                temperature=self.load.temperature,
                draft_tokens=self._draft_tokens,
            ),
            runs=self._runs,
            results=self._results,
            not_checked=tuple(self._not_checked(levels, outputs)),
        )

    def _outputs(self) -> Outputs:
        outputs = compare(self._book.greedy())
        return replace(outputs, parted=tuple(self._partings.get(one.prompt, one) for one in outputs.parted))

    def _not_checked(self, levels: tuple[Level, ...], outputs: Outputs) -> list[str]:
        notes = []
        if levels and levels[0].acceptance.rate is None:
            notes.append(f"the rate of acceptance: this server does not count it where we can see it (seen: {levels[0].acceptance.source})")
        elif levels and (levels[0].acceptance.drafted or 0) < 1100:
            notes.append(f"acceptance is from {levels[0].acceptance.drafted or 'an unknown number of'} drafted tokens, which is few")
        if not outputs.compared:
            notes.append("whether the outputs agree: nothing was asked greedily")
        replies = [reply for one in self._book.stretches.values() for reply in one.replies]
        if any(not reply.counted for reply in replies):
            notes.append("the number of tokens: the server does not tell it in its stream, so pieces of text were counted")
        if any(reply.tokens < self.load.tokens for reply in replies):
            notes.append(f"equal lengths: some answers ended before {self.load.tokens} tokens")
        return notes

    async def _not_serving(self, error: NotServing) -> Answer:
        """Whether the same command without speculation serves tells whose fault it is."""
        self._results[error.side], self._runs[error.side] = error.result, error.result.run
        told = f"{error.result.verdict}: {error.result.reason}"
        if error.side == BASELINE:
            reason = f"without speculation this command does not serve ({told}); so it cannot be told whether speculation pays"
            found = Opinion(pays=None, cause="baseline-does-not-serve", reason=reason, suggestion="see the findings of its run")
            return replace(self._answer(found), code=error.code)
        reason = f"with speculation this command does not serve ({told})"
        suggestion = "see the findings of its run; until then, turn it off"
        if self._results[BASELINE] is None and BASELINE not in self.urls:
            self.stage.said("does the same command serve without speculation?")
            try:
                async with AsyncExitStack() as stack:
                    await self._enter(stack, BASELINE)
                reason += "; without it the same command serves"
                suggestion = "turn it off: speculation is what breaks this server. See the findings of its run"
            except (NotServing, BrokenOff) as other:
                reason += f"; nor does it without ({other}), so speculation is not the cause"
                suggestion = "see the findings of both runs"
                if isinstance(other, NotServing):
                    self._results[BASELINE], self._runs[BASELINE] = other.result, other.result.run
        elif self._results[BASELINE] is not None:
            reason += "; without it the same command serves"
        return replace(self._answer(Opinion(pays=None, cause="does-not-serve", reason=reason, suggestion=suggestion)), code=error.code)
