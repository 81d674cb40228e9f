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
class Depth:
    """A flag that sets how many tokens are drafted a round, or the `key` of its JSON that does. `extra`: by how much it counts more."""

    flag: str
    key: str | None = None
    extra: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Speculative decoding: how a command asks for it, and how the engine tells what became of the drafts.

    Any of `on` switches it on. `flags`: regexes on the full names of all flags that go with it, `switches`: on those without a value.
    `copies`: a regex on those flags and values for drafters that copy from the text and have no weights of their own.
    `env`: variables that switch it on as well. `body`: what makes an answer as long as was asked, whatever the model wants.
    `log`: a regex on messages, with some of the groups length, rate, accepted, drafted; for servers whose metrics are not to be had.
    """

    on: tuple[When, ...] = ()
    flags: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    depths: tuple[Depth, ...] = ()
    copies: str | None = None
    body: Mapping[str, Any] = field(default_factory=dict)
    log: str | None = None
    samples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFolder:
    """Where compiled code (or a model) is kept. `env`: variables that name its place, `below`: under what they name, `default`: without
    them. `batons`: globs of lock files whose mere presence means that somebody builds. `jit`: kernels are compiled into it."""

    name: str
    env: tuple[str, ...] = ()
    below: str = ""
    default: str = ""
    batons: tuple[str, ...] = ()
    jit: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PortRule:
    """A port besides the HTTP one. `field`: of the option that names it; `offset` counts from that option's value, or from the HTTP port
    where no field is given. It is bound where one of `when` holds (empty: always), by the node with rank 0 alone."""

    name: str
    field: str | None = None
    offset: int = 0
    when: tuple[When, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Preconditions:
    """What the engine needs before it starts, for `firsttoken check`.

    `quantisations`: values of `quant_method` that it loads; `quantises`: values of its quantisation option that quantise while loading,
    and bits a weight then. `must_hold_context`: the start fails where one request of the full context does not fit. `needs_free_share`:
    and where less than the share of GPU memory that it may use is free. `overhead`: GiB that a GPU holds besides weights and cache, at the
    least. `cpu_packages`: distributions that use no GPU.
    `rank_memory`: GiB of host memory of a rank process besides weights. `packages_alike`: distributions whose versions must be equal.
    """

    checked: str = ""
    quantisations: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    """values of its option for the type of the weights; empty: not known"""
    quantises: Mapping[str, float] = field(default_factory=dict)
    longer_context_env: str = ""
    """variable that allows a context beyond the model's own; empty: it is not refused"""
    must_hold_context: bool = False
    needs_free_share: bool = False
    overhead: float = 0.0
    rank_memory: float = 0.0
    uneven_experts: bool = False
    copies_latent: bool = False
    """latent attention keeps a second copy of its up-projection also where it is not quantised"""
    uses_gpu: bool = True
    cpu_packages: tuple[str, ...] = ()
    packages_alike: tuple[tuple[str, ...], ...] = ()
    stages_env: str = ""
    """variable that names the layers of each pipeline stage"""
    unix_socket_length: int = 0
    """characters that it puts behind the folder for temporary files to name a Unix socket"""
    ports: tuple[PortRule, ...] = ()
    caches: tuple[CacheFolder, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRule:
    """What `isolate` may change as one: flags that belong together (a trailing `*` stands for any rest), and what is added in their place.

    Without `add` and `env` removing the flags is the change. `phases`: a start that fails there makes it a suspect. `when`: it is offered
    where one of these conditions holds (empty: always), and with `gpus` only where there are GPUs.
    """

    name: str
    flags: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    phases: tuple[Phase, ...] = ()
    when: tuple[When, ...] = ()
    gpus: bool = False
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortcutRule:
    """Words that make a start cheaper. `skips`: the phases of which nothing is left; one that fails in them is no case for it.

    `layers`: the flag that takes JSON over config.json, for a few of the model's layers only; `shortens`: phases that take as much less.
    `ranks`: the flag of the tensor parallel size, for two ranks."""

    name: str
    add: tuple[str, ...]
    skips: tuple[Phase, ...] = ()
    shortens: tuple[Phase, ...] = ()
    layers: str | None = None
    ranks: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationRules:
    """`keep`: flags, `keep_fields`: options and `keep_env`: variables (whole-name regexes) that stay as they are unless the user says
    otherwise. `env`: variables that are settings where they stand in the environment. `split`: JSON flags whose keys are settings.
    `alone`: flags and variables, `alone_fields`: options with which two servers cannot run side by side."""

    keep: tuple[str, ...] = ()
    keep_fields: tuple[str, ...] = ()
    keep_env: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    split: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    alone_fields: tuple[str, ...] = ()


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
    speculation: Speculation | None = None
    check: Preconditions = field(default_factory=Preconditions)
    settings: tuple[SettingRule, ...] = ()
    shortcuts: tuple[ShortcutRule, ...] = ()
    isolation: IsolationRules = field(default_factory=IsolationRules)

    @property
    def ended_by_line(self) -> tuple[Phase, ...]:
        """The phases whose end some line tells, in this engine's order."""
        ended = {milestone.phase for milestone in self.milestones if milestone.edge is Edge.END}
        return tuple(phase for phase in self.order if phase in ended)

    def option(self, name: str) -> Option | None:
        """The first option that fills this field of the plan."""
        return next((option for option in self.options if option.field == name), None)
