"""Fat binaries: containers of entries, each an image for one target (`docs/explanation/gpu-code.md` has the layout).

The entry's header tells the target also where the image is compressed, so that reading a library of a gigabyte costs its headers. With
`--concat` one entry holds a list of images that are compressed together; the list stands in its header.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from firsttoken.model.gpu_code import CodeKind, Target
from firsttoken.survey.window import Damaged, Window

MAGIC = struct.pack("<I", 0xBA55ED50)
_CONTAINER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQIIHHI8xQ8x")  # up to the uncompressed size, which short headers lack
_SIZE = struct.Struct("<Q")
_LIST = struct.Struct("<II")
_LISTED = struct.Struct("<HHII4xIIHHI8xQ")
_LISTED_SIZE = 64
_KINDS = {1: CodeKind.PTX, 2: CodeKind.CUBIN, 8: CodeKind.LTO}
_CONCATENATED = 256
_LZ4, _ZSTD, _ARCH, _FAMILY = 0x2000, 0x8000, 0x100000, 0x200000
_ALIGNMENT = 8
_LONGEST_HEADER = 1 << 16
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """Where an image lies in its window. `packing`: None, `lz4` or `zstd`; `size` is then its size unpacked."""

    offset: int
    length: int
    packing: str | None
    size: int
    skip: int = 0
    """bytes of the unpacked payload before this image, where images were packed together"""
    whole: int = 0
    """bytes of the unpacked payload"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    target: Target
    payload: Payload


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One fat binary. `problems` are what its damaged part was."""

    entries: tuple[Entry, ...]
    problems: tuple[str, ...] = ()


def containers(window: Window) -> Iterator[Container]:
    """All containers of a section, or of a `.fatbin` file. What lies between them is skipped."""
    at = 0
    while at + _CONTAINER.size <= window.size:
        magic, version, header, size = window.unpack(_CONTAINER, at, "container")
        if magic.to_bytes(4, "little") != MAGIC:
            at = _next_magic(window, at + _ALIGNMENT)
            continue
        begin = at + header
        if header < _CONTAINER.size or begin + size > window.size:
            problem = f"container at {at} (version {version}) of {size} bytes ends beyond its section"
            yield Container(entries=(), problems=(problem,))
            at = _next_magic(window, at + _ALIGNMENT)
            continue
        yield _container(window, begin, begin + size)
        at = begin + size


def _container(window: Window, at: int, end: int) -> Container:
    entries: list[Entry] = []
    problems: list[str] = []
    while at + _ENTRY.size <= end:
        kind, _, header, length, packed, _, _, _, sm, flags = window.unpack(_ENTRY, at, "entry")
        if not _ENTRY.size <= header <= _LONGEST_HEADER or at + header + length > end:
            problems.append(f"entry at {at}: header of {header} and payload of {length} bytes do not fit its container")
            break
        whole = window.unpack(_SIZE, at + _ENTRY.size, "entry")[0] if header >= _ENTRY.size + _SIZE.size else 0
        packing = "zstd" if flags & _ZSTD else "lz4" if flags & _LZ4 else None
        stored = packed if packing and 0 < packed <= length else length
        payload = Payload(offset=at + header, length=stored, packing=packing, size=whole if packing else length, whole=whole)
        try:
            if kind == _CONCATENATED:
                entries += _listed(window, at + _ENTRY.size + _SIZE.size, at + header, payload)
            else:
                entries.append(Entry(target=_target(kind, sm, flags), payload=payload))
        except Damaged as problem:
            problems.append(f"entry at {at}: {problem}")
        at += header + length
    return Container(entries=tuple(entries), problems=tuple(problems))


def _listed(window: Window, at: int, end: int, payload: Payload) -> Iterator[Entry]:
    """Images that are packed together: rows of 64 bytes, each with an extra block where it has one."""
    count, _ = window.unpack(_LIST, at, "list of images")
    at += _LIST.size
    for _ in range(count):
        if at + _LISTED_SIZE > end:
            raise Damaged(f"a list of {count} images is longer than its header")
        kind, _, skip, size, _, extra, _, _, sm, flags = window.unpack(_LISTED, at, "image")
        where = Payload(offset=payload.offset, length=payload.length, packing=payload.packing, size=size, skip=skip, whole=payload.whole)
        yield Entry(target=_target(kind, sm, flags), payload=where)
        begin, length = window.unpack(_LIST, at + extra, "extra block") if extra else (_LISTED_SIZE, -1)
        at += max(-(-(begin + length + 1) // _ALIGNMENT) * _ALIGNMENT, _LISTED_SIZE)  # the block ends with a zero byte


def _target(kind: int, sm: int, flags: int) -> Target:
    if kind not in _KINDS:
        raise Damaged(f"kind {kind} is not known")
    if not 10 <= sm < 1000:
        raise Damaged(f"sm_{sm} is no architecture")
    return Target(sm=sm, suffix="a" if flags & _ARCH else "f" if flags & _FAMILY else "", kind=_KINDS[kind])


def _next_magic(window: Window, at: int) -> int:
    """Where the next container may begin, or the end."""
    while at < window.size:
        chunk = window.read(at, _CHUNK)
        found = chunk.find(MAGIC)
        while found >= 0 and found % _ALIGNMENT:
            found = chunk.find(MAGIC, found + 1)
        if found >= 0:
            return at + found
        if len(chunk) < _CHUNK:
            break
        at += _CHUNK
    return window.size
