"""Reads the fields of a plan from a command's arguments, its config file and its environment, as a profile's options say.

The engine's full list of flags is not known here, so for a flag that no option names the reader has to guess whether the next word is
its value. It only matters for positional arguments: a word is taken for one where what stands before it is surely complete, or where it
looks like a model. A value that could not be known (`$(…)` in a script) makes its field unknown, which is not the default.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from firsttoken.knowledge.profile import Option, Profile
from firsttoken.model.isolation import Given
from firsttoken.plan.world import UNKNOWN, World

Value = str | int | float | bool | tuple[str, ...] | Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """`values` by field, defaults included; an unknown one is left out. `sources` of those that were given. `flags`: every flag in its full
    name with its values, none at all for a switch. `problems`: what was there and could not be read."""

    values: Mapping[str, Value]
    sources: Mapping[str, str]
    flags: Mapping[str, tuple[str, ...]]
    env: Mapping[str, str]
    positionals: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def text(self, field: str) -> str | None:
        value = self.values.get(field)
        if isinstance(value, tuple):
            return value[0] if value else None
        return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None

    def number(self, field: str) -> int | None:
        value = self.values.get(field)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


def read(args: Sequence[str], profile: Profile, world: World, also: Sequence[str] = ()) -> Read:
    """`args`: what stands behind the program's words. `also`: further flags (of timers and rules) whose values are wanted. Never raises."""
    reader = _Reader(profile, world, also)
    reader.read_args(args)
    config = next((option for option in profile.options if option.field == "config_file"), None)
    problems: list[str] = []
    if config is not None and (path := reader.last(config)) is not None:
        words, problem = _config_words(path, world)
        problems += [problem] if problem else []
        # a file's settings stand in front, so that what the command says wins
        reader = _Reader(profile, world, also)
        reader.read_args(words, source=f"config file {path}")
        reader.read_args(args)
    return reader.result(problems)


def given(args: Sequence[str], profile: Profile, world: World, also: Sequence[str] = ()) -> tuple[Given, ...]:
    """Every flag as it stands, in order; of one that no option names, all words that may be its values. Never raises."""
    reader = _Reader(profile, world, also)
    reader.read_args(args)
    positional = any(option.position is not None and option not in reader.raw for option in profile.options)
    missed = positional and not reader.positionals and not reader.likely
    return tuple(reader.without_model(one) if missed and one.field is None else one for one in reader.given)


_SWITCH = re.compile(r"--(?:no|enable|disable|enforce|trust|skip|use|allow|is|headless|verbose)(?:[-_]|$)|-[vh]$")
"""Of the flags with such names in the two engines that were looked at, 293 take no value and one does."""
_ATTACHED = re.compile(r"-[A-Za-z]\d+$")
_NEGATIVE = re.compile(r"-\d+(?:\.\d*)?$|-\.\d+$")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class _Reader:
    def __init__(self, profile: Profile, world: World, also: Sequence[str]) -> None:
        self.profile = profile
        self.world = world
        self.known: dict[str, Option | None] = {self._normal(flag): None for flag in also}
        self.known |= {self._normal(flag): option for option in profile.options for flag in option.flags}
        self.flags: dict[str, tuple[str, ...]] = {}
        self.raw: dict[Option, tuple[str, ...]] = {}
        self.sources: dict[Option, str] = {}
        self.positionals: list[str] = []
        self.likely: list[str] = []
        self.guessed: list[str] = []
        self.given: list[Given] = []

    def last(self, option: Option) -> str | None:
        values = self.raw.get(option)
        return values[-1] if values else None

    def read_args(self, args: Sequence[str], source: str | None = None) -> None:
        words = list(args)
        at = 0
        sure = True  # what stands before `at` is complete
        while at < len(words):
            word = words[at]
            at += 1
            if word == "--":
                self.positionals += words[at:]
                return
            if not word.startswith("-") or word == "-" or _NEGATIVE.match(word) or " " in word.partition("=")[0]:
                if sure or self._like_a_model(word):
                    (self.positionals if sure else self.likely).append(word)
                continue
            name, option, inline = self._split(word)
            following = _leading_values(words, at)
            taken, sure = self._take(name, option, inline, following)
            at += len(taken) if inline is None else 0
            values = taken if inline is None else (inline,)
            self.flags[name] = values
            self.given.append(self._as_given(name, option, words, at, len(taken) if inline is None else 0, values))
            if option is not None:
                self._give(option, word, values)
                self.sources[option] = source or f"flag {name}"

    def _take(self, name: str, option: Option | None, inline: str | None, following: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
        """The words behind a flag that are its values, and whether that is sure."""
        if inline is not None:
            return (), True
        if option is not None:
            count = {"bool": 0, "list": len(following)}.get(option.type, 1)
            return following[:count], True
        if _SWITCH.match(name) or _ATTACHED.match(name):
            return (), True
        self.guessed += following[:1]
        return following[:1], not following

    def _as_given(self, name: str, option: Option | None, words: list[str], end: int, taken: int, values: tuple[str, ...]) -> Given:
        begin = end - taken - 1
        if option is None and taken:
            more = _leading_values(words, end)
            kept = next((at for at, word in enumerate(more) if self._like_a_model(word)), len(more))
            end, values = end + kept, values + more[:kept]
        negated = option is not None and words[begin].startswith(("--no-", "--no_")) and not name.startswith("--no")
        written = "--no-" + name[2:] if negated else name
        return Given(name=written, begin=begin, end=end, values=values, field=option.field if option is not None else None)

    def without_model(self, one: Given) -> Given:
        """A switch that no option names, in front of a model that was not found elsewhere, has not the model for its value."""
        swallowed = bool(one.values) and one.end > one.begin + 1 and self._like_a_model(one.values[0])
        return Given(name=one.name, begin=one.begin, end=one.begin + 1) if swallowed else one

    def _give(self, option: Option, word: str, values: tuple[str, ...]) -> None:
        keys = word.partition("=")[0].split(".")[1:] if option.type == "json" and word.startswith("--") else []
        if not keys:
            negated = option.type == "bool" and word.startswith("--no") and not any(flag.startswith("--no") for flag in option.flags)
            self.raw[option] = ("false",) if negated else values
            return
        # `--config.key value`: one key of a JSON argument
        nested: object = _parsed(values[-1] if values else "")
        for key in reversed(keys):
            nested = {key.rstrip("+"): nested}
        before = _json(" ".join(self.raw.get(option, ()))) or {}
        self.raw[option] = (json.dumps({**before, **nested} if isinstance(nested, dict) else before),)

    def _split(self, word: str) -> tuple[str, Option | None, str | None]:
        """The flag's full name, its option and the value that is attached to it."""
        flag, equals, value = word.partition("=")
        inline = value if equals else None
        name = self._normal(flag)
        if name in self.known:
            return name, self.known[name], inline
        if name.startswith("--no-") and (option := self.known.get("--" + name[5:])) is not None and option.type == "bool":
            return "--" + name[5:], option, None
        if not word.startswith("--") and word[:2] in self.known and word[2:3].isdecimal():
            return word[:2], self.known[word[:2]], word[2:]
        if self.profile.abbreviations and len(name) > 4 and name.startswith("--"):
            full = [one for one in self.known if one.startswith(name)]
            options = {self.known[one] for one in full}
            if len(full) == 1 or (len(options) == 1 and None not in options):
                return full[0], self.known[full[0]], inline
        return name, None, inline

    def _normal(self, flag: str) -> str:
        base = flag.partition(".")[0] if flag.startswith("--") else flag
        return "--" + base[2:].replace("_", "-") if self.profile.dashes and base.startswith("--") else base

    def _like_a_model(self, word: str) -> bool:
        if "=" in word or word.startswith(("{", "[")):
            return False
        return bool("/" in word or word.endswith(".gguf") or self.world.list_folder(self.world.path(word)) is not None)

    def result(self, problems: list[str]) -> Read:
        values: dict[str, Value] = {}
        sources: dict[str, str] = {}
        unknown: set[str] = set()
        self.positionals = self.positionals or self.likely
        for option in self.profile.options:
            if option.field in values or option.field in unknown:
                continue
            texts, source = self._found(option)
            if texts is None:
                continue
            if any(UNKNOWN in text for text in texts):
                problems.append(f"{option.field}: {source} is set by something that only a shell can work out")
                unknown.add(option.field)
                continue
            value = _typed(option, texts)
            if value is None:
                problems.append(f"{option.field}: {source} is {' '.join(texts)!r}, which is no {option.type}")
                unknown.add(option.field)
            else:
                values[option.field], sources[option.field] = value, source
        for option in self.profile.options:
            missed = option.position is not None and any(self._like_a_model(word) for word in self.guessed)
            if option.default is not None and option.field not in unknown and not missed:
                values.setdefault(option.field, option.default)
        return Read(
            values=values,
            sources=sources,
            flags=self.flags,
            env=self.world.env,
            positionals=tuple(self.positionals),
            problems=tuple(problems),
        )

    def _found(self, option: Option) -> tuple[tuple[str, ...] | None, str]:
        positional = option.position is not None and option.position < len(self.positionals)
        if option in self.raw and not (positional and self.sources[option].startswith("config")):
            return self.raw[option], self.sources[option]
        if option.position is not None and positional:
            return (self.positionals[option.position],), "positional argument"
        for name in option.env:
            if self.world.env.get(name):
                return (self.world.env[name],), f"environment {name}"
        return None, ""


def _leading_values(words: list[str], at: int) -> tuple[str, ...]:
    end = at
    while end < len(words) and (not words[end].startswith("-") or _NEGATIVE.match(words[end]) or " " in words[end]):
        end += 1
    return tuple(words[at:end])


def _typed(option: Option, texts: tuple[str, ...]) -> Value | None:
    text = texts[-1] if texts else ""
    match option.type:
        case "bool":
            return True if not texts or text.lower() in _TRUE else False if text.lower() in _FALSE else None
        case "int":
            return int(text) if re.fullmatch(r"\s*[+-]?\d{1,12}\s*", text) else None
        case "list":
            return texts or None
        case "json":
            return _json(text) if text else None
        case "str":
            return text or None


def _json(text: str) -> dict[str, object] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else {"value": found}


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _config_words(path: str, world: World) -> tuple[list[str], str | None]:
    """A YAML or JSON file's keys as flags, and what was wrong with it."""
    text = world.read_text(world.path(path))
    if text is None:
        return [], f"config file {path}: not readable"
    import yaml  # only for a command that names a file of options

    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        return [], f"config file {path}: not YAML ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
    if not isinstance(content, dict):
        return [], None if content is None else f"config file {path}: no mapping of settings"
    words: list[str] = []
    for key, value in content.items():
        flag = f"--{key}"
        match value:
            case bool():
                words += [flag] if value else []
            case dict():
                words += [flag, json.dumps(value, default=str)]
            case list():
                words += [flag, *map(str, value)] if value else []
            case None:
                pass
            case _:
                words += [f"{flag}={value}"]
    return words, None
