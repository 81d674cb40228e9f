"""The one loader of the data files: TOML in, checked model types out, errors as sentences that name file and key.

Validation happens here and nowhere else. Unknown keys are errors, since a misspelt key would silently lose knowledge.
"""

import dataclasses
import hashlib
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from firsttoken.knowledge.profile import Profile

SCHEMA = 1
GENERIC = "_generic"

_PLURALS = {
    "option": "options",
    "role": "roles",
    "task_rule": "tasks",
    "milestone": "milestones",
    "fact": "facts",
    "error": "errors",
    "chatter": "chatter",
    "title": "titles",
    "timer": "timers",
    "setting": "settings",
    "shortcut": "shortcuts",
}


class KnowledgeError(ValueError):
    """A data file that cannot be used; the text says which, where and why."""


@cache
def profiles() -> Mapping[str, Profile]:
    """All engines that come with this version, by name. KnowledgeError where a file is wrong (a defect of the installation)."""
    common = _bytes(GENERIC)
    names = sorted(_stem(entry) for entry in _engines().iterdir() if entry.name.endswith(".toml"))
    loaded = [parse(_bytes(name), f"{name}.toml", common) for name in names if name != GENERIC]
    return MappingProxyType({profile.name: profile for profile in loaded})


def profile(name: str) -> Profile:
    """KnowledgeError, with the names that there are, where there is none of this name."""
    found = profiles().get(name)
    if found is None:
        raise KnowledgeError(f"no profile for an engine named {name!r}; there are {', '.join(profiles())}")
    return found


@cache
def generic() -> Profile:
    """What holds for the output of any engine: wrapper prefixes, tracebacks, deaths, usage errors, bars."""
    return parse(_bytes(GENERIC), f"{GENERIC}.toml")


def parse(content: bytes, file: str, common: bytes = b"") -> Profile:
    """One file's content as a profile. `common` is what it is read together with: part of the hash, not of the profile."""
    try:
        raw = tomllib.loads(content.decode("utf8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise KnowledgeError(f"{file} is not TOML: {error}") from error
    if raw.get("schema") != SCHEMA:
        raise KnowledgeError(f"{file}: schema is {raw.get('schema')!r}, this version reads {SCHEMA}")
    if "hash" in raw:
        raise KnowledgeError(f"{file}: `hash` is computed and may not stand in the file")
    fields = {_PLURALS.get(key, key): value for key, value in raw.items()}
    unknown = next(_unknown(Profile, fields, ""), None)
    if unknown is not None:
        raise KnowledgeError(f"{file}: `{unknown}` is no key of the profile format (docs/reference/profile-format.md)")
    try:
        loaded = msgspec.convert(fields, Profile)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        raise KnowledgeError(f"{file}: {what}, at {where.strip('`').removeprefix('$.') or 'the top'}") from error
    return dataclasses.replace(loaded, hash=hashlib.sha256(content + b"\0" + common).hexdigest()[:12])


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _unknown(kind: Any, raw: Any, where: str) -> Iterator[str]:
    """Paths of keys that no attribute of the dataclass `kind` takes."""
    if get_origin(kind) is tuple and isinstance(raw, list):
        for index, item in enumerate(raw):
            yield from _unknown(get_args(kind)[0], item, f"{where}[{index}]")
        return
    part: Any = next((arg for arg in (kind, *get_args(kind)) if dataclasses.is_dataclass(arg)), None)
    if part is None or not isinstance(raw, dict):
        return
    hints = _hints(part)
    for key, value in raw.items():
        path = f"{where}.{key}" if where else key
        if key not in hints:
            yield path
        else:
            yield from _unknown(hints[key], value, path)


def _engines() -> Any:
    return resources.files("firsttoken.knowledge").joinpath("engines")


def _bytes(name: str) -> bytes:
    content: bytes = _engines().joinpath(f"{name}.toml").read_bytes()
    return content


def _stem(entry: Any) -> str:
    return str(entry.name).removesuffix(".toml")
