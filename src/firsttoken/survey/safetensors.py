"""Headers of safetensors files: what each tensor is, where it lies, and whether the file is whole. No tensor is read.

Layout: u64 length of the header, the header (JSON: name → dtype, shape, first and last-plus-one byte behind the header), the data. The
data has no holes, so the header says exactly how long the file must be: a download that broke off shows without reading it.
Source: https://huggingface.co/docs/safetensors (format), and the checks of safetensors 0.8 (`SafeTensors::read_metadata`).
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import prod
from operator import itemgetter
from typing import Annotated, NamedTuple

import msgspec

BITS: Mapping[str, int] = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
"""bits an element"""
LONGEST_HEADER = 100_000_000
"""bytes; what the library itself accepts"""
LFS_MARK = b"version https://git-lfs.github.com/spec/"
_LENGTH = 8


class Tensor(NamedTuple):
    """`begin` and `end` are bytes behind the header. A plain tuple: a large model has a hundred thousand of them."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def bytes(self) -> int:
        return self.end - self.begin

    @property
    def elements(self) -> int:
        return prod(self.shape)


class Fault(StrEnum):
    """Why a weight file cannot be loaded."""

    MISSING = "missing"
    UNREADABLE = "unreadable"
    NOT_A_FILE = "not_a_file"
    """a FIFO, a socket, a device, a folder: reading it may never end"""
    EMPTY = "empty"
    LFS_POINTER = "lfs_pointer"
    TRUNCATED = "truncated"
    CORRUPT = "corrupt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A weight file that cannot be loaded. `detail` completes the sentence `FILE …`."""

    path: str
    fault: Fault
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A whole file. `size` in bytes, header included; `metadata`: the header's own notes."""

    path: str
    size: int
    data_begin: int
    tensors: tuple[Tensor, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)


def read_shard(path: str) -> Shard | Broken:
    """One open, two reads. Never raises for what the file holds; blocks where its file system does."""
    opened = open_regular(path)
    if isinstance(opened, Broken):
        return opened
    fd, size = opened
    try:
        head = os.read(fd, 1 << 16)
        wanted = _LENGTH + int.from_bytes(head[:_LENGTH], "little")
        if len(head) < wanted <= min(size, LONGEST_HEADER):
            parts = [head]
            while (left := wanted - sum(map(len, parts))) > 0 and (more := os.read(fd, left)):
                parts.append(more)
            head = b"".join(parts)
        return parse(path, head, size)
    except OSError as error:
        return Broken(path=path, fault=Fault.UNREADABLE, detail=f"cannot be read: {error.strerror or error}")
    finally:
        os.close(fd)


def open_regular(path: str) -> tuple[int, int] | Broken:
    """A descriptor and the size of a regular file that holds something; `O_NONBLOCK`, so that a FIFO is told and not waited for."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            return Broken(path=path, fault=Fault.NOT_A_FILE, detail=f"is {_kind(found.st_mode)}, no file: reading it may never end")
        if found.st_size == 0:
            return Broken(path=path, fault=Fault.EMPTY, detail="is empty")
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), found.st_size
    except (FileNotFoundError, NotADirectoryError):
        gone = os.path.islink(path)
        detail = f"leads to {os.path.realpath(path)}, which is not there" if gone else "is not there"
        return Broken(path=path, fault=Fault.MISSING, detail=detail)
    except (OSError, ValueError) as error:
        return Broken(path=path, fault=Fault.UNREADABLE, detail=f"cannot be read: {getattr(error, 'strerror', None) or error}")


def parse(path: str, head: bytes, size: int) -> Shard | Broken:
    """`head`: the file's beginning, the whole header at least; `size`: of the whole file. Never raises, whatever the bytes."""

    def broken(fault: Fault, detail: str) -> Broken:
        return Broken(path=path, fault=fault, detail=detail)

    if head.startswith(LFS_MARK):
        return broken(Fault.LFS_POINTER, f"is a Git LFS pointer of {size} bytes, not the weights")
    if len(head) < _LENGTH:
        return broken(Fault.TRUNCATED, f"ends after {size} bytes, inside its header")
    length = int.from_bytes(head[:_LENGTH], "little")
    if length > LONGEST_HEADER or length < 2:
        return broken(Fault.CORRUPT, f"is no safetensors file: its header would have {length} bytes")
    if size < _LENGTH + length or len(head) < _LENGTH + length:
        return broken(Fault.TRUNCATED, f"ends after {size} bytes, inside its header of {length}")
    try:
        text = head[_LENGTH : _LENGTH + length]
        metadata = _METADATA.decode(text).metadata
        raw = _HEADER.decode(text)
        raw.pop(_METADATA_KEY, None)
        tensors = [Tensor(name, one.dtype, one.shape, *one.data_offsets) for name, one in raw.items()]
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
        return broken(Fault.CORRUPT, f"has a header that cannot be read ({_one_line(error)})")
    at = 0
    for name, dtype, shape, begin, end in sorted(tensors, key=_BEGIN_AND_END):
        if begin != at or end < begin or not dtype:
            return broken(Fault.CORRUPT, f"has a header whose tensors overlap or leave holes, at {name!r}")
        bits = BITS.get(dtype)
        if bits is not None and (prod(shape) * bits + 7) // 8 != end - begin:
            return broken(Fault.CORRUPT, f"has a header that contradicts itself: {name!r} of {dtype} {list(shape)}")
        at = end
    expected = _LENGTH + length + at
    if size < expected:
        return broken(Fault.TRUNCATED, f"has {size:,} of {expected:,} bytes: {expected - size:,} are missing")
    if size > expected:
        return broken(Fault.CORRUPT, f"has {size - expected:,} bytes more than its header tells")
    return Shard(path=path, size=size, data_begin=_LENGTH + length, tensors=tuple(tensors), metadata=metadata)


_Whole = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class _Entry(msgspec.Struct):
    """One tensor of a header. All have defaults, so that the notes, which stand among the tensors, can be read as one and be left out."""

    dtype: str = ""
    shape: tuple[_Whole, ...] = ()
    data_offsets: tuple[_Whole, _Whole] = (-1, -1)


_METADATA_KEY = "__metadata__"


class _Notes(msgspec.Struct):
    metadata: dict[str, str] = msgspec.field(default_factory=dict, name=_METADATA_KEY)


_HEADER, _METADATA = msgspec.json.Decoder(dict[str, _Entry]), msgspec.json.Decoder(_Notes)
_BEGIN_AND_END = itemgetter(3, 4)


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISFIFO, "a FIFO"), (stat.S_ISDIR, "a folder"), (stat.S_ISSOCK, "a socket"))
    return next((name for test, name in kinds if test(mode)), "a device")


def _one_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:120]
