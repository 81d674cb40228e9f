"""The nouns of isolation: a setting of a command, a trial of some of them, and what came out.

A configuration is the set of settings that are *kept* as the user gave them; every other one is changed (removed, or its remedy added).
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from firsttoken.model.redact import mask_argv, mask_env


class Outcome(StrEnum):
    """Of a trial, compared with the baseline. `DIFFERENT`: it failed in another way; `UNRESOLVED`: it could not be told."""

    SAME = "same"
    PASSES = "passes"
    DIFFERENT = "different"
    UNRESOLVED = "unresolved"


class Purpose(StrEnum):
    """What a trial is to tell."""

    BASELINE = "does the command fail again?"
    BAREST = "does it pass with everything changed that can be?"
    SHORTCUT = "does it fail alike with the shortcut?"
    PLACE = "does it fail alike on these GPUs and this port?"
    NARROW = "which settings are at fault?"
    REPEAT = "does that configuration always pass?"
    FAILS_AGAIN = "does the minimal failing configuration fail again?"
    MINIMAL = "is each of its settings needed?"
    FIX = "does the fix pass?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A flag as it stands in a command: words `begin` to `end` (not included) of its arguments. `name` in full, `field` of its option."""

    name: str
    begin: int
    end: int
    values: tuple[str, ...] = ()
    field: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One step from the user's command to another one. `kind`: flag, env, key (of a flag's JSON) or word. `action`: remove, add or set.

    `values`: of a flag (none at all is a switch) or a variable, the keys, or what a word becomes. `at`: which of the same flag, from 0.
    `secret`: of a word that is one, and that nothing but its place in the command tells.
    """

    kind: str
    name: str
    action: str
    values: tuple[str, ...] = ()
    at: int = 0
    secret: bool = False

    @property
    def text(self) -> str:
        """`- --graphs`, `+ NCCL_P2P_DISABLE=1`, `- mode in --compilation-config`; secrets masked."""
        value = self.values[0] if self.values else ""
        if self.secret:
            return "**** → ****"
        if self.kind == "env":
            shown = mask_env({self.name: value})[self.name]
            return f"- {self.name}={shown}" if self.action == "remove" else f"+ {self.name}={shown}"
        match self.kind:
            case "key":
                return f"- {value} in {self.name}"
            case "word":
                return f"{self.name} → {value}"
            case _:
                return f"{'-' if self.action == 'remove' else '+'} {shlex.join(mask_argv((self.name, *self.values)))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One thing that can be changed in a command. `label` names it as it stands, and is its own only.

    `changes` are made together. `remedy`: the command does not name it; changing it adds something. `wished`: the user has asked for it.
    `phases`: where a failing start makes it a suspect.
    `suspicion` 0 to 1: how likely the evidence makes it that this is at fault; `because` says why.
    """

    label: str
    changes: tuple[Change, ...]
    remedy: bool = False
    wished: bool = False
    phases: tuple[str, ...] = ()
    suspicion: float = 0.0
    because: str = ""

    @property
    def change(self) -> str:
        """What is done to the command where it is changed."""
        return " ".join(change.text for change in self.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What makes two failures the same one. `sort`: blocked, ended, unserving; `where`: what blocked ranks stand in; `root`: the kind of
    the root blocker; `error`: the class of the first error."""

    sort: str
    phase: str | None = None
    where: tuple[str, ...] = ()
    root: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One launch. `kept`: labels of the settings that were as the user gave them. `until`: what ended it. `place`: where it ran, 0 as the
    user typed it. `together`: number of the first trial of those that ran at once."""

    number: int
    kept: tuple[str, ...]
    changed: tuple[str, ...]
    purpose: Purpose
    outcome: Outcome
    verdict: str
    seconds: float
    run: str | None = None
    signature: Signature | None = None
    reason: str = ""
    until: str = ""
    shortcut: str | None = None
    caches: Mapping[str, str] = field(default_factory=dict)
    place: int = 0
    together: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """The answer so far. `minimal_failing` and `minimal_fix` are None while they are not known. `seconds`: what ran at once counts once.

    `verified`: what was launched again at the end and came out as said. `unjudged`: settings of the minimal failing configuration without
    which it fails in another way, so that nobody knows whether they matter. `posterior`: the likeliest culprits with their probability.
    `failed`, `passed`: of a failure that comes and goes, launches that kept all of what is at fault. `stays`: what is never changed.
    """

    name: str
    command: tuple[str, ...]
    settings: tuple[Setting, ...]
    stays: tuple[str, ...] = ()
    engine: str | None = None
    engine_version: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    state: str = "searching"
    reason: str = ""
    minimal_failing: tuple[Setting, ...] | None = None
    minimal_fix: tuple[Setting, ...] | None = None
    verified: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()
    trials: tuple[Trial, ...] = ()
    posterior: tuple[tuple[tuple[str, ...], float], ...] = ()
    guilty: tuple[str, ...] = ()
    cleared: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    launches_left: float | None = None
    parallel: int = 1
    intermittent: bool = False
    failed: int = 0
    passed: int = 0
    failure_rate: float | None = None
    seconds: float = 0.0
    cost: float | None = None
    reproduce: str | None = None
    fixed: str | None = None
    baseline: Mapping[str, Any] | None = None
    folder: str | None = None
    next: tuple[str, ...] = ()
    refused_with: int | None = None
    """127 where the program was not found, 126 where it may not be run"""
