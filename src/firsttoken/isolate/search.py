"""The search for the settings at fault, ask and tell: from the trials so far to the next one, or to the answer.

A pure function of the trials, so whoever has their list can go on where another was killed. First the two questions that carry most:
does the command fail again, and does the barest one pass? Then the configuration that tells most, always inside the smallest one that
failed; in the end the answer is launched again: it fails, each of its settings is needed, and the fix passes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from firsttoken.isolate.beliefs import Beliefs, Config, beliefs, bits_of, halves, most_telling, telling_together
from firsttoken.model.isolation import Outcome, Purpose

_ODD = (Outcome.DIFFERENT, Outcome.UNRESOLVED)
_ODD_IN_A_ROW = 4
"""Trials that neither fail alike nor pass, after which the unchanged command is launched again: has the world changed under us?"""


_TRIES = 2
"""Times that a configuration on which the answer hangs is launched until it is taken for one that cannot be resolved."""


@dataclass(frozen=True, slots=True)
class Tried:
    """`whole`: of the command as it was typed, without a shortcut and not cut short: it passed up to its first token, or failed for as long
    as patience is."""

    config: Config
    outcome: Outcome
    whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """`weights`: of each setting, 1 as suspected as any other. `remedies`: the settings whose change adds something to the command.

    `intermittent`: the failure is known to come and go. `certainty`: how sure the answer must be then, 0 to 1. `baselines`: how often
    the unchanged command is launched to see it fail.
    """

    weights: tuple[float, ...]
    remedies: Config = 0
    intermittent: bool = False
    certainty: float = 0.95
    baselines: int = 3

    @property
    def full(self) -> Config:
        return (1 << len(self.weights)) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is known so far. `smallest`: the smallest configuration that failed. `left`: launches expected until the answer."""

    beliefs: Beliefs | None = None
    smallest: Config = 0
    left: float = 0.0
    chance: bool = False
    fails: int = 0
    lucky: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    config: Config
    purpose: Purpose
    view: View = field(default_factory=View)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`kind`: found; not_reproduced (the command did not fail again); elsewhere (the barest command fails too: no setting is at fault);
    unresolved (`failing` fails and nothing smaller does, and no change is known that passes); changed (the unchanged command does not fail
    as it did: something beside the settings is another). `fix`: the settings to change.
    """

    kind: str
    failing: Config | None = None
    fix: Config | None = None
    view: View = field(default_factory=View)


def next_step(problem: Problem, tried: Sequence[Tried]) -> Ask | Answer:
    """The same list gives the same step."""
    history = _History(problem, tuple(tried))
    before = history.before_the_search()
    if before is not None:
        return before
    found = history.find(problem.full)
    if not isinstance(found, _Found):
        return found
    if found.config == 0:
        if 0 not in history.failed:
            return Ask(config=0, purpose=Purpose.FAILS_AGAIN, view=replace(found.view, left=1.0))
        return Answer(kind="elsewhere", failing=0, view=found.view)
    return history.confirm(found)


def next_steps(problem: Problem, tried: Sequence[Tried], width: int) -> tuple[Ask, ...] | Answer:
    """Up to `width` launches to be made at once: the next one, and beside it what tells most whatever comes out of the others; where that
    is not enough, what would be asked next if each came out as expected. Nothing beside the baseline, whose failure all else hangs on."""
    step = next_step(problem, tried)
    if isinstance(step, Answer):
        return step
    steps, assumed = [step], list(tried)
    if step.purpose is Purpose.BASELINE:
        return (step,)
    while True:
        found = step.view.beliefs
        if step.purpose is Purpose.NARROW and found is not None and not step.view.chance:
            more = telling_together(found, step.view.smallest, step.config, width - len(steps) + 1)[1:]
            steps += [replace(step, config=config) for config in more]
        if len(steps) >= width:
            return tuple(steps)
        assumed += [Tried(one.config, _expected(one)) for one in steps[len(assumed) - len(tried) :]]
        following = next_step(problem, assumed)
        if isinstance(following, Answer):
            return tuple(steps)
        step = following
        steps.append(step)


def _expected(step: Ask) -> Outcome:
    """The likelier one of the two that a launch is made to tell apart."""
    if step.purpose is Purpose.NARROW and step.view.beliefs is not None:
        return Outcome.SAME if step.view.beliefs.fails(step.config) >= 0.5 else Outcome.PASSES
    return Outcome.SAME if step.purpose is Purpose.FAILS_AGAIN else Outcome.PASSES


@dataclass(frozen=True, slots=True)
class _Found:
    config: Config
    view: View


class _History:
    def __init__(self, problem: Problem, tried: tuple[Tried, ...]) -> None:
        self.problem, self.tried = problem, tried
        self.same = [one.config for one in tried if one.outcome is Outcome.SAME]
        self.passed = [one.config for one in tried if one.outcome is Outcome.PASSES]
        self.failed = {one.config for one in tried if one.outcome is Outcome.SAME and one.whole}
        self.served = {one.config for one in tried if one.outcome is Outcome.PASSES and one.whole}
        self.spoilt = [one.config for one in tried if one.outcome in _ODD]
        self.chance = problem.intermittent or bool(set(self.same) & set(self.passed))

    def before_the_search(self) -> Ask | Answer | None:
        full, remedies = self.problem.full, self.problem.remedies
        view = View(smallest=full, left=4.0 + len(self.problem.weights).bit_length(), chance=self.chance)
        if full not in self.same:
            asked = sum(one.config == full for one in self.tried)
            if asked < self.problem.baselines:
                return Ask(config=full, purpose=Purpose.BASELINE, view=view)
            return Answer(kind="not_reproduced", view=view)
        odd = list(takewhile(lambda one: one.outcome in _ODD, reversed(self.tried)))
        if odd and odd[0].config == full:
            return Answer(kind="changed", view=view)
        if len(odd) >= _ODD_IN_A_ROW:
            return Ask(config=full, purpose=Purpose.BASELINE, view=view)
        known = {one.config for one in self.tried}
        if 0 not in known:
            return Ask(config=0, purpose=Purpose.BAREST, view=view)
        if 0 in self.spoilt and 0 < remedies < full and remedies not in known:
            return Ask(config=remedies, purpose=Purpose.BAREST, view=view)
        return None

    def find(self, top: Config) -> _Found | Ask:
        """A smallest failing configuration inside `top`, which failed."""
        smallest = top
        for config in self.same:
            smallest = config if config & ~smallest == 0 else smallest
        fails = sum(smallest & ~config == 0 for config in self.same)
        passed = self.passed
        if not self.chance:
            beyond = [config for config in passed if smallest & ~config == 0]
            once = next((config for config in beyond if passed.count(config) == 1), None)
            if once is not None:  # chance, or a setting whose removal does harm?
                return Ask(config=once, purpose=Purpose.REPEAT, view=View(smallest=smallest, left=4.0))
            if beyond:
                passed = [config for config in passed if config & ~smallest == 0]
        # at once were launched some of which none lies inside another: most likely all failed by the same few settings
        common = smallest
        for config in () if self.chance else self.same:
            common &= config if config & ~top == 0 else common
        found = beliefs(self.problem.weights, 0, common, fails, passed, chance=self.chance)
        if found is None and common != smallest:
            found = beliefs(self.problem.weights, 0, smallest, fails, passed, chance=self.chance)
        if found is None:
            return self._split(smallest, fails, passed)
        return self._narrow(found, smallest, fails)

    def _narrow(self, found: Beliefs, smallest: Config, fails: int) -> _Found | Ask:
        best, p = found.best
        lucky = self.passed.count(best)
        view = View(
            beliefs=found, smallest=smallest, left=found.entropy + (best != smallest) + 2, chance=self.chance, fails=fails, lucky=lucky
        )
        if p >= (self.problem.certainty if self.chance else 1 - 1e-6):
            if best == smallest:
                return _Found(best, view)
            if self.spoilt.count(best) < _TRIES:
                return Ask(config=best, purpose=Purpose.NARROW, view=view)
        told = most_telling(found, smallest, self.spoilt)
        if told is not None:
            return Ask(config=told, purpose=Purpose.NARROW, view=view)
        return self._one_by_one(smallest, view)

    def _split(self, smallest: Config, fails: int, passed: Sequence[Config]) -> _Found | Ask:
        """Many settings are needed at once: one after the other is found by halving a group that must hold one."""
        groups = sorted({smallest & ~config for config in passed} - {0}, key=int.bit_count)
        known = sum(group for group in groups if group.bit_count() == 1)
        view = View(smallest=smallest, left=2.0 * smallest.bit_count(), fails=fails)
        if known == smallest:
            return _Found(smallest, view)
        found = beliefs(self.problem.weights, known, smallest, fails, passed, chance=False) if known else None
        if found is not None:
            return self._narrow(found, smallest, fails)
        group = next((group for group in groups if group & known == 0), smallest & ~known)
        asked = {one.config for one in self.tried}
        part = next((part for part in halves(bits_of(group)) if smallest & ~part not in asked), None)
        if part is not None:
            return Ask(config=smallest & ~part, purpose=Purpose.NARROW, view=view)
        return self._one_by_one(smallest, view)

    def _one_by_one(self, smallest: Config, view: View) -> _Found | Ask:
        """Where nothing better can be tried: without any single one it must not fail in the same way."""
        asked = {one.config for one in self.tried}
        fewer = next((fewer for at in bits_of(smallest) if (fewer := smallest & ~(1 << at)) not in asked), None)
        return _Found(smallest, view) if fewer is None else Ask(config=fewer, purpose=Purpose.NARROW, view=view)

    def confirm(self, found: _Found) -> Ask | Answer:
        """Launches the answer again, each step once: it fails, it is minimal, its fix passes."""
        failing, view = found.config, found.view
        if self.same.count(failing) < 2 or failing not in self.failed:
            return Ask(config=failing, purpose=Purpose.FAILS_AGAIN, view=replace(view, left=2.0))
        if not self.chance and failing.bit_count() > 1:
            for at in bits_of(failing):
                # twice: a pass by chance is how one setting comes to look like two
                fewer = failing & ~(1 << at)
                if self.passed.count(fewer) < 2 and self.spoilt.count(fewer) < _TRIES:
                    return Ask(config=fewer, purpose=Purpose.MINIMAL, view=replace(view, left=2.0))
        return self._fix(failing, view)

    def _fix(self, failing: Config, view: View) -> Ask | Answer:
        """The fewest changes to the whole command with which it passes. Where another set of settings fails by itself, one of its
        settings has to be changed too, and so on."""
        full = self.problem.full
        changed, within = 0, failing
        while True:
            choice = self._choice(within, changed)
            if choice is None:
                return Answer(kind="unresolved", failing=failing, view=view)
            changed |= choice
            config = full & ~changed
            if config in self.same and not (self.chance and config in self.passed):
                other = self.find(config)
                if not isinstance(other, _Found):
                    return other
                within = other.config
            elif config in self.served:
                return self._smallest_fix(failing, changed, view)
            else:
                return Ask(config=config, purpose=Purpose.FIX, view=replace(view, left=1.0))

    def _choice(self, within: Config, changed: Config) -> Config | None:
        """The setting to change: the most suspected of those whose change was not seen to do other harm."""
        order = sorted(bits_of(within), key=lambda at: -self.problem.weights[at])
        full = self.problem.full
        return next((1 << at for at in order if self.spoilt.count(full & ~(changed | 1 << at)) < _TRIES), None)

    def _smallest_fix(self, failing: Config, changed: Config, view: View) -> Ask | Answer:
        full = self.problem.full
        if changed.bit_count() > 1:
            for at in bits_of(changed):
                fewer = full & ~(changed & ~(1 << at))
                if fewer in self.served:
                    return self._smallest_fix(failing, changed & ~(1 << at), view)
                if fewer not in self.failed and fewer not in self.spoilt:
                    return Ask(config=fewer, purpose=Purpose.FIX, view=replace(view, left=1.0))
        return Answer(kind="found", failing=failing, fix=changed, view=replace(view, left=0.0))
