"""Unpacking what fat binaries pack: LZ4 blocks and zstd frames. Never more than the size in the header, which is bounded too."""

import importlib

from firsttoken.survey.window import Damaged

_MOST = 256 << 20
"""Bytes of one image; the largest seen is 20 MB."""


def unpacked(packing: str | None, content: bytes, size: int) -> bytes:
    """Damaged where it cannot be done."""
    if packing is None:
        return content
    if not 0 < size <= _MOST:
        raise Damaged(f"an image of {size} bytes when unpacked")
    return _lz4(content, size) if packing == "lz4" else _zstd(content, size)


def _zstd(content: bytes, size: int) -> bytes:
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError as error:
        raise Damaged("packed with zstd, and Python's zstandard is not installed") from error
    try:
        found: bytes = zstandard.ZstdDecompressor().decompressobj(read_across_frames=False).decompress(content[:_MOST])
    except (zstandard.ZstdError, MemoryError) as error:
        raise Damaged(f"no zstd frame: {error}") from error
    if len(found) != size:
        raise Damaged(f"{len(found)} bytes unpacked where {size} were announced")
    return found


def _lz4(content: bytes, size: int) -> bytes:
    """The block format: token, literals, then a copy from `distance` bytes back, which may overlap what it makes."""
    out = bytearray()
    at, end = 0, len(content)
    try:
        while at < end:
            token = content[at]
            at += 1
            length = token >> 4
            if length == 15:
                length, at = _longer(content, at, length)
            out += content[at : at + length]
            at += length
            if at >= end or len(out) >= size:
                break
            distance = content[at] | content[at + 1] << 8
            at += 2
            length = token & 15
            if length == 15:
                length, at = _longer(content, at, length)
            length += 4
            begin = len(out) - distance
            if distance == 0 or begin < 0 or len(out) + length > size:
                raise Damaged("no LZ4 block")
            if distance >= length:
                out += out[begin : begin + length]
            else:
                piece = bytes(out[begin:])
                out += (piece * (length // distance + 1))[:length]
    except IndexError as error:
        raise Damaged("the LZ4 block is cut off") from error
    if len(out) != size:
        raise Damaged(f"{len(out)} bytes unpacked where {size} were announced")
    return bytes(out)


def _longer(content: bytes, at: int, length: int) -> tuple[int, int]:
    more = 255
    while more == 255:
        more = content[at]
        at += 1
        length += more
    return length, at
