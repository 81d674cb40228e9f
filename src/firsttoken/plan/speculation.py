"""From a command with speculative decoding to the same command without it, with another number of draft tokens, or on another port.

Only the words of the engine's own arguments are touched, and only where they stand as they are at the end of the command: what a script
or a config file sets cannot be taken out of the command, and is refused with what to do instead.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from firsttoken.knowledge.profile import Depth, Profile, Speculation
from firsttoken.plan.make import Command, read_command
from firsttoken.plan.rules import holds
from firsttoken.plan.world import World


class NotSpeculating(ValueError):
    """No baseline can be made of the command; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One argument as it stands in the command: the flag's name (None for a positional) and all its words. `path`: keys behind a dot."""

    name: str | None
    path: tuple[str, ...]
    words: tuple[str, ...]

    @property
    def value(self) -> str | None:
        if self.name is None:
            return None
        return self.words[1] if len(self.words) > 1 else self.words[0].partition("=")[2] or None

    def with_value(self, value: str) -> "Group":
        flag = self.words[0]
        return replace(self, words=(flag, value) if len(self.words) > 1 else (f"{flag.partition('=')[0]}={value}",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculating:
    """A command that speculates. `before`: the words in front of the engine's own arguments. Holds secrets: never write it."""

    before: tuple[str, ...]
    groups: tuple[Group, ...]
    profile: Profile
    spec: Speculation
    movable: bool
    """whether its port is this machine's own, so that it can be started on another"""

    @property
    def argv(self) -> tuple[str, ...]:
        return self._joined(self.groups)

    @property
    def baseline(self) -> tuple[str, ...]:
        """The same command without speculation."""
        return self._joined(group for group in self.groups if not self._configures(group))

    @property
    def removed(self) -> tuple[str, ...]:
        return tuple(word for group in self.groups if self._configures(group) for word in group.words)

    @property
    def copies(self) -> bool:
        """Whether the drafter copies from the text instead of being a model."""
        return self.spec.copies is not None and re.search(self.spec.copies, " ".join(self.removed)) is not None

    @property
    def draft_tokens(self) -> int | None:
        """Tokens drafted a round, where the command says so."""
        told = ((_number(_told(group, depth)), depth.extra) for depth in self.spec.depths for group in self.groups)
        return next((number - extra for number, extra in told if number is not None), None)

    def with_draft_tokens(self, number: int) -> "Speculating | None":
        """Every flag that sets it is changed; where none does, one is added. None where the engine has no such flag."""
        groups = list(self.groups)
        pairs = [(at, depth) for at in range(len(groups)) for depth in self.spec.depths]
        places = [(at, depth) for at, depth in pairs if _told(groups[at], depth) is not None]
        places = (
            places
            or [(at, depth) for at, depth in pairs if depth.key is not None and groups[at].name == depth.flag and not groups[at].path][:1]
        )
        for at, depth in places:
            groups[at] = _changed(groups[at], depth, number + depth.extra)
        plain = next((depth for depth in self.spec.depths if depth.key is None), None)
        if not places and plain is None:
            return None
        if not places and plain is not None:
            groups.append(Group(name=plain.flag, path=(), words=(plain.flag, str(number + plain.extra))))
        return replace(self, groups=tuple(groups))

    def on_port(self, argv: Sequence[str], port: int) -> tuple[str, ...]:
        """`argv` (this command or its baseline) with another port."""
        option = self.profile.option("port")
        flags = option.flags if option is not None else ()
        kept = [group for group in _groups(argv[len(self.before) :], self.profile, self.spec) if group.name not in flags]
        return (*self.before, *(word for group in kept for word in group.words), flags[0], str(port))

    def _joined(self, groups: Iterable[Group]) -> tuple[str, ...]:
        return (*self.before, *(word for group in groups for word in group.words))

    def _configures(self, group: Group) -> bool:
        return group.name is not None and any(re.fullmatch(pattern, group.name) for pattern in self.spec.flags)


def speculating(argv: Sequence[str], world: World, profiles: Mapping[str, Profile]) -> Speculating:
    """NotSpeculating where the command does not speculate, or where its speculation is not set by its own words."""
    command = read_command(argv, world, profiles)
    start = command.peeled.start
    if start is None:
        raise NotSpeculating(
            "no engine is recognised in this command, so it is not known which of its options are those of speculation. "
            "Start both servers yourself and give their addresses: firsttoken speculate --baseline URL --speculative URL"
        )
    spec, name = start.profile.speculation, start.profile.name
    if spec is None:
        known = ", ".join(profile.name for profile in profiles.values() if profile.speculation is not None)
        raise NotSpeculating(
            f"how {name} is told to speculate is not known here (known: {known}). "
            "Start both servers yourself and give their addresses: firsttoken speculate --baseline URL --speculative URL"
        )
    _refuse_what_cannot_be_removed(command, spec)
    if not any(holds(when, command.read, start) for when in spec.on):
        ways = ", ".join(dict.fromkeys(" ".join(filter(None, (when.flag, *when.values[:1]))) for when in spec.on))
        raise NotSpeculating(
            f"this command starts {name} without speculative decoding: none of {ways} is there. Give the command with speculation; "
            "the one without is made of it. Where the model itself brings a drafter, start both and give --baseline URL --speculative URL"
        )
    tail = start.args
    if not tail or tuple(argv[-len(tail) :]) != tail:
        raise NotSpeculating(
            f"the options of {name} stand inside a script or a shell's string, where they cannot be changed. "
            "Give the engine's own command, or start both servers and give --baseline URL --speculative URL"
        )
    movable = start.profile.option("port") is not None and not command.peeled.far and command.peeled.container is None
    before = tuple(argv[: -len(tail)])
    return Speculating(before=before, groups=_groups(tail, start.profile, spec), profile=start.profile, spec=spec, movable=movable)


def _refuse_what_cannot_be_removed(command: Command, spec: Speculation) -> None:
    set_here = [name for name in spec.env if command.read.env.get(name)]
    if set_here:
        raise NotSpeculating(
            f"speculation is switched on by {', '.join(set_here)} in the environment, which would hold for the baseline too. "
            "Unset it and give the same as an option of the command"
        )
    flags = {when.flag for when in spec.on}
    for option in command.profile.options:
        source = command.read.sources.get(option.field, "")
        if source.startswith("config file") and flags & set(option.flags):
            raise NotSpeculating(
                f"speculation is set in the {source}, which would hold for the baseline too. "
                f"Take it out there and give it as {option.flags[0]}, or start both servers and give --baseline URL --speculative URL"
            )


_NUMBER = re.compile(r"-\d+(?:\.\d*)?$")


def _groups(args: Sequence[str], profile: Profile, spec: Speculation) -> tuple[Group, ...]:
    """All words, in their order. For flags that this profile's reader knows to take no value, and for positionals, one word each."""
    lone = {flag for option in profile.options if option.type == "bool" for flag in option.flags}
    groups: list[Group] = []
    at = 0
    while at < len(args):
        word = args[at]
        at += 1
        if word == "--":
            groups += [Group(name=None, path=(), words=(rest,)) for rest in args[at - 1 :]]
            break
        if not word.startswith("-") or word == "-" or _NUMBER.match(word) or " " in word.partition("=")[0]:
            groups.append(Group(name=None, path=(), words=(word,)))
            continue
        flag, equals, _ = word.partition("=")
        base, *path = flag.split(".") if flag.startswith("--") else [flag]
        name = "--" + base[2:].replace("_", "-") if profile.dashes and base.startswith("--") else base
        ours = any(re.fullmatch(pattern, name) for pattern in spec.flags)
        switch = name in lone or any(re.fullmatch(pattern, name) for pattern in spec.switches)
        takes = not equals and not switch and at < len(args) and (not args[at].startswith("-") or _NUMBER.match(args[at]) is not None)
        # a word behind a flag that is none of ours may be its value or a positional: either way both stay
        words = (word, args[at]) if takes and (ours or _sets_port(profile, name)) else (word,)
        at += len(words) - 1
        groups.append(Group(name=name, path=tuple(path), words=words))
    return tuple(groups)


def _sets_port(profile: Profile, name: str) -> bool:
    option = profile.option("port")
    return option is not None and name in option.flags


def _told(group: Group, depth: Depth) -> str | None:
    """The value by which this argument sets the number; None where it does not."""
    if group.name != depth.flag or group.value is None:
        return None
    if depth.key is None:
        return group.value
    if group.path:
        return group.value if group.path == (depth.key,) else None
    found = _object(group.value).get(depth.key)
    return str(found) if found is not None else None


def _changed(group: Group, depth: Depth, number: int) -> Group:
    if depth.key is None or group.path:
        return group.with_value(str(number))
    return group.with_value(json.dumps({**_object(group.value or ""), depth.key: number}))


def _object(text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\s*\d{1,4}\s*", text) else None
