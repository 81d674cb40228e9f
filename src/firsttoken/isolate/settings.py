"""What can be changed in a command: the user's own flags and variables, and the remedies that the engine's profile knows.

What a server is stays (model, port, host, ranks); what belongs together moves together. A setting that nothing makes a suspect is still
one: suspicion orders the search and never ends it.
"""

import hashlib
import json
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from firsttoken.knowledge.profile import IsolationRules, SettingRule
from firsttoken.model.isolation import Change, Given, Setting
from firsttoken.model.redact import mask_argv, mask_env

MOST = 60
"""settings; more than a screenful is none that a person gave"""
_SHARED = 0.75
"""How far suspects share what one alone would weigh, 0 to 1: right ones still save, wrong ones cost little (from simulations)."""
_BY_PHASE, _BY_CAUSE = 0.35, 0.6
"""How likely a setting is at fault that the failing phase, or a cause that was found, names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command as it can be edited. `first`: where the engine's own arguments begin, None where they are not to be seen (a script).

    `program`: where the innermost program begins, behind all that starts it. `assigned`: indices and value of `NAME=value` words in front,
    of which the last counts. `environment`: the caller's, as far as it reaches the program. `client`: it only asks a container daemon.
    """

    argv: tuple[str, ...]
    first: int | None = None
    program: int = 0
    given: tuple[Given, ...] = ()
    assigned: Mapping[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    client: bool = False

    @property
    def variables(self) -> dict[str, str]:
        return {**self.environment, **{name: value for name, (_, value) in self.assigned.items()}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """How the user steers. `keep`: flags or variables that stay. `attempt`: flags that may go although they usually stay, with words behind
    them to be set so. `attempt_env`: `NAME` may go, `NAME=value` is set. `swaps`: a word, and what it becomes."""

    keep: tuple[str, ...] = ()
    attempt: tuple[str, ...] = ()
    attempt_env: tuple[str, ...] = ()
    swaps: tuple[tuple[str, str], ...] = ()


def settings_of(command: Command, rules: IsolationRules, groups: Iterable[SettingRule], wishes: Wishes) -> tuple[Setting, ...]:
    """The user's settings in the order of the command, then variables, wishes, and remedies. `groups`: those that hold for this command."""
    used: set[int] = set()
    grouped = [setting for rule in groups if (setting := _by_rule(command, rule, rules, wishes, used)) is not None]
    own = [setting for setting in grouped if not setting.remedy]
    for index, one in enumerate(command.given):
        if index not in used and not _stays(one, rules, wishes):
            own += _single(command, one, rules)
    own.sort(key=lambda setting: _position(command, setting))
    found = _wished(command, wishes, [*own, *_variables(command, rules, wishes), *(one for one in grouped if one.remedy)])
    found.sort(key=lambda setting: setting.remedy and not setting.wished)
    unique = {setting.label: setting for setting in reversed(found)}
    return tuple(setting for setting in found if unique[setting.label] is setting)[:MOST]


def stays(command: Command, settings: Iterable[Setting]) -> tuple[str, ...]:
    """What of the engine's own arguments no setting changes, as it stands in the command."""
    changed = {change.name for setting in settings for change in setting.changes if change.kind in ("flag", "key")}
    first = command.first if command.first is not None else len(command.argv)
    begins = {first + one.begin: one for one in command.given}
    found: list[str] = []
    at = first
    while at < len(command.argv):
        one = begins.get(at)
        end = max(first + one.end, at + 1) if one is not None else at + 1
        if one is None or one.name not in changed:
            found.append(_shown(command.argv[at:end]))
        at = end
    return tuple(found)


def without_effect(command: Command, groups: Iterable[SettingRule], wishes: Wishes) -> tuple[str, ...]:
    """Wishes that name nothing of this command (a slip of the keyboard, mostly), or what it has already, as they were written."""
    variables = command.variables
    there = {one.name for one in command.given} | set(variables)
    as_is = {(one.name, one.values) for one in command.given}
    set_so = [(text, *text.partition("=")) for text in wishes.attempt_env]
    remedies = {name for rule in groups for name in (rule.name, *rule.env, *(change.name for change in _added(rule.add)))}
    return (
        *(f"--keep {name}" for name in wishes.keep if name not in there | remedies),
        *(f"--try {text}" for text in wishes.attempt if not text.startswith("-") or _is_so(_parsed_flag(text), as_is)),
        *(f"--try-env {text}" for text, name, given, _ in set_so if not name.isidentifier() or (not given and name not in variables)),
        *(f"--try-env {text}" for text, name, given, value in set_so if given and variables.get(name) == value),
        *(f"--swap {old}" for old, _ in wishes.swaps if old not in command.argv),
    )


def contradictions(wishes: Wishes) -> tuple[str, ...]:
    """Names that are both to stay and to go."""
    tried = {_parsed_flag(text).name for text in wishes.attempt} | {text.partition("=")[0] for text in wishes.attempt_env}
    return tuple(name for name in wishes.keep if name in tried)


def digest(command: Command, settings: Iterable[Setting]) -> str:
    """Of the command and all that may be changed in it, secrets among them: the same search, or another one?"""
    told = [
        list(command.argv),
        [[one.label, [[*map(str, (c.kind, c.name, c.action, c.at)), *c.values] for c in one.changes]] for one in settings],
    ]
    return hashlib.sha256(json.dumps(told).encode("utf8", "surrogateescape")).hexdigest()[:16]


def weighed(settings: Sequence[Setting], phase: str | None, findings: Sequence[Mapping[str, Any]]) -> tuple[Setting, ...]:
    """The settings with the suspicion that the baseline's phase and the causes found cast on them. A remedy that neither names is left out,
    but for those that hold in any phase."""
    named = [(row, change) for row in findings for change in row.get("settings") or ()]
    weighed = []
    for setting in settings:
        causes = [row for row, change in named if any(_names(change, one) for one in setting.changes)]
        best = max(causes, key=lambda row: float(row.get("confidence") or 0), default=None)
        if best is not None:
            sure = _BY_CAUSE * float(best.get("confidence") or 0)
            setting = replace(setting, suspicion=max(sure, 0.1), because=f"named by {best.get('cause')}")
        elif phase is not None and phase in setting.phases:
            setting = replace(setting, suspicion=_BY_PHASE, because=f"works in {phase}")
        elif setting.remedy and setting.phases and not setting.wished:
            continue
        weighed.append(setting)
    return tuple(weighed)


def weights(settings: Sequence[Setting]) -> tuple[float, ...]:
    """For the search: 1 is as likely as any other; suspects share what their evidence gives them, so that wrong ones cost little."""
    others = max(1, len(settings) - 1)
    suspects = sum(setting.suspicion > 0 for setting in settings)
    return tuple(
        1.0 if not setting.suspicion else max(1.0, setting.suspicion / (1 - setting.suspicion) * others / max(1, suspects) ** _SHARED)
        for setting in settings
    )


def _by_rule(command: Command, rule: SettingRule, rules: IsolationRules, wishes: Wishes, used: set[int]) -> Setting | None:
    """A group of flags that stand there, or a remedy that does not."""
    indices = [
        index
        for index, one in enumerate(command.given)
        if index not in used and _matches(one.name, rule.flags) and one.name not in wishes.keep
    ]
    added = _added(rule.add)
    there = {one.name for one in command.given}
    if any(change.name.partition("=")[0] in there for change in added) or any(
        name in command.assigned or name in command.environment for name in rule.env
    ):
        # it is done already, and stays, unless it is asked for
        used |= {
            index
            for index, one in enumerate(command.given)
            if any(change.name.partition("=")[0] == one.name for change in added) and one.name not in wishes.attempt
        }
        return None
    if not indices and not added and not rule.env:
        return None
    if {rule.name, *(change.name for change in added), *rule.env} & set(wishes.keep) or (command.first is None and added):
        return None
    used |= set(indices)
    removed = [_removal(command, command.given[index]) for index in indices]
    variables = [Change(kind="env", name=name, action="add", values=(value,)) for name, value in rule.env.items()]
    words = _shown([word for index in indices for word in _words(command, command.given[index])])
    label = f"{rule.name} ({words})" if words else rule.name
    return Setting(label=label, changes=(*removed, *added, *variables), remedy=not indices, phases=tuple(rule.phases))


def _single(command: Command, one: Given, rules: IsolationRules) -> list[Setting]:
    words = _shown(_words(command, one))
    if one.name in rules.split and len(keys := _keys(one)) > 1:
        removal = _removal(command, one)
        return [Setting(label=f"{key} in {one.name}", changes=(replace(removal, kind="key", values=(key,)),)) for key in keys]
    same = [other for other in command.given if _shown(_words(command, other)) == words]
    label = words if len(same) == 1 else f"{words} (number {same.index(one) + 1})"
    return [Setting(label=label, changes=(_removal(command, one),))]


def _variables(command: Command, rules: IsolationRules, wishes: Wishes) -> list[Setting]:
    found = []
    free = {name.partition("=")[0] for name in wishes.attempt_env if "=" not in name}
    for name, value in command.variables.items():
        stays = name in wishes.keep or any(re.fullmatch(pattern, name) for pattern in rules.keep_env)
        known = name in command.assigned or any(re.fullmatch(pattern, name) for pattern in rules.env)
        if name in free or (known and not stays):
            shown = mask_env({name: value})[name]
            found.append(Setting(label=f"{name}={shown}", changes=(Change(kind="env", name=name, action="remove", values=(value,)),)))
    return found


def _wished(command: Command, wishes: Wishes, found: list[Setting]) -> list[Setting]:
    """`found`: the settings so far, to which wishes are added, or of which they are a part already. What is given with another value than
    the wished one is set to that, instead of removed."""
    for text in wishes.attempt:
        change = _parsed_flag(text)
        given = [one for one in command.given if one.name == change.name]
        if not change.name.startswith("-") or (given and not change.values):
            continue
        value = _shown((change.name, *change.values)).partition(" ")[2]
        if not given:
            _add(found, change, f"{_shown((change.name, *change.values))} not given", remedy=True)
        elif not _set_instead(found, replace(change, action="set"), value):
            _add(found, replace(change, action="set"), f"{_shown(_words(command, given[0]))} → {value}")
    for text in wishes.attempt_env:
        name, equals, value = text.partition("=")
        if not equals:
            continue
        change = Change(kind="env", name=name, action="set", values=(value,))
        shown, was = mask_env({name: value})[name], mask_env({name: command.variables.get(name, "")})[name]
        if name not in command.variables:
            _add(found, change, f"{name}={shown} not given", remedy=True)
        elif not _set_instead(found, change, shown):
            _add(found, change, f"{name}={was} → {shown}")
    for old, new in wishes.swaps:
        words = mask_argv(command.argv)
        secret = any(one == old != shown for one, shown in zip(command.argv, words, strict=True)) or mask_argv((new,)) != (new,)
        change = Change(kind="word", name=old, action="set", values=(new,), secret=secret)
        found.append(Setting(label=change.text, changes=(change,), wished=True))
    return found


def _add(found: list[Setting], change: Change, label: str, *, remedy: bool = False) -> None:
    """A setting of its own, unless one does just this already."""
    for at, one in enumerate(found):
        if any(
            (other.kind, other.name, other.values) == (change.kind, change.name, change.values)
            for other in one.changes
            if other.action != "remove"
        ):
            found[at] = replace(one, wished=True)
            return
    found.append(Setting(label=label, changes=(change,), remedy=remedy, wished=True))


def _set_instead(found: list[Setting], change: Change, value: str) -> bool:
    """Where a setting takes away just what `change` sets, it sets it so from now on; of a flag that is given twice one setting is left."""
    first, *more = [at for at, one in enumerate(found) if all(_takes_away(other, change) for other in one.changes)] or [-1]
    if first < 0:
        return False
    found[first] = replace(found[first], label=f"{found[first].label} → {value}", changes=(change,), wished=True)
    for at in reversed(more):
        del found[at]
    return True


def _takes_away(one: Change, change: Change) -> bool:
    return (one.kind, one.name, one.action) == (change.kind, change.name, "remove")


def _is_so(change: Change, given: Collection[tuple[str, tuple[str, ...]]]) -> bool:
    return bool(change.values) and (change.name, change.values) in given


def _parsed_flag(text: str) -> Change:
    """`--flag`, `--flag value`, `--flag=value`; words as in a shell, and JSON as one."""
    found = re.match(r"([^\s=]*)[\s=]?(.*)", text, re.S)
    name, rest = found.groups() if found is not None else (text, "")
    return Change(kind="flag", name=name, action="add", values=(rest,) if _is_json(rest) else _split(rest))


def _is_json(text: str) -> bool:
    """An object or a list."""
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


def _split(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError:  # a quote that is not closed
        return tuple(text.split())


def _stays(one: Given, rules: IsolationRules, wishes: Wishes) -> bool:
    if one.name in wishes.keep:
        return True
    return one.name not in {_parsed_flag(text).name for text in wishes.attempt} and (
        one.name in rules.keep or one.field in rules.keep_fields
    )


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _added(words: Sequence[str]) -> list[Change]:
    """`--flag value --other` as changes."""
    found: list[Change] = []
    for word in words:
        if word.startswith("-"):
            found.append(Change(kind="flag", name=word, action="add"))
        elif found:
            found[-1] = replace(found[-1], values=(*found[-1].values, word))
    return found


def _removal(command: Command, one: Given) -> Change:
    alike = [other for other in command.given if other.name == one.name]
    return Change(kind="flag", name=one.name, action="remove", values=one.values, at=alike.index(one))


def _words(command: Command, one: Given) -> tuple[str, ...]:
    first = command.first or 0
    return command.argv[first + one.begin : first + one.end]


def _shown(words: Sequence[str]) -> str:
    return " ".join(mask_argv(words))


def _keys(one: Given) -> tuple[str, ...]:
    try:
        found = json.loads(one.values[-1]) if one.values else None
    except (ValueError, RecursionError):
        return ()
    return tuple(map(str, found)) if isinstance(found, dict) else ()


def _position(command: Command, setting: Setting) -> int:
    change = setting.changes[0]
    alike = [one.begin for one in command.given if one.name == change.name]
    return alike[change.at] if change.at < len(alike) else len(command.argv)


def _names(row: Mapping[str, Any], change: Change) -> bool:
    """Whether a cause's setting is this change: to add what it would add, to remove or set what stands there."""
    return row.get("kind") == change.kind and row.get("name") == change.name
