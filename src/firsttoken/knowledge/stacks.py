"""What a stack says, as data: signatures of frames, read from stacks/*.toml.

A signature names a function by its frame, and says what a thread that stands there does: waits for other ranks, for a lock, reads a file,
compiles. The innermost telling frame decides, since what is outside of it only says why. A few frames of glue may lie inside of a telling
one (`depth`). Two sorts give way: a `general` one (a queue's get, a selector) to any nearby frame outside of it that says what it is
about; and one that is found `anywhere` (a compile, an import: work that may look like anything inside) to a wait inside of it.
"""

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from importlib import resources
from typing import Any

import msgspec

from firsttoken.knowledge.load import SCHEMA, KnowledgeError
from firsttoken.model.stillness import Frame, ThreadStack

DEPTH = 3
"""frames of glue that may lie inside of a telling one"""


class Doing(StrEnum):
    """What a thread does at a frame. `works`: a sign of work, which may take long but does not wait for anybody."""

    COLLECTIVE = "collective"
    RENDEZVOUS = "rendezvous"
    LOCK = "lock"
    FILE_READ = "file_read"
    NETWORK = "network"
    COMPILE = "compile"
    SLEEP_RETRY = "sleep_retry"
    QUEUE = "queue"
    IDLE = "idle"
    """it is up, and waits for requests"""
    GIL = "gil"
    CUDA_SYNC = "cuda_sync"
    CAPTURE = "capture"
    EVENT_LOOP = "event_loop"
    IMPORT = "import"
    COMPUTE = "compute"
    CHILD = "child"
    NATIVE = "native"

    @property
    def works(self) -> bool:
        return self in (Doing.FILE_READ, Doing.COMPILE, Doing.CAPTURE, Doing.IMPORT, Doing.COMPUTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """A frame that must lie outside of the telling one."""

    function: str
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """`function` is matched whole, with and without its qualifiers; `file` at the end of the path, from a `/` on. `native` ones are
    found anywhere in the name of a native frame. `meaning` ends the sentence "it …". `tell`: a variable of the frame (or of one close
    outside) that names what is waited for, or a text with variables in braces; with `stands`, a file that is the lock for as long as it is
    there. `where`: a word for the place, by default the function.
    """

    id: str
    kind: Doing
    meaning: str
    function: str
    file: str = ""
    native: bool = False
    within: Outer | None = None
    anywhere: bool = False
    general: bool = False
    depth: int = DEPTH
    tell: tuple[str, ...] = ()
    stands: bool = False
    where: str | None = None
    samples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`index`: of the telling frame, from the innermost on."""

    signature: Signature
    index: int
    where: str


def classify(frames: Sequence[Frame]) -> Found | None:
    """The signature of the innermost telling frame, None where none tells. Frames innermost first."""
    depth = 0
    general: Found | None = None
    for index, frame in enumerate(frames):
        for one in _of_frame(frame.function, frame.file, frame.native):
            if (not one.anywhere and depth > one.depth) or not _inside(one, frames[index + 1 :]):
                continue
            found = Found(signature=one, index=index, where=one.where or _short(frame.function))
            if not one.general:
                return general if one.anywhere and general is not None else found
            general = found
        if not frame.native and frame.file.endswith((".py", ">")):  # C sources come without the mark of native frames, too
            depth += 1
    return general


def marked(stack: ThreadStack) -> ThreadStack:
    """The stack with what it says."""
    found = classify(stack.frames)
    if found is None:
        return stack
    return ThreadStack(
        tid=stack.tid,
        name=stack.name,
        main=stack.main,
        frames=stack.frames,
        active=stack.active,
        sign=found.signature.id,
        doing=found.signature.kind.value,
        where=found.where,
    )


@cache
def signatures() -> tuple[Signature, ...]:
    """All of this version; those that ask for an outer frame first, else in the order of files and lines."""
    folder = resources.files("firsttoken.knowledge").joinpath("stacks")
    names = sorted(str(entry.name) for entry in folder.iterdir() if str(entry.name).endswith(".toml"))
    found = [one for name in names for one in parse(folder.joinpath(name).read_bytes(), name)]
    twice = {one.id for one in found if [other.id for other in found].count(one.id) > 1}
    if twice:
        raise KnowledgeError(f"signatures with one id: {', '.join(sorted(twice))}")
    return tuple(sorted(found, key=lambda one: one.within is None))


def signature(id: str) -> Signature | None:
    return _by_id().get(id)


def parse(content: bytes, file: str) -> tuple[Signature, ...]:
    """One file. KnowledgeError, with file and place, where it is wrong."""
    try:
        raw = tomllib.loads(content.decode("utf8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise KnowledgeError(f"{file} is not TOML: {error}") from error
    if raw.get("schema") != SCHEMA:
        raise KnowledgeError(f"{file}: schema is {raw.get('schema')!r}, this version reads {SCHEMA}")
    rows: Any = raw.get("signature", [])
    unknown = [key for key in raw if key not in ("schema", "signature")]
    known = set(Signature.__dataclass_fields__)
    for row in rows if isinstance(rows, list) else ():
        unknown += [f"signature.{key}" for key in row if key not in known]
    if unknown:
        raise KnowledgeError(f"{file}: `{unknown[0]}` is no key of a signature file")
    try:
        found = msgspec.convert(rows, tuple[Signature, ...])
    except msgspec.ValidationError as error:
        raise KnowledgeError(f"{file}: {error}") from error
    for one in found:
        _check(one, file)
    return found


def sample_frames(text: str) -> tuple[Frame, ...]:
    """A stack as py-spy prints it, one `function (file:line)` a line, innermost first. A frame of a library is native."""
    found: list[Frame] = []
    for line in text.strip().splitlines():
        match = _SAMPLE.match(line.strip())
        if match is not None:
            found.append(Frame(match["function"], match["file"], int(match["line"] or 0), match["line"] is None and ".so" in match["file"]))
    return tuple(found)


_SAMPLE = re.compile(r"^(?P<function>.+?) \((?P<file>[^()]+?)(?::(?P<line>\d+))?\)$")


@cache
def _by_id() -> dict[str, Signature]:
    return {one.id: one for one in signatures()}


@lru_cache(maxsize=1 << 14)
def _of_frame(function: str, file: str, native: bool) -> tuple[Signature, ...]:
    return tuple(one for one in signatures() if _matches(one, function, file, native))


def _matches(one: Signature, function: str, file: str, native: bool) -> bool:
    if one.native != native:
        return False
    named = (
        re.search(one.function, function)
        if native
        else _whole(one.function).match(function) or _whole(one.function).match(_short(function))
    )
    return named is not None and (not one.file or _at_end(one.file).search(file) is not None)


def _inside(one: Signature, outer: Iterable[Frame]) -> bool:
    if one.within is None:
        return True
    return any(
        (_whole(one.within.function).match(frame.function) or _whole(one.within.function).match(_short(frame.function)))
        and (not one.within.file or _at_end(one.within.file).search(frame.file))
        for frame in outer
    )


def _short(function: str) -> str:
    """`Queue.get` → `get`; `wrap.<locals>.inner` → `inner`."""
    return function if "::" in function else function.rsplit(".", 1)[-1]


@cache
def _whole(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?:{pattern})\Z")


@cache
def _at_end(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?:^|/)(?:{pattern})\Z")


def _check(one: Signature, file: str) -> None:
    for pattern in (one.function, one.file, *((one.within.function, one.within.file) if one.within is not None else ())):
        try:
            re.compile(pattern)
        except re.error as error:
            raise KnowledgeError(f"{file}: signature {one.id}: {pattern!r} is no regular expression: {error}") from error
    if not one.samples:
        raise KnowledgeError(f"{file}: signature {one.id} has no sample that shows it")
