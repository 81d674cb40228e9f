"""Isolation: launches a command again and again, with settings changed, until a minimal failing configuration and a minimal fix are known.

The search is a pure function of the trials, and the trials stand in a ledger. So this shell only asks for the next step, carries it out,
writes it down, and keeps the promises of the way: within budget, alone on its port and GPUs, nothing left between two trials.

With several places some trials run at once. Each place has to show the failure before its trials count, and what is verified is verified
at home: on the command as it was typed.
"""

import asyncio
import contextlib
import shlex
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from firsttoken.history.runs import RunFolder, home
from firsttoken.isolate.answer import posterior, reason, standing, unjudged, verified
from firsttoken.isolate.beliefs import Config
from firsttoken.isolate.edit import edited
from firsttoken.isolate.evidence import Evidence
from firsttoken.isolate.search import Answer, Ask, Problem, next_steps
from firsttoken.isolate.settings import weighed, weights
from firsttoken.isolate.signature import compare, signature
from firsttoken.model.isolation import Isolation, Outcome, Purpose, Setting, Trial
from firsttoken.model.redact import mask_argv
from firsttoken.model.result import Result
from firsttoken.model.words import Phase, Verdict
from firsttoken.session.explain import explain_run
from firsttoken.session.follow import Follower
from firsttoken.session.isolating.command import Read, warm
from firsttoken.session.isolating.guard import Guard
from firsttoken.session.isolating.ledger import Ledger
from firsttoken.session.isolating.options import Options
from firsttoken.session.isolating.places import Place, free_ports
from firsttoken.session.isolating.trial import Ran, StillThere, decided_before_the_stop, ended_phase, run_trial
from firsttoken.session.launch import Asked, LaunchRefused
from firsttoken.session.planning import OBSERVER, plan_of
from firsttoken.session.tend import stop

_WORTH_A_SHORTCUT = 30.0
"""Seconds that it saves of the baseline, at least, and a quarter of all."""
_SHORTCUTS = 2
"""that are tried; each that does not fail alike has cost a launch"""
_TIMES = 3
"""that a place is tried, for a failure that comes and goes"""
_TO_READY = (Purpose.BASELINE, Purpose.SHORTCUT, Purpose.FAILS_AGAIN, Purpose.FIX)
_REAL = (Purpose.BASELINE, Purpose.FAILS_AGAIN, Purpose.FIX)
_PATIENT = (*_REAL, Purpose.BAREST)
"""What an answer rests on alone: a start that stands where the baseline stood may still go on."""

_AGAIN, _GOES_ON = "give the same command again", "it goes on from here"
_NEXT = f"{_AGAIN}: {_GOES_ON}"


@dataclass(slots=True)
class Isolating:
    """`changed` is called with the answer so far before each trial and at the end; `watch` may show a trial while it runs."""

    read: Read
    options: Options
    ledger: Ledger
    places: tuple[Place, ...] = (Place(),)
    changed: Callable[[Isolation], None] = lambda _: None
    watch: Callable[[Follower], contextlib.AbstractContextManager[object]] = lambda _: contextlib.nullcontext()
    interrupted: Callable[[], bool] = lambda: False
    run_trial: Callable[..., Awaitable[Ran]] = run_trial
    _guard: Guard = field(default_factory=Guard)
    _shortcut: str | None = None
    _explained: Result | None = None

    async def run(self) -> Isolation:
        """The answer, or what is known when the budget is spent, somebody would be disturbed, or we are interrupted."""
        await self._mend()
        while True:
            steps = self.steps()
            found = self.isolation(steps)
            self.changed(found)
            if isinstance(steps, Answer):
                with contextlib.suppress(OSError):  # whoever asks again is told the same
                    self.ledger.end(steps.kind)
                return found
            spent = self._spent()
            if spent is not None:
                return replace(found, state="out_of_budget", reason=spent[0], next=(f"{_AGAIN} with a higher {spent[1]}: {_GOES_ON}",))
            if self.interrupted():
                return replace(found, state="interrupted", reason="it was interrupted; nothing is left running", next=(_NEXT,))
            objection = await self._guard.objection(self.read.plan, share=self.options.share)
            if objection is not None:
                return replace(found, state="refused", reason=objection[0], next=objection[1])
            try:
                await self._try_at_once(self._placed(steps))
            except StillThere as error:
                return replace(self.isolation(self.steps()), state="stopped", reason=str(error), next=("firsttoken cleanup", _NEXT))
            except LaunchRefused as error:
                return replace(found, state="refused", reason=str(error), refused_with=error.code)
            except OSError as error:
                why = f"{error.filename or self.ledger.folder}: {error.strerror or error}"
                return replace(self.isolation(steps), state="stopped", reason=why, next=(_NEXT,))

    def steps(self) -> tuple[Ask, ...] | Answer:
        """The next launches by the trials so far, as many as can be made at once."""
        if self._baseline() is not None and self.ledger.suspects is None:
            self._suspect()
        steps = next_steps(self._problem(), self._evidence().tried, self._width())
        shortcut = self._worth_trying() if isinstance(steps, tuple) and steps[0].purpose is Purpose.BAREST else None
        if shortcut is not None and isinstance(steps, tuple):
            self._shortcut = shortcut
            return (replace(steps[0], config=self._problem().full, purpose=Purpose.SHORTCUT),)
        self._shortcut = self._evidence().shortcut
        return steps

    def settings(self) -> tuple[Setting, ...]:
        """In the order of the search: before the baseline has failed all, afterwards those that it left over."""
        suspects = self.ledger.suspects
        if suspects is None:
            return self.read.settings
        known = {setting.label: setting for setting in self.read.settings}
        return tuple(replace(known[label], suspicion=share, because=why) for label, (share, why) in suspects.items() if label in known)

    def command(self, config: Config, shortcut: str | None = None, moved: tuple[Setting, ...] = ()) -> tuple[str, ...]:
        """The real command of a configuration. `moved`: what another place than home changes."""
        rule = next((one for one in self.read.shortcuts if one.name == shortcut), None)
        return edited(self.read.command, (*self._changed(config), *moved), rule.add if rule is not None else ())

    def isolation(self, steps: tuple[Ask, ...] | Answer) -> Isolation:
        answer = steps if isinstance(steps, Answer) else None
        settings, view = self.settings(), (steps if isinstance(steps, Answer) else steps[0]).view
        failing = answer.failing if answer is not None else None
        fix = answer.fix if answer is not None else None
        guilty, cleared, open_ = standing(settings, view, failing)
        trials = tuple(self.ledger.trials)
        seconds = self._seconds()
        base, plan = self._baseline_result(), self.read.plan
        in_doubt = unjudged(trials, failing, self._config)
        return Isolation(
            name=self.ledger.name,
            command=mask_argv(self.read.command.argv),
            settings=settings,
            stays=self.read.stays,
            engine=plan.engine,
            engine_version=base.engine.version if base is not None else None,
            versions=base.versions if base is not None else {},
            state=answer.kind if answer is not None else "searching",
            reason=reason(answer, settings, trials, in_doubt) if answer is not None else "",
            minimal_failing=self._kept(failing) if failing is not None else None,
            minimal_fix=self._kept(fix) if fix is not None else None,
            verified=verified(trials, failing, self._problem().full & ~fix if fix is not None else None, self._config),
            unjudged=tuple(setting.label for setting in self._kept(in_doubt)),
            trials=trials,
            posterior=posterior(settings, view),
            guilty=guilty,
            cleared=cleared,
            open=open_,
            launches_left=0.0 if answer is not None else view.left,
            parallel=self._width(),
            intermittent=view.chance,
            failed=view.fails if view.chance else 0,
            passed=view.lucky if view.chance else 0,
            failure_rate=(view.fails + 1) / (view.fails + view.lucky + 2) if view.chance else None,
            seconds=seconds,
            cost=self._cost(seconds),
            reproduce=self._shell(failing) if failing is not None else None,
            fixed=self._shell(self._problem().full & ~fix) if fix is not None else None,
            baseline=self._baseline_document(),
            folder=str(self.ledger.folder),
        )

    def _width(self) -> int:
        return 1 + sum(self._shown(place) is Outcome.SAME for place in self.places[1:])

    def _shown(self, place: Place) -> Outcome | None:
        """What came out of the whole command in a place other than home, beside the baseline; None where it has to be tried (again)."""
        tried = [one for one in self._evidence().in_time if one.purpose is Purpose.PLACE and one.place == place.number]
        base = self._baseline()
        # it may have been tried before the command failed at home
        told = [compare(base.signature, one.signature) if base and base.signature and one.signature else one.outcome for one in tried]
        if Outcome.SAME in told:
            return Outcome.SAME
        by_chance = self.options.intermittent and Outcome.PASSES in told and len(told) < _TIMES
        return told[-1] if told and not by_chance else None

    def _placed(self, steps: tuple[Ask, ...]) -> list[tuple[Ask, Place]]:
        """What only the command as it was typed can tell runs at home, one after the other. A place that is new shows the failure first."""
        home, *others = self.places
        first = next((one for one in steps if one.purpose in _REAL), steps[0])
        rest = iter([one for one in steps if one is not first and one.purpose not in _REAL])
        placed = [(first, home)]
        for place in others:
            if self._shown(place) is None:
                placed.append((Ask(config=self._problem().full, purpose=Purpose.PLACE), place))
            elif self._shown(place) is Outcome.SAME and (step := next(rest, None)) is not None:
                placed.append((step, place))
        return placed[: max(1, self.options.budget - len(self.ledger.trials) - self.ledger.broken)]

    async def _try_at_once(self, placed: Sequence[tuple[Ask, Place]]) -> None:
        """All end before the first error of one of them is raised."""
        first = len(self.ledger.trials) + self.ledger.broken + 1
        ports = free_ports([place for _, place in placed], self.read.plan.endpoint) if len(placed) > 1 else [0]
        tasks: list[asyncio.Future[None]] = []
        for offset, (step, place) in enumerate(placed):
            home = tasks[0] if tasks and step.purpose is Purpose.PLACE else None
            tasks.append(asyncio.ensure_future(self._try(step, place, ports[offset], first, first + offset, home)))
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for error in outcomes:
            if error is not None:
                raise error
        await self._guard.memory_is_back()

    async def _try(self, step: Ask, place: Place, port: int, first: int, number: int, home: "asyncio.Future[None] | None") -> None:
        """`home`: the baseline that this trial is compared with, still running."""
        shortcut = self._shortcut if step.purpose not in (*_REAL, Purpose.PLACE) else None
        moved = place.moved(self.read, port if self.read.plan.endpoint.port else None)
        argv = self.command(step.config, shortcut, moved)
        base = self._baseline()
        beyond = None
        if base is not None and base.signature is not None and step.purpose not in _TO_READY:
            beyond = ended_phase(Verdict(base.verdict), Phase(base.signature.phase) if base.signature.phase else None)
        changed = [one.label for one in self._changed(step.config)]
        trial = replace(self._begun(number, step.purpose, changed, shortcut), place=place.number, together=first)
        left = self._time_left()
        asked = Asked(
            argv=argv,
            plan=plan_of(argv),
            policy=self.options.policy,
            observer=OBSERVER,
            mark=self.options.mark,
            on_observer_death="stop",
            api_key_env=self.options.api_key_env,
        )
        try:
            ran = await self.run_trial(
                asked,
                beyond=beyond,
                alike=base.signature if base is not None and step.purpose not in _PATIENT and self._evidence().alike_does else None,
                seconds=min(self.options.trial_time, left),
                started=lambda run: self.ledger.launch(trial, run.name),
                interrupted=self.interrupted,
                watch=self.watch if not place.number else lambda _: contextlib.nullcontext(),
            )
        except LaunchRefused as error:
            if base is None:
                raise
            self.ledger.trial(replace(trial, outcome=Outcome.DIFFERENT, verdict="refused", reason=str(error)))
            return
        if ran.until == "interrupted":
            self.ledger.broke_off(number)
            return
        if home is not None:
            await asyncio.wait([home])
        until = "spent" if ran.until == "time" and left < self.options.trial_time else ran.until
        self.ledger.trial(self._ended(replace(trial, until=until, seconds=round(ran.seconds, 2), run=ran.folder.name), ran.result))

    def _begun(self, number: int, purpose: Purpose, changed: Sequence[str], shortcut: str | None) -> Trial:
        """What is known of a trial before it is launched."""
        return Trial(
            number=number,
            kept=tuple(setting.label for setting in self.settings() if setting.label not in changed),
            changed=tuple(changed),
            purpose=purpose,
            outcome=Outcome.UNRESOLVED,
            verdict=Verdict.UNKNOWN,
            seconds=0.0,
            shortcut=shortcut,
            caches=warm(self.read.caches),
        )

    def _ended(self, trial: Trial, result: Result) -> Trial:
        """The trial with what came out."""
        trial = replace(trial, verdict=result.verdict, reason=result.reason)
        base = self._baseline()
        if trial.until == "passed":
            return replace(trial, outcome=Outcome.PASSES, reason=f"beyond the failing phase and moving: {result.reason}")
        if result.verdict is Verdict.READY:
            return replace(trial, outcome=Outcome.PASSES)
        told = signature(result) if trial.until in ("decided", "alike") else None
        if base is not None and base.signature is not None:
            return replace(trial, outcome=compare(base.signature, told), signature=told)
        return replace(trial, outcome=Outcome.SAME if told is not None else Outcome.UNRESOLVED, signature=told)

    async def _mend(self) -> None:
        """Launches that an earlier process of ours did not see to their end: nothing of them may be left; what they had decided counts."""
        for trial in list(self.ledger.unfinished.values()):
            folder = RunFolder(home() / "runs" / str(trial.run))
            result = None
            if folder.path.is_dir():
                await stop(folder, force=True, max_wait=60.0)
                result = decided_before_the_stop(folder)
            if result is None:
                self.ledger.broke_off(trial.number)
            else:
                self.ledger.trial(self._ended(replace(trial, until="decided", seconds=result.elapsed_s or 0.0), result))

    def _suspect(self) -> None:
        base, result = self._baseline(), self._baseline_result()
        phase = base.signature.phase if base is not None and base.signature is not None else None
        self.ledger.suspect(weighed(self.read.settings, phase, result.findings if result is not None else ()))

    def _problem(self) -> Problem:
        settings = self.settings()
        return Problem(
            weights=weights(settings),
            remedies=sum(1 << at for at, setting in enumerate(settings) if setting.remedy),
            intermittent=self.options.intermittent,
            certainty=self.options.certainty,
            baselines=10 if self.options.intermittent else 3,
        )

    def _evidence(self) -> Evidence:
        return Evidence(self.ledger.trials, self._config, self.options.intermittent)

    def _worth_trying(self) -> str | None:
        """A shortcut that was not tried, for a failure beyond the phases that it makes short, where these cost something."""
        base, result = self._baseline(), self._baseline_result()
        if not self.options.shortcuts or base is None or base.signature is None or result is None:
            return None
        order = list(self.read.plan.phases)
        tried = {trial.shortcut for trial in self._evidence().in_time if trial.purpose is Purpose.SHORTCUT}
        if len(tried) >= _SHORTCUTS:
            return None
        took: dict[str, float] = {row.name: row.seconds or 0.0 for row in result.phases}
        at = order.index(Phase(base.signature.phase)) if base.signature.phase in order else 0
        for one in self.read.shortcuts:
            behind = all(order.index(Phase(phase)) < at for phase in one.skips if phase in order)
            if one.name not in tried and behind and one.saves(took) >= max(_WORTH_A_SHORTCUT, 0.25 * base.seconds):
                return one.name
        return None

    def _baseline(self) -> Trial | None:
        """The first launch of the unchanged command that failed."""
        for trial in self.ledger.trials:
            if not trial.changed and trial.shortcut is None and not trial.place and trial.outcome is Outcome.SAME:
                return trial
        return None

    def _baseline_result(self) -> Result | None:
        base = self._baseline()
        folder = RunFolder(home() / "runs" / base.run) if base is not None and base.run else None
        if folder is None or not folder.path.is_dir():
            return None
        if self._explained is None:
            self._explained = explain_run(folder)
        return self._explained

    def _baseline_document(self) -> dict[str, Any] | None:
        base = self._baseline()
        if base is None:
            return None
        return {"verdict": base.verdict, "signature": msgspec.to_builtins(base.signature), "reason": base.reason, "run": base.run}

    def _config(self, trial: Trial) -> Config:
        changed = set(trial.changed)
        return sum(1 << at for at, setting in enumerate(self.settings()) if setting.label not in changed)

    def _changed(self, config: Config) -> tuple[Setting, ...]:
        return tuple(setting for at, setting in enumerate(self.settings()) if not config >> at & 1)

    def _kept(self, config: Config) -> tuple[Setting, ...]:
        return tuple(setting for at, setting in enumerate(self.settings()) if config >> at & 1)

    def _shell(self, config: Config) -> str:
        return shlex.join(mask_argv(self.command(config)))

    def _cost(self, seconds: float) -> float | None:
        return round(self.options.price * seconds / 3600, 2) if self.options.price is not None else None

    def _seconds(self) -> float:
        """Of the trials; those that ran at once count once."""
        rounds: dict[int, float] = {}
        for trial in self.ledger.trials:
            first = trial.together or trial.number
            rounds[first] = max(rounds.get(first, 0.0), trial.seconds)
        return sum(rounds.values())

    def _time_left(self) -> float:
        return float("inf") if self.options.max_time is None else max(1.0, self.options.max_time - self._seconds())

    def _spent(self) -> tuple[str, str] | None:
        """Which budget is, in words, and the option that sets it."""
        launches, seconds = len(self.ledger.trials) + self.ledger.broken, self._seconds()
        cost, most = self._cost(seconds), self.options.max_cost
        if launches >= self.options.budget:
            return f"{self.options.budget} launches were made, as many as --budget allows", "--budget"
        if self.options.max_time is not None and seconds >= self.options.max_time:
            return f"the launches took {seconds:.0f} s; --max-time allows {self.options.max_time:.0f} s", "--max-time"
        if cost is not None and most is not None and cost >= most:
            return f"the launches cost {cost:g}; --max-cost allows {most:g}", "--max-cost"
        return None
