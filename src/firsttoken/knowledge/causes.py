"""Causes as data: the shape of `knowledge/causes/*.toml` and their loader. One file a family.

A rule is facts for and against, with weights. A condition asks for one thing in what is known (a line of the log, a frame, a process, an
answer, a setting, a fact) or joins others. Its answer is yes, no, or unknown for want of something that was not attached.
"""

import dataclasses
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from firsttoken.knowledge.load import KnowledgeError
from firsttoken.model.words import Phase, Verdict

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Exactly one of the searches or joins is set, each an answer by itself.

    Regexes: `log` on lines of the log, `stack` on `function (file:line)`, `process` on titles, `probe` on the text of probes, `command` on
    the pasted command, `environment` on `NAME=value`. `error`: id of an error line of the profiles. `fact` alone asks for true; with
    `at_least`, `at_most`, `matches` or `equals` for its value. `all`, `any`, `none` join; `count`: at least so many of `of` hold.
    """

    log: str | None = None
    last_log: str | None = None
    """on the last lines of the log only: what it says at the end"""
    stack: str | None = None
    process: str | None = None
    probe: str | None = None
    command: str | None = None
    environment: str | None = None
    error: str | None = None
    fact: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    matches: str | None = None
    equals: str | None = None
    all: "tuple[Condition, ...]" = ()
    any: "tuple[Condition, ...]" = ()
    none: "tuple[Condition, ...]" = ()
    count: int | None = None
    of: "tuple[Condition, ...]" = ()
    phases: tuple[Phase, ...] = ()
    verdicts: tuple[Verdict, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """`weight` 0 to 1: how much the condition, if it holds, speaks for (or against) the cause by itself."""

    weight: float
    when: Condition
    says: str | None = None
    """the fact in words; else the line that matched"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One launch option to try in isolation. `kind`: flag or env; `action`: add or remove."""

    kind: str
    name: str
    value: str | None = None
    action: str = "add"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """`needs`: all must hold, or it is no candidate. `verdict`: what the files show if this is the cause; `overrules` the verdicts that it
    replaces (empty: the open ones). `behind`: `missing` singles out the ranks that never came. `samples` are lines that its log patterns
    match, `negatives` lines that they must not."""

    id: str
    meaning: str
    remedy: str = ""
    engines: tuple[str, ...] = ()
    phases: tuple[Phase, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    needs: tuple[Condition, ...] = ()
    speaks: tuple[Weighed, ...] = ()
    against: tuple[Weighed, ...] = ()
    verdict: Verdict | None = None
    overrules: tuple[Verdict, ...] = ()
    behind: str | None = None
    phase: Phase | None = None
    """the phase that the ranks it singles out never left"""
    settings: tuple[Setting, ...] = ()
    sources: tuple[str, ...] = ()
    samples: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    family: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    schema: int
    causes: tuple[Cause, ...] = field(default=())


@cache
def causes() -> tuple[Cause, ...]:
    """All causes of this version. KnowledgeError where a file is wrong (a defect of the installation)."""
    folder = resources.files("firsttoken.knowledge").joinpath("causes")
    files = sorted(
        (entry for entry in folder.iterdir() if entry.name.endswith(".toml") and not entry.name.startswith("_")), key=lambda e: e.name
    )
    return tuple(cause for entry in files for cause in parse(entry.read_bytes(), entry.name))


def parse(content: bytes, file: str) -> tuple[Cause, ...]:
    """One file's causes. `[[cause]]`, and in it `[[cause.for]]` and `[[cause.against]]`. Unknown keys are errors."""
    try:
        raw = tomllib.loads(content.decode("utf8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise KnowledgeError(f"{file} is not TOML: {error}") from error
    if raw.get("schema") != SCHEMA:
        raise KnowledgeError(f"{file}: schema is {raw.get('schema')!r}, this version reads {SCHEMA}")
    rows = [_shaped(row) for row in raw.pop("cause", [])]
    fields = {"schema": raw.pop("schema"), "causes": rows}
    unknown = [*raw, *_unknown(_File, fields, "")]
    if unknown:
        raise KnowledgeError(f"{file}: `{unknown[0]}` is no key of a cause file")
    try:
        loaded = msgspec.convert(fields, _File)
    except msgspec.ValidationError as error:
        raise KnowledgeError(f"{file}: {error}") from error
    return tuple(dataclasses.replace(cause, family=file.removesuffix(".toml")) for cause in loaded.causes)


def _shaped(row: dict[str, Any]) -> dict[str, Any]:
    """The file's short form: a weighed condition has its condition's keys beside its own."""
    row = dict(row)
    for name, target in (("for", "speaks"), ("against", "against")):
        if name in row:
            row[target] = [
                {
                    **{key: value for key, value in item.items() if key in ("weight", "says")},
                    "when": {key: value for key, value in item.items() if key not in ("weight", "says")},
                }
                for item in row.pop(name)
            ]
    return row


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _unknown(kind: Any, raw: Any, where: str) -> Iterator[str]:
    if get_origin(kind) is tuple and isinstance(raw, list):
        for index, item in enumerate(raw):
            yield from _unknown(get_args(kind)[0], item, f"{where}[{index}]")
        return
    part: Any = next((arg for arg in (kind, *get_args(kind)) if dataclasses.is_dataclass(arg)), None)
    if part is None or not isinstance(raw, dict):
        return
    hints = _hints(part)
    for key, value in raw.items():
        if key not in hints:
            yield f"{where}.{key}" if where else key
        else:
            yield from _unknown(hints[key], value, f"{where}.{key}" if where else key)
