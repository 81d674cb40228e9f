"""What is known about one engine, as values: the shape of `knowledge/engines/<name>.toml` (docs/reference/profile-format.md).

Every attribute stands in the file under the same name; lists of tables are singular there (`[[milestone]]` → `milestones`).
Patterns stay text until somebody needs them: compiling all of them would cost more than reading all the files.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from firsttoken.model.plan import Routes
from firsttoken.model.words import USUAL_ORDER, Edge, Phase, Role

Scope = Literal["rank", "one", "main"]
OptionType = Literal["int", "str", "bool", "list", "json"]
Scalar = str | int | float | bool


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> re.Pattern[str]:
    """The one place where a profile's patterns are compiled, each once. re.error where the pattern is wrong."""
    return re.compile(pattern)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognise:
    """Any of these names the engine. `programs`: leading words, the first by its base name; `scripts`, `titles`, `lines`: regexes.

    `images`: regexes on a container image's name without its tag and digest, for images whose entry point is the engine itself.
    """

    programs: tuple[tuple[str, ...], ...] = ()
    modules: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """How one field of the plan is read from the command. `position`: index among the positional arguments after the program words."""

    field: str
    flags: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    type: OptionType = "str"
    default: Scalar | None = None
    position: int | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """A condition on the command; everything that is set must hold.

    `flag`: given at all, or with one of `values` (a comma-separated or repeated value counts by each of its parts).
    `field`: an option's field, given (or by default) with one of `values`, at least `at_least`, or matching the regex `matches`.
    `module` and `program`: what was started. `env`: an environment variable, set at all or to one of `values`.
    """

    flag: str | None = None
    field: str | None = None
    env: str | None = None
    module: str | None = None
    program: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    at_least: int | None = None
    matches: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleRule:
    """The first that matches names the role; else the command serves."""

    role: Role
    when: When


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRule:
    """The first that matches names the task (`generate`, `embed`, `rerank`); else the profile's `task`."""

    task: str
    when: When


@dataclass(frozen=True, slots=True, kw_only=True)
class Milestone:
    """A line that begins or ends a phase, or shows that it is under way.

    `scope`: `rank` each rank logs it for itself, `one` one rank for all, `main` a process above the ranks for all.
    Several milestones may share an `id` and differ in `since` and `until`: where the version is known, the first in range is taken,
    else the first. `file`: part of the source file's name in the line's prefix. `after`: id of a milestone that must have been seen.
    `once`: only the first such line becomes an event.
    """

    id: str
    phase: Phase
    edge: Edge
    pattern: str
    scope: Scope = "rank"
    since: str | None = None
    until: str | None = None
    file: str | None = None
    after: str | None = None
    once: bool = False
    ready: bool = False
    detail: str | None = None
    samples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A line that carries values only. `quiet`: its moving numbers are progress, but it makes no event."""

    id: str
    pattern: str
    quiet: bool = False
    once: bool = False
    detail: str | None = None
    samples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorLine:
    """A line that says what went wrong. `fatal`: after it the start cannot succeed."""

    id: str
    pattern: str
    fatal: bool = False
    samples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chatter:
    """A line that may come while nothing moves: it never counts as new text."""

    id: str
    pattern: str
    samples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """Regexes peeled off a line's front, in order and again until none fits.

    Named groups: stamp, level, file, rank, dp, pp, tp, ep, name, pid.
    `stamp_formats`: of strptime; a format without a year is read in the year that the reader was given; `iso` is RFC 3339.
    """

    patterns: tuple[str, ...] = ()
    stamp_formats: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Title:
    """A regex on process titles; named groups name, rank, dp, pp, tp, ep. Without a group `name`, `name` is the member's."""

    pattern: str
    name: str | None = None
    samples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerRule:
    """An engine's own timer. `env` and `flags` set it, in `unit`; `seconds` is its default.

    `only_if_set`: without them it does not run. `when`: it runs only where one of these conditions holds (empty: always).
    """

    name: str
    seconds: float
    env: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    unit: Literal["s", "ms"] = "s"
    phases: tuple[Phase, ...] = ()
    only_if_set: bool = False
    when: tuple[When, ...] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Native:
    """A generation through the engine's own route (`routes.native`).

    In `body` the strings `$prompt`, `$tokens` and `$model` stand for the values. `text`, `tokens`, `finish`: dotted paths in the answer.
    """

    body: Mapping[str, Any] = field(default_factory=dict)
    text: str = "text"
    tokens: str | None = None
    finish: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One engine. `hash` names the content (12 hex digits of SHA-256): two profiles with the same hash read the same file."""

    name: str
    hash: str = ""
    schema: int = 1
    checked: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    """distributions whose versions are worth telling; the engine's own is named like the engine"""
    order: tuple[Phase, ...] = USUAL_ORDER
    listens_before_load: bool = False
    terminates: int = 1
    task: str = "generate"
    dashes: bool = False
    """`--a_b` and `--a-b` are the same flag"""
    abbreviations: bool = False
    """an unambiguous beginning of a flag is that flag (argparse's default)"""
    recognise: Recognise = field(default_factory=Recognise)
    options: tuple[Option, ...] = ()
    roles: tuple[RoleRule, ...] = ()
    tasks: tuple[TaskRule, ...] = ()
    milestones: tuple[Milestone, ...] = ()
    facts: tuple[Fact, ...] = ()
    errors: tuple[ErrorLine, ...] = ()
    chatter: tuple[Chatter, ...] = ()
    prefix: Prefix = field(default_factory=Prefix)
    titles: tuple[Title, ...] = ()
    timers: tuple[TimerRule, ...] = ()
    routes: Routes = field(default_factory=Routes)
    native: Native | None = None
    budgets: Mapping[Phase, float] = field(default_factory=dict)
    counters: Mapping[str, str] = field(default_factory=dict)

    @property
    def ended_by_line(self) -> tuple[Phase, ...]:
        """The phases whose end some line tells, in this engine's order."""
        ended = {milestone.phase for milestone in self.milestones if milestone.edge is Edge.END}
        return tuple(phase for phase in self.order if phase in ended)

    def option(self, name: str) -> Option | None:
        """The first option that fills this field of the plan."""
        return next((option for option in self.options if option.field == name), None)
