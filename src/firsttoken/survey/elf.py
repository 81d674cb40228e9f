"""Sections of 64-bit little-endian ELF files: what CUDA makes, hosts and GPU images alike. Only headers and names are read."""

import struct
from dataclasses import dataclass

from firsttoken.survey.window import Damaged, Window

MAGIC = b"\x7fELF"
CUDA_MACHINE = 190
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NO_BITS = 8
_MOST_SECTIONS = 1 << 20
_MOST_NAMES = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    name: bytes
    offset: int
    size: int
    link: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Elf:
    """`flags` and `abi_version` as in the header; `sections` in the file's order."""

    machine: int
    flags: int
    abi_version: int
    sections: tuple[Section, ...]

    def find(self, name: bytes) -> Section | None:
        return next((section for section in self.sections if section.name == name), None)


def read_elf(window: Window) -> Elf:
    """Damaged where it is none, or none that CUDA could have made."""
    head = window.read(0, _HEADER.size)
    if len(head) < _HEADER.size or not head.startswith(MAGIC):
        raise Damaged("no ELF header")
    if head[4] != 2 or head[5] != 1:
        raise Damaged("an ELF file, but not 64-bit little-endian")
    _, _, machine, _, _, _, table, flags, _, _, _, size, count, names = _HEADER.unpack(head)
    if table and (count == 0 or names == 0xFFFF):  # too many for the header: section 0 tells
        first = _SECTION.unpack(_exactly(window, table, _SECTION.size))
        count, names = count or first[5], first[6] if names == 0xFFFF else names
    sections = _sections(window, table, size, count, names) if table else ()
    return Elf(machine=machine, flags=flags, abi_version=head[8], sections=sections)


def symbols(window: Window, elf: Elf) -> list[tuple[bytes, int, int, int]]:
    """(name, info, other, section index) of the symbol table."""
    table = elf.find(b".symtab")
    if table is None or not 0 <= table.link < len(elf.sections):
        return []
    strings = elf.sections[table.link]
    names = window.read(strings.offset, min(strings.size, _MOST_NAMES))
    rows = window.read(table.offset, min(table.size, _MOST_NAMES))
    return [(_name(names, name), info, other, index) for name, info, other, index in _SYMBOL.iter_unpack(rows[: len(rows) // 24 * 24])]


_SYMBOL = struct.Struct("<IBBH16x")


def _sections(window: Window, table: int, size: int, count: int, names: int) -> tuple[Section, ...]:
    if size < _SECTION.size or count > _MOST_SECTIONS:
        raise Damaged(f"a section table of {count} rows of {size} bytes")
    raw = _exactly(window, table, size * count)
    rows = [_SECTION.unpack_from(raw, at) for at in range(0, size * count, size)]
    if names >= len(rows):
        raise Damaged(f"section names are in section {names} of {len(rows)}")
    strings = window.read(rows[names][4], min(rows[names][5], _MOST_NAMES))
    return tuple(Section(name=_name(strings, row[0]), offset=row[4], size=0 if row[1] == _NO_BITS else row[5], link=row[6]) for row in rows)


def _exactly(window: Window, offset: int, length: int) -> bytes:
    content = window.read(offset, length)
    if len(content) < length:
        raise Damaged(f"the section table ({length} bytes at {offset}) lies beyond the end: is the file cut off?")
    return content


def _name(strings: bytes, at: int) -> bytes:
    end = strings.find(b"\0", at)
    return strings[at:end] if 0 <= at <= end else b""
