"""A model's folder (or single file) as it lies on disk: configuration, index, weight files, tokenizer, and what is wrong with them.

Which files an engine reads: those of the index where there is one, else all safetensors files but Mistral's `consolidated` twins; without
any the pickled `.bin` files, of which nothing can be told without running them. Several readers at a time, since a network file system
answers each slowly; they are daemons, so that one that hangs in a dead mount keeps nobody from ending.
"""

import json
import os
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from firsttoken.survey.gguf import Gguf, read_gguf
from firsttoken.survey.safetensors import LFS_MARK, Broken, Fault, Shard, Tensor, read_shard

INDEX = "model.safetensors.index.json"
_READERS = 8
_LARGEST_JSON = 64 << 20
_TOKENIZERS = re.compile(
    r"tokenizer\.(?:json|model(?:\.v\d+)?)|tekken\.json|vocab\.(?:json|txt)|spiece\.model|sentencepiece\.\S*model|\S+\.tiktoken"
    r"|bpe_simple_vocab\S*|tokenization_\w+\.py"
)
_NUMBERED = re.compile(r"(.*?)-?(\d{5})-of-(\d{5})\.(safetensors|gguf|bin)")
_PICKLED = re.compile(r"(?:pytorch_model|consolidated|model)\S*\.(?:bin|pt|pth)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """`kind`: safetensors, gguf, pickle or None where no weights are there. `files`: (path, bytes) of the weights, in loading order.

    `tensors` of all whole files. `twice`: tensor names that two files hold. `unlisted` and `lost`: what the index and the headers tell
    differently (in the file but for another file in the index; in the index and in no file). `config` None: none is there, or
    `config_problem` says what is wrong with it. `index`: the index file's own verdict on itself.
    """

    path: str
    kind: str | None = None
    config: Mapping[str, Any] | None = None
    config_problem: str | None = None
    generation: Mapping[str, Any] | None = None
    files: tuple[tuple[str, int], ...] = ()
    tensors: tuple[Tensor, ...] = ()
    gguf: Gguf | None = None
    broken: tuple[Broken, ...] = ()
    twice: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    index_problem: str | None = None
    tokenizer: bool = False
    names: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    """downloads that broke off: `.incomplete` files of the hub's cache"""
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.files)


def read_checkpoint(path: str) -> Checkpoint | None:
    """None where there is nothing at `path`. A file is a GGUF or safetensors file; of a folder the weights that an engine would read."""
    if os.path.isdir(path):
        return _folder(path)
    if not os.path.exists(path):
        return None
    found = [read_gguf(one) if one.endswith(".gguf") else read_shard(one) for one in _parts(path)]
    return _with(Checkpoint(path=path, tokenizer=path.endswith(".gguf")), found)


def _folder(path: str) -> Checkpoint:
    try:
        names = sorted(os.listdir(path))
    except OSError as error:
        return Checkpoint(path=path, config_problem=f"the folder cannot be listed: {error.strerror or error}")
    config, problem = _json(f"{path}/config.json") if "config.json" in names else (None, None)
    generation, _ = _json(f"{path}/generation_config.json") if "generation_config.json" in names else (None, None)
    seen = Checkpoint(
        path=path,
        config=config,
        config_problem=problem,
        generation=generation,
        tokenizer=any(_TOKENIZERS.fullmatch(name) for name in names),
        names=tuple(names),
        unfinished=_unfinished(path),
    )
    index, index_problem = _json(f"{path}/{INDEX}") if INDEX in names else (None, None)
    listed = _weight_map(index) if index is not None else None
    if index is not None and listed is None:
        index_problem = "has no `weight_map`"
    wanted = sorted(set(listed.values())) if listed else _complete(_safetensors(names))
    if wanted:
        return _with(seen, _read_all([f"{path}/{name}" for name in wanted]), listed, index_problem)
    models = [name for name in names if name.endswith(".gguf") and not name.startswith("mmproj")]
    if models:
        return _with(seen, [read_gguf(f"{path}/{name}") for name in models], None, index_problem)
    pickled = [name for name in names if _PICKLED.fullmatch(name)]
    files = tuple((f"{path}/{name}", _size(f"{path}/{name}")) for name in pickled)
    pointers = tuple(_pointer(name) for name, size in files if size < 200 and _is_pointer(name))
    return replace(seen, kind="pickle" if pickled else None, files=files, broken=pointers, index_problem=index_problem)


def _read_all(paths: Sequence[str]) -> list[Shard | Broken]:
    found: dict[int, Shard | Broken] = {}
    numbers = iter(range(len(paths)))

    def read() -> None:
        for number in numbers:  # of an iterator that all share: each number comes once
            found[number] = read_shard(paths[number])

    readers = [threading.Thread(target=read, daemon=True) for _ in range(min(_READERS, len(paths)))]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    return [found[number] for number in range(len(paths))]


def _with(
    seen: Checkpoint,
    found: Iterable[Shard | Gguf | Broken],
    listed: Mapping[str, str] | None = None,
    index_problem: str | None = None,
) -> Checkpoint:
    found = list(found)
    tensors: list[Tensor] = []
    holder: dict[str, str] = {}
    twice: list[str] = []
    for one in found:
        if isinstance(one, Broken):
            continue
        name = os.path.basename(one.path)
        for tensor in one.tensors:
            if listed is not None and listed.get(tensor.name, name) != name:
                continue  # the index names another file for it: this copy is not read
            if tensor.name in holder:
                twice.append(tensor.name)
                continue
            holder[tensor.name] = name
            tensors.append(tensor)
    whole = {os.path.basename(one.path) for one in found if not isinstance(one, Broken)}
    lost = tuple(name for name, file in (listed or {}).items() if file in whole and name not in holder)
    ggufs = [one for one in found if isinstance(one, Gguf)]
    shards = [one for one in found if isinstance(one, Shard)]
    is_gguf = bool(ggufs) or any(isinstance(one, Broken) and one.path.endswith(".gguf") for one in found)
    return replace(
        seen,
        kind="gguf" if is_gguf else "safetensors",
        files=tuple((one.path, one.size if not isinstance(one, Broken) else _size(one.path)) for one in found),
        tensors=tuple(tensors),
        gguf=ggufs[0] if ggufs else None,
        broken=tuple(one for one in found if isinstance(one, Broken)),
        twice=tuple(twice),
        lost=lost,
        index_problem=index_problem,
        metadata=shards[0].metadata if shards else {},
    )


def _safetensors(names: Iterable[str]) -> list[str]:
    found = [name for name in names if name.endswith(".safetensors") and not name.startswith("adapter_")]
    return [name for name in found if not name.startswith("consolidated")] or found


def _complete(names: list[str]) -> list[str]:
    """With the names that a numbering `-00003-of-00007` promises."""
    wanted = dict.fromkeys(names)
    for name in names:
        numbered = _NUMBERED.fullmatch(name)
        if numbered is not None and int(numbered[3]) <= 9999:
            front = name[: numbered.start(2)]
            for number in range(1, int(numbered[3]) + 1):
                wanted[f"{front}{number:05d}-of-{numbered[3]}.{numbered[4]}"] = None
    return sorted(wanted)


def _parts(path: str) -> list[str]:
    folder, name = os.path.split(path)
    return [os.path.join(folder, one) for one in _complete([name])]


def _weight_map(index: Mapping[str, Any]) -> dict[str, str] | None:
    found = index.get("weight_map")
    if not isinstance(found, dict):
        return None
    files = set(map(str, found.values()))
    return found if all(isinstance(file, str) for file in found.values()) and not any("/" in file for file in files) else None


def _unfinished(path: str) -> tuple[str, ...]:
    """`…/models--A--B/snapshots/REVISION` has its files in `…/models--A--B/blobs`."""
    top = os.path.dirname(os.path.dirname(path.rstrip("/")))
    if os.path.basename(os.path.dirname(path.rstrip("/"))) != "snapshots":
        return ()
    try:
        return tuple(f"{top}/blobs/{name}" for name in os.listdir(f"{top}/blobs") if name.endswith(".incomplete"))
    except OSError:
        return ()


def _json(path: str) -> tuple[dict[str, Any] | None, str | None]:
    """A mapping, or what is wrong with it."""
    try:
        if os.path.getsize(path) > _LARGEST_JSON:
            return None, "is too large"
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        return None, f"cannot be read: {error.strerror or error}"
    if content.startswith(LFS_MARK):
        return None, "is a Git LFS pointer"
    try:
        try:
            found = msgspec.json.decode(content)
        except ValueError:  # Python's own reader, which engines use, takes Infinity and NaN besides
            found = json.loads(content, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        return None, f"is not JSON ({str(error)[:80]})"
    return (found, None) if isinstance(found, dict) else (None, "is no JSON object")


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _is_pointer(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(LFS_MARK)) == LFS_MARK
    except OSError:
        return False


def _pointer(path: str) -> Broken:
    return Broken(path=path, fault=Fault.LFS_POINTER, detail="is a Git LFS pointer, not the weights")
