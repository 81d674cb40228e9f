"""Which libraries with GPU code an engine loads, and which file on which GPU: the shape of `knowledge/libraries/*.toml` and its loader.

Read off the loaders that come in the packages (each entry names its source), never off the names of folders.
"""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

import msgspec

from firsttoken.knowledge.load import KnowledgeError
from firsttoken.model.gpu_code import Capability

SCHEMA = 1
_PATTERN = re.compile(r"\*|\d{1,2}\.(?:\d|x)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """`files`: globs below the package's folder; the first that matches anything gives the file. `on`: GPUs, as `9.0`, `9.x` or `*`."""

    files: tuple[str, ...]
    on: tuple[str, ...] = ("*",)
    by_cuda_version: bool = False
    """The number in the file's name is a CUDA version (`128` is 12.8): torch's own is taken, else the highest below it of the same major
    version, else the lowest above it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLibrary:
    """`engines` empty: any. Of `choices` the first for the GPU holds. A start uses it on the GPUs `used_on`, and where a regex of
    `used_with` matches the command. `certain`: without it no start works on those GPUs; else most models or settings use it."""

    id: str
    package: str
    what: str
    choices: tuple[Choice, ...]
    sources: tuple[str, ...]
    engines: tuple[str, ...] = ()
    used_on: tuple[str, ...] = ()
    used_with: tuple[str, ...] = ()
    certain: bool = False
    remedy: str = ""

    def chosen(self, capability: Capability) -> Choice | None:
        return next((choice for choice in self.choices if matches(choice.on, capability)), None)

    def asked_for(self, command: str) -> bool:
        return any(re.search(pattern, command) for pattern in self.used_with)


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    schema: int
    library: tuple[EngineLibrary, ...]


def matches(patterns: tuple[str, ...], capability: Capability) -> bool:
    return any(pattern in ("*", str(capability), f"{capability.major}.x") for pattern in patterns)


@cache
def libraries() -> tuple[EngineLibrary, ...]:
    """KnowledgeError where a file is wrong (a defect of the installation)."""
    folder = resources.files("firsttoken.knowledge").joinpath("libraries")
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".toml")), key=lambda entry: entry.name)
    return tuple(library for entry in files for library in parse(entry.read_bytes(), entry.name))


def parse(content: bytes, file: str) -> tuple[EngineLibrary, ...]:
    try:
        raw = tomllib.loads(content.decode("utf8"))
        loaded = msgspec.convert(raw, _File)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise KnowledgeError(f"{file}: {error}") from error
    if loaded.schema != SCHEMA:
        raise KnowledgeError(f"{file}: schema is {loaded.schema}, this version reads {SCHEMA}")
    _no_unknown_keys(raw, file)
    for library in loaded.library:
        for pattern in (*library.used_on, *(on for choice in library.choices for on in choice.on)):
            if not _PATTERN.fullmatch(pattern):
                raise KnowledgeError(f"{file}: {library.id}: {pattern!r} is no GPU; write it like 9.0, 9.x or *")
        for text in library.used_with:
            try:
                re.compile(text)
            except re.error as error:
                raise KnowledgeError(f"{file}: {library.id}: {text!r} is no regex: {error}") from error
    return loaded.library


def _no_unknown_keys(raw: dict[str, object], file: str) -> None:
    known = {"schema", "library"}
    for name in raw:
        if name not in known:
            raise KnowledgeError(f"{file}: `{name}` is no key of a library file")
    rows = raw["library"]
    assert isinstance(rows, list)
    for row in rows:
        unknown = [name for name in row if name not in EngineLibrary.__dataclass_fields__]
        unknown += [name for choice in row["choices"] for name in choice if name not in Choice.__dataclass_fields__]
        if unknown:
            raise KnowledgeError(f"{file}: {row['id']}: `{unknown[0]}` is no key of a library file")
