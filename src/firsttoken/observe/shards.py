"""Which files are the weights: shards found in a folder, beside a file, or behind a blob of the Hugging Face cache.

A folder may hold the same weights twice (`model-*.safetensors` beside `consolidated.safetensors`, several quantisations in GGUF): files are
kept in sets, and which set is loaded is known for sure only when one of its files is opened. `survey` asks the file system and may hang on
a dead mount: it is for an errand. Indexes are read by the caller's own reader: an observer must have no file of such a mount open.
Everything else here only looks at names.
"""

import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath

_SUFFIXES = (".safetensors", ".gguf", ".bin", ".pt", ".pth")
_RANKED = {suffix: place for place, suffix in enumerate(_SUFFIXES)}
_NUMBERED = re.compile(r"[-_.]?\d+-of-\d+")
_DIGITS = re.compile(r"\d+")
_INDEXED = re.compile(rb'"([^"\\/\n]{1,255}\.(?:safetensors|bin|pt|pth))"')
_VAGUE = re.compile(r"model|weight|consolidated|adapter|pytorch|-of-\d|layer|rank", re.IGNORECASE)
_BLOB = re.compile(r"^(?P<repository>.*/(?:models|datasets|spaces)--[^/]+)/blobs/[0-9a-f]{40,64}$")
_NOT_WEIGHTS = re.compile(r"^/(?:proc|sys|dev|memfd:)|/(?:site|dist)-packages/|/(?:torchinductor|torch_compile_cache|\.triton)")
_MOST_NAMES = 20000
_INDEX_CAP = 64 << 20
_SMALL = 1 << 20
"""vague names (`.bin`, `.pt`) below this size are not taken for weights"""


@dataclass(frozen=True, slots=True)
class Shard:
    """`real`: the path behind all links, as /proc shows it. `size` in bytes."""

    path: str
    real: str
    size: int


@dataclass(frozen=True, slots=True)
class ShardSet:
    """Files that are loaded together, in the order in which engines read them (by name, numbers as numbers).

    `given`: the command named them (or their folder), and in it they are the likeliest to be loaded.
    """

    shards: tuple[Shard, ...]
    given: bool = False


Read = Callable[[str, int], bytes | None]
"""of a path, the first so many bytes; None where they cannot be had"""


def read_directly(path: str, most: int) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read(most)
    except (OSError, ValueError):
        return None


def survey(path: str, *, given: bool, read: Read = read_directly) -> tuple[ShardSet, ...]:
    """`given`: the sets of weights in a folder, the likeliest first, or the one set of a file. Else the set that an opened file belongs to,
    which may be a blob of a hub cache. Empty where there are none. May hang."""
    try:
        blob = _BLOB.match(path)
        if blob is not None and not given:
            folder = _snapshot(blob["repository"], path)
            found = () if folder is None else _folder(folder, given=False, read=read)
            return tuple(one for one in found if any(shard.real == path for shard in one.shards))
        if not given:
            return tuple(
                found
                for found in _folder(os.path.dirname(path), given=False, read=read)
                if any(shard.real == path for shard in found.shards)
            )
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            return _folder(path, given=True, read=read)
        return (_beside(path),) if stat.S_ISREG(mode) else ()
    except (OSError, ValueError):
        return ()


@lru_cache(4096)
def may_be_weights(path: str) -> bool:
    """By its name alone: a file that is open or mapped and worth a survey. Asked about each mapped file at each look."""
    if _NOT_WEIGHTS.search(path):
        return False
    if _BLOB.match(path):
        return True
    place = _RANKED.get(PurePosixPath(path).suffix)
    return place is not None and (place < 2 or _VAGUE.search(PurePosixPath(path).name) is not None)


def place_of(path: str) -> str:
    """What a survey of `path` will look at: paths of one place need one survey."""
    blob = _BLOB.match(path)
    if blob is not None:
        return path
    name = PurePosixPath(path)
    return f"{name.parent}/{_family(name.name)}"


def _folder(folder: str, *, given: bool, read: Read) -> tuple[ShardSet, ...]:
    names = os.listdir(folder)[:_MOST_NAMES]
    weights = [name for name in names if PurePosixPath(name).suffix in _RANKED]
    indexed: set[str] = set()
    for name in names:
        if name.endswith(".index.json"):
            indexed |= _index(read(os.path.join(folder, name), _INDEX_CAP) or b"")
    families: dict[str, list[str]] = {}
    for name in weights:
        families.setdefault(_family(name), []).append(name)
    ranked: list[tuple[tuple[int, int, int], ShardSet]] = []
    for members in families.values():
        # an index tells which of the numbered files belong together: what an interrupted or older download left is not among them
        kept = [name for name in members if name in indexed] or members
        found = _set(folder, kept)
        place = _RANKED[PurePosixPath(kept[0]).suffix]
        total = sum(shard.size for shard in found.shards)
        if found.shards and (place < 2 or total >= _SMALL or kept[0] in indexed):
            ranked.append(((kept[0] not in indexed, place, -total), found))
    ranked.sort(key=lambda entry: entry[0])
    return tuple(ShardSet(found.shards, given and number == 0) for number, (_, found) in enumerate(ranked))


def _beside(path: str) -> ShardSet:
    """A file that the command names, with the other parts of the same model where it is numbered."""
    folder, name = os.path.split(path)
    members = [name]
    if _NUMBERED.search(name):
        family = _family(name)
        members = [other for other in os.listdir(folder or ".")[:_MOST_NAMES] if _family(other) == family]
    return ShardSet(_set(folder, members).shards, given=True)


def _set(folder: str, names: list[str]) -> ShardSet:
    shards: list[Shard] = []
    for name in sorted(names, key=_natural):
        path = os.path.join(folder, name)
        try:
            told = os.stat(path)
            if stat.S_ISREG(told.st_mode) or stat.S_ISFIFO(told.st_mode):
                shards.append(Shard(path, os.path.realpath(path), told.st_size))
        except (OSError, ValueError):
            continue
    return ShardSet(tuple(shards))


def _snapshot(repository: str, blob: str) -> str | None:
    """The snapshot folder of a hub repository that links to this blob; of several the newest."""
    best: tuple[float, str] | None = None
    with os.scandir(os.path.join(repository, "snapshots")) as snapshots:
        for snapshot in list(snapshots)[:64]:
            if not snapshot.is_dir():
                continue
            age = snapshot.stat().st_mtime
            if best is not None and age <= best[0]:
                continue
            for name in os.listdir(snapshot.path)[:_MOST_NAMES]:
                link = os.path.join(snapshot.path, name)
                if PurePosixPath(name).suffix in _RANKED and os.path.realpath(link) == blob:
                    best = (age, snapshot.path)
                    break
    return None if best is None else best[1]


def _index(content: bytes) -> set[str]:
    """File names in an index. Its tensors may be hundreds of thousands: names are picked out without parsing it."""
    return {name.decode("utf8", "replace") for name in set(_INDEXED.findall(content))}


def _family(name: str) -> str:
    """Files of one family differ in their numbers only; in GGUF other numbers tell quantisations apart."""
    if name.endswith(".gguf"):
        return _NUMBERED.sub("-#", name)
    return _DIGITS.sub("#", name)


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part[:18]), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
