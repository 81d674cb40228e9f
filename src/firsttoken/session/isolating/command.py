"""Reads a command for isolation: its plan, its settings, and what of the profile's knowledge holds for it on this machine."""

import contextlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from firsttoken.isolate.settings import Command, Wishes, settings_of, stays, without_effect
from firsttoken.knowledge.load import generic, profiles
from firsttoken.knowledge.profile import CacheFolder, IsolationRules, Profile, SettingRule
from firsttoken.model.isolation import Given, Setting
from firsttoken.model.plan import Plan
from firsttoken.plan import rules as conditions
from firsttoken.plan.container import CLIENTS
from firsttoken.plan.make import Command as Reading
from firsttoken.plan.make import read_command
from firsttoken.plan.options import given
from firsttoken.plan.world import World
from firsttoken.session.isolating.shortcuts import Shortcut, shortcuts_of
from firsttoken.session.planning import local_world, plan_of, working_folder

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.S)
_DEVICES = ("nvidia0", "kfd", "davinci0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """`not_read`: why the engine's own arguments could not be taken apart, in a sentence."""

    command: Command
    plan: Plan
    settings: tuple[Setting, ...]
    stays: tuple[str, ...] = ()
    shortcuts: tuple[Shortcut, ...] = ()
    caches: tuple[CacheFolder, ...] = ()
    not_read: str | None = None
    idle_wishes: tuple[str, ...] = ()
    """what the user asked for and this command has nothing of"""
    port_flag: str | None = None
    alone: tuple[str, ...] = ()
    """flags and variables with which no second server can run beside the first"""
    sees: Mapping[str, str] = field(default_factory=dict)
    """the environment that reaches the engine, as far as the command tells"""


def read(argv: Sequence[str], wishes: Wishes, *, gpus: bool | None = None) -> Read:
    """`gpus`: whether there are any here; None: look. Never raises, whatever the command."""
    env = dict(os.environ)
    world = local_world(env, working_folder())
    found = read_command(argv, world, profiles())
    plan = plan_of(argv)
    start, profile = found.peeled.start, found.profile
    client = plan.wrapper in CLIENTS
    first: int | None = None
    flags: tuple[Given, ...] = ()
    why: str | None = None
    if start is None:
        why = "the engine is not recognised, so only variables in front of the command are settings"
    elif tuple(argv[len(argv) - len(start.args) :]) != start.args:
        why = "the engine is started by a script or a shell string; give isolate the command itself"
    else:
        first = len(argv) - len(start.args)
        flags = given(start.args, profile, found.peeled.world)
    program = _program(argv, found, first, client=client)
    assigned: dict[str, tuple[tuple[int, ...], str]] = {}
    for at, word in enumerate(() if client else argv[:program]):
        if (match := _ASSIGNMENT.fullmatch(word)) is not None:
            assigned[match[1]] = ((*assigned.get(match[1], ((), ""))[0], at), match[2])
    reaching = found.peeled.world.env
    command = Command(
        argv=tuple(argv), first=first, program=program, given=flags, assigned=assigned, client=client,
        environment={} if client else {name: value for name, value in env.items() if name in assigned or reaching.get(name) == value},
    )  # fmt: skip
    wishes = replace(
        wishes,
        keep=tuple(_as_given(text, flags, profile) for text in wishes.keep),
        attempt=tuple(_as_given(text, flags, profile) for text in wishes.attempt),
    )
    devices = gpus if gpus is not None else any(Path("/dev", name).exists() for name in _DEVICES)
    rules = (*profile.settings, *generic().settings)
    groups = tuple(rule for rule in rules if (devices or not rule.gpus) and _holds(rule, found))
    settings = settings_of(command, _merged(profile), groups, wishes)
    return Read(
        command=command,
        plan=plan,
        settings=settings,
        stays=stays(command, settings),
        shortcuts=shortcuts_of(profile.shortcuts, _model_config(plan, world), plan.sizes, flags) if first is not None else (),
        caches=(*profile.check.caches, *generic().check.caches),
        not_read=why,
        idle_wishes=without_effect(command, groups, wishes) if why is None else tuple(f"--try {text}" for text in wishes.attempt),
        port_flag=next((option.flags[0] for option in profile.options if option.field == "port" and option.flags), None),
        alone=_alone(command, _merged(profile)),
        sees=found.peeled.world.env,
    )


def warm(caches: Sequence[CacheFolder]) -> dict[str, str]:
    """Of each cache for compiled code: warm where something is in it, else cold. Warm ones make a trial quicker than the first was."""
    found = {}
    for cache in caches:
        if not cache.jit:
            continue
        named = next((os.environ[name] for name in cache.env if os.environ.get(name)), None)
        place = Path(named, cache.below) if named else Path(os.path.expandvars(cache.default)).expanduser()
        try:
            found[cache.name] = "warm" if any(place.iterdir()) else "cold"
        except OSError:
            found[cache.name] = "cold"
    return found


def _holds(rule: SettingRule, found: Reading) -> bool:
    return not rule.when or any(conditions.holds(when, found.read, found.peeled.start) for when in rule.when)


def _merged(profile: Profile) -> IsolationRules:
    own, common = profile.isolation, generic().isolation
    return IsolationRules(
        keep=(*own.keep, *common.keep),
        keep_fields=(*own.keep_fields, *common.keep_fields),
        keep_env=(*own.keep_env, *common.keep_env),
        env=(*own.env, *common.env),
        split=(*own.split, *common.split),
        alone=(*own.alone, *common.alone),
        alone_fields=(*own.alone_fields, *common.alone_fields),
    )


def _model_config(plan: Plan, world: World) -> dict[str, Any] | None:
    """config.json of a model on this machine; None where there is none that can be read: no file, too large, on a mount that is silent."""
    for place in plan.weight_files:
        text = world.read_text(f"{place}/config.json")
        with contextlib.suppress(ValueError, RecursionError):
            found = json.loads(text or "")
            if isinstance(found, dict):
                return found
    return None


def _alone(command: Command, rules: IsolationRules) -> tuple[str, ...]:
    variables = {*command.assigned, *command.environment}
    flags = (one.name for one in command.given if one.name in rules.alone or one.field in rules.alone_fields)
    return (*dict.fromkeys(flags), *(name for name in rules.alone if name in variables))


def _program(argv: Sequence[str], found: Reading, first: int | None, *, client: bool) -> int:
    """Where what the wrappers in front start begins."""
    inner = found.peeled.argv
    if client:
        return first if first is not None else len(argv)
    if inner and not inner[0].startswith("-") and tuple(argv[len(argv) - len(inner) :]) == inner:
        return len(argv) - len(inner)
    return _words_ahead(argv)


def _as_given(text: str, flags: Sequence[Given], profile: Profile) -> str:
    """A flag in the spelling that the command has for it."""
    name = re.split(r"[\s=]", text, maxsplit=1)[0]
    if any(one.name == name for one in flags):
        return text
    wanted = next((option.field for option in profile.options if name in option.flags), None)
    same = next((one.name for one in flags if wanted is not None and one.field == wanted), name)
    return same + text.removeprefix(name)


def _words_ahead(argv: Sequence[str]) -> int:
    """Assignments in front of an unknown program: `env A=1 B=2 program …`."""
    begin = 1 if argv and os.path.basename(argv[0]) == "env" else 0
    at = begin
    while at < len(argv) and _ASSIGNMENT.fullmatch(argv[at]):
        at += 1
    return at if at > begin else 0
