"""The weights on disk: real safetensors shards, written once to the cache, read from disk by each rank at each start.

Key insight: a reader that goes through the file with read(2) in small pieces can be watched from outside: the shard is an open
fd, its offset moves, rchar grows. So slices are rows, which lie together, and are not mapped but read.
The bulk of the bytes is a table of hashed trigrams: it grows with the wished size and costs a token one row, not a product.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from .tokens import FIRST_PIECE, VOCABULARY

WIDTH = 128
LAYERS = 2
HEADS = 16
HIDDEN = 256
CONTEXT = 1024

Weights = dict[str, NDArray[np.float32]]
_LAYOUT = 2
_ROW_BYTES = WIDTH * 4


def cache_folder(shards: int, shard_mb: float) -> Path:
    """Where the shards of these sizes are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "firsttoken" / "rehearsal" / f"v{_LAYOUT}-{shards}x{shard_mb:g}mb"


def ensure_shards(folder: Path, shards: int, shard_mb: float) -> bool:
    """Writes the shards unless they are there; true where they were written. Safe for any number of starts at a time."""
    if folder.is_dir():
        return False
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / f"{folder.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return False
        for left in folder.parent.glob(f"{folder.name}.part-*"):
            shutil.rmtree(left, ignore_errors=True)
        part = Path(tempfile.mkdtemp(prefix=f"{folder.name}.part-", dir=folder.parent))
        try:
            _write(part, shards, shard_mb)
            part.rename(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return True


def shard_paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One float32 tensor of a shard: `offset` counts from the file's start."""

    name: str
    shape: tuple[int, ...]
    offset: int

    def rows(self, rank: int, ranks: int) -> tuple[int, int]:
        """First and last-plus-one row that `rank` reads: tables, heads and hidden units are divided, the rest is whole."""
        count = self.shape[0]
        if self.name in ("embedding", "head", "position"):
            return 0, count
        unit = count // HEADS if self.name.split(".")[-1] in ("query", "key", "value", "out") else 1
        units = count // unit
        return unit * (units * rank // ranks), unit * (units * (rank + 1) // ranks)


def tensors_of(file: BinaryIO | io.FileIO) -> list[Tensor]:
    """The tensors of an open shard, in the order in which they lie. The file stands behind the header afterwards."""
    size = int.from_bytes(file.read(8), "little")
    header: dict[str, Any] = json.loads(file.read(size))
    header.pop("__metadata__", None)
    found = [Tensor(name=name, shape=tuple(entry["shape"]), offset=8 + size + entry["data_offsets"][0]) for name, entry in header.items()]
    return sorted(found, key=lambda tensor: tensor.offset)


class ShardReader:
    """Reads one rank's slice of a shard piece by piece and keeps the file open meanwhile. `size` is the slice's, in bytes."""

    def __init__(self, path: Path, rank: int, ranks: int) -> None:
        self._file = io.FileIO(path)
        self._plan: list[tuple[int, memoryview]] = []
        self.weights: Weights = {}
        self.table_rows = 0
        for tensor in tensors_of(self._file):
            first, last = tensor.rows(rank, ranks)
            row_bytes = 4 * int(np.prod(tensor.shape[1:]))
            buffer = bytearray((last - first) * row_bytes)
            self._plan.append((tensor.offset + first * row_bytes, memoryview(buffer)))
            self.weights[tensor.name] = np.frombuffer(buffer, dtype=np.float32).reshape(-1, *tensor.shape[1:])
            if tensor.name.startswith("table"):
                self.table_rows = tensor.shape[0]
        self.size = sum(len(view) for _, view in self._plan)
        self._plan.reverse()

    def read(self, count: int) -> int:
        """Reads on, at most `count` bytes; the number of bytes, 0 when the slice is complete."""
        while self._plan and not self._plan[-1][1]:
            self._plan.pop()
        if not self._plan:
            return 0
        offset, view = self._plan.pop()
        self._file.seek(offset)
        got = self._file.readinto(view[: max(1, count)]) or 0
        if not got:
            raise EOFError(f"{self._file.name} ends early: nothing at byte {offset}")
        self._plan.append((offset + got, view[got:]))
        return got

    def reread(self, count: int) -> None:
        """Reads some bytes once more, from the start when the end is reached."""
        if not self._file.read(count):
            self._file.seek(0)

    def close(self) -> None:
        self._file.close()


def whole_model(folder: Path) -> Weights:
    """All tensors unsharded; tables are mapped from the files, the rest is read."""
    weights: Weights = {}
    for path in shard_paths(folder):
        with open(path, "rb") as file:
            for tensor in tensors_of(file):
                weights[tensor.name] = np.memmap(path, dtype=np.float32, mode="r", offset=tensor.offset, shape=tensor.shape)
    return {name: values if name.startswith("table") else np.array(values) for name, values in weights.items()}


def _write(folder: Path, shards: int, shard_mb: float) -> None:
    from safetensors.numpy import save_file  # pyright: ignore[reportUnknownVariableType]  # not needed at a start that finds its shards

    dice = np.random.default_rng(20261129)
    index: dict[str, str] = {}
    for shard in range(shards):
        weights = _core(dice, shard, shards)
        rest = int(shard_mb * 1e6) - sum(values.nbytes for values in weights.values())
        weights[f"table.{shard}"] = dice.standard_normal((max(64, rest // _ROW_BYTES), WIDTH), dtype=np.float32)
        name = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        save_file(weights, folder / name, metadata={"format": "np"})
        index.update(dict.fromkeys(weights, name))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}, indent=1))
    shape = {"width": WIDTH, "layers": LAYERS, "heads": HEADS, "hidden": HIDDEN, "context": CONTEXT, "vocabulary": VOCABULARY}
    (folder / "config.json").write_text(json.dumps(shape, indent=1))


def _core(dice: np.random.Generator, shard: int, shards: int) -> Weights:
    weights: Weights = {}

    def add(name: str, rows: int, scale: float) -> None:
        columns = WIDTH
        weights[name] = dice.standard_normal((rows, columns), dtype=np.float32) * np.float32(scale)

    if shard == 0:
        add("embedding", VOCABULARY, 1.0)
        add("position", CONTEXT, 0.6)
        add("head", VOCABULARY, 0.35)
        weights["head"][:FIRST_PIECE] = 0.0
    for layer in range(LAYERS):
        if layer % shards == shard:
            for name in ("query", "key", "value", "out"):
                add(f"layer.{layer}.{name}", WIDTH, WIDTH**-0.5)
            add(f"layer.{layer}.up", HIDDEN, WIDTH**-0.5)
            add(f"layer.{layer}.down", HIDDEN, HIDDEN**-0.5)
    return weights
