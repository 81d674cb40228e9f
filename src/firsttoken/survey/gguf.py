"""The header of a GGUF file: its notes, what each tensor is, and whether the file is whole. No tensor is read.

Layout (little endian): `GGUF`, u32 version, u64 tensors, u64 notes; the notes (name, type, value); the tensors (name, dimensions, type,
offset); the data, aligned. Sources: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, and block sizes from `ggml.c` (type_traits).
"""

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from firsttoken.survey.safetensors import LFS_MARK, Broken, Fault, Tensor, open_regular

BLOCKS: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
}  # fmt: skip
"""number of a type: its name, elements of a block, bytes of a block"""
_SIMPLE = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MOST_NOTES, _MOST_TENSORS, _MOST_ITEMS = 1 << 16, 1 << 20, 1 << 26
_FIRST_READ, _LONGEST_HEADER = 8 << 20, 1 << 30
_KEPT = 4096
"""items of an array that are kept; of longer ones (a vocabulary) only their number is"""

Value = str | int | float | bool | tuple["Value", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gguf:
    """`notes` by name; an array too long to be kept is `()`, its number of items stands in `counts`. Offsets count from `data_begin`."""

    path: str
    size: int
    version: int
    data_begin: int
    notes: Mapping[str, Value]
    counts: Mapping[str, int]
    tensors: tuple[Tensor, ...]


def read_gguf(path: str) -> Gguf | Broken:
    """Never raises for what the file holds; blocks where its file system does."""
    opened = open_regular(path)
    if isinstance(opened, Broken):
        return opened
    fd, size = opened
    try:
        held, wanted = b"", _FIRST_READ
        while True:
            while len(held) < min(wanted, size) and (more := os.read(fd, min(wanted, size) - len(held))):
                held += more
            found = parse(path, held, size)
            whole = not isinstance(found, Broken) or found.fault is not Fault.TRUNCATED or len(held) >= size or wanted > _LONGEST_HEADER
            if whole or len(held) < min(wanted, size):
                return found
            wanted *= 4
    except OSError as error:
        return Broken(path=path, fault=Fault.UNREADABLE, detail=f"cannot be read: {error.strerror or error}")
    finally:
        os.close(fd)


def parse(path: str, view: bytes, size: int) -> Gguf | Broken:
    """`view`: the file's beginning, the whole header at least. Never raises, whatever the bytes."""
    if view[: len(LFS_MARK)] == LFS_MARK:
        return Broken(path=path, fault=Fault.LFS_POINTER, detail=f"is a Git LFS pointer of {size} bytes, not the weights")
    if view[:4] != b"GGUF":
        return Broken(path=path, fault=Fault.CORRUPT, detail="does not begin like a GGUF file")
    cursor = _Cursor(view)
    try:
        header = _header(cursor)
    except (struct.error, IndexError):
        return Broken(path=path, fault=Fault.TRUNCATED, detail=f"ends after {size:,} bytes, inside its header")
    except (ValueError, OverflowError, RecursionError) as error:
        return Broken(path=path, fault=Fault.CORRUPT, detail=f"has a header that cannot be read ({error})")
    version, notes, counts, tensors = header
    alignment = notes.get("general.alignment", 32)
    alignment = alignment if isinstance(alignment, int) and 0 < alignment <= 1 << 20 else 32
    data_begin = -(-cursor.at // alignment) * alignment
    expected = data_begin + max((tensor.end for tensor in tensors), default=0)
    if size < expected:
        detail = f"has {size:,} of {expected:,} bytes: {expected - size:,} are missing"
        return Broken(path=path, fault=Fault.TRUNCATED, detail=detail)
    return Gguf(path=path, size=size, version=version, data_begin=data_begin, notes=notes, counts=counts, tensors=tuple(tensors))


class _Cursor:
    def __init__(self, view: bytes) -> None:
        self.view, self.at, self.end = view, 4, len(view)

    def take(self, code: str) -> int:
        size = struct.calcsize("<" + code)
        (value,) = struct.unpack_from("<" + code, self.view, self.at)
        self.at += size
        return value  # type: ignore[no-any-return]  # floats and bools are wanted as they are

    def skip(self, count: int) -> None:
        self.at += count
        if self.at > self.end:
            raise IndexError

    def text(self) -> str:
        length = self.take("Q")
        begin = self.at
        self.skip(length)
        return self.view[begin : self.at].decode("utf8", "replace")


def _header(cursor: _Cursor) -> tuple[int, dict[str, Value], dict[str, int], list[Tensor]]:
    version = cursor.take("I")
    if not 2 <= version <= 3:
        raise ValueError(f"version {version}, where 2 and 3 are known")
    tensors, notes = cursor.take("Q"), cursor.take("Q")
    if notes > _MOST_NOTES or tensors > _MOST_TENSORS:
        raise ValueError(f"{tensors} tensors and {notes} notes")
    known: dict[str, Value] = {}
    counts: dict[str, int] = {}
    for _ in range(notes):
        name = cursor.text()
        kind = cursor.take("I")
        known[name] = _value(cursor, kind, name, counts)
    return version, known, counts, [_tensor(cursor) for _ in range(tensors)]


def _value(cursor: _Cursor, kind: int, name: str, counts: dict[str, int], depth: int = 0) -> Value:
    if kind == _STRING:
        return cursor.text()
    if kind == _ARRAY and depth < 4:
        inner, count = cursor.take("I"), cursor.take("Q")
        if count > _MOST_ITEMS:
            raise ValueError(f"{count} items in {name!r}")
        if not depth:
            counts[name] = count
        if inner in _SIMPLE:
            code = f"<{count}{_SIMPLE[inner]}"
            begin = cursor.at
            cursor.skip(struct.calcsize(code))
            return struct.unpack_from(code, cursor.view, begin) if count <= _KEPT else ()
        if count <= _KEPT:
            return tuple(_value(cursor, inner, name, counts, depth + 1) for _ in range(count))
        for _ in range(count):
            if inner == _STRING:
                cursor.skip(cursor.take("Q"))
            else:
                _value(cursor, inner, name, counts, depth + 1)
        return ()
    if kind not in _SIMPLE:
        raise ValueError(f"type {kind} of {name!r}")
    return cursor.take(_SIMPLE[kind])


def _tensor(cursor: _Cursor) -> Tensor:
    name = cursor.text()
    dimensions = cursor.take("I")
    if dimensions > 8:
        raise ValueError(f"{dimensions} dimensions of {name!r}")
    shape = tuple(cursor.take("Q") for _ in range(dimensions))
    kind, offset = cursor.take("I"), cursor.take("Q")
    if max((offset, *shape)) >= 1 << 62:
        raise ValueError(f"size of {name!r}")
    label, elements, size = BLOCKS.get(kind, (f"type {kind}", 1, 0))
    return Tensor(name, label, tuple(reversed(shape)), offset, offset + -(-prod(shape) // elements) * size)
