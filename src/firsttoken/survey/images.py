"""Single GPU images: what a cubin or PTX was built for, and which kernels it holds."""

import re

from firsttoken.model.gpu_code import CodeKind, Target
from firsttoken.survey.elf import CUDA_MACHINE, Elf, read_elf, symbols
from firsttoken.survey.window import Damaged, Window

_FUNCTION, _ENTRY_POINT = 2, 0x10
_NEW_ABI = 8
_NOTE_BYTES = 1 << 16
_ARCH = re.compile(rb"-arch[ =](?:sm|compute)_(\d{2,3})([af]?)")
_TARGET = re.compile(rb"^\s*\.target\s+sm_(\d{2,3})([af]?)", re.MULTILINE)
_KERNEL = re.compile(rb"\.entry\s+([\w$%.]+)")


def cubin_target(window: Window, elf: Elf) -> Target:
    """The assembler's own note tells the suffix; the ELF flags alone do not tell `f`, nor always `a`."""
    note = elf.find(b".note.nv.tkinfo")
    told = _ARCH.search(window.read(note.offset, min(note.size, _NOTE_BYTES))) if note is not None else None
    flags = elf.flags
    sm = (flags >> 8) & 0xFF if elf.abi_version >= _NEW_ABI else flags & 0xFF
    if told and int(told[1]) == sm:
        return Target(sm=sm, suffix=told[2].decode())
    if sm < 10:
        raise Damaged(f"a cubin for sm_{sm} (ELF flags {flags:#x})")
    accelerated = flags & (0x8 if elf.abi_version >= _NEW_ABI else 0x800)
    return Target(sm=sm, suffix="a" if accelerated else "")


def ptx_target(text: bytes) -> Target:
    """From the text's beginning."""
    found = _TARGET.search(text)
    if found is None:
        raise Damaged("PTX without a .target line")
    return Target(sm=int(found[1]), suffix=found[2].decode(), kind=CodeKind.PTX)


def kernel_names(kind: CodeKind, window: Window) -> tuple[str, ...]:
    """Mangled names, sorted. Damaged where the image cannot be read."""
    if kind is CodeKind.PTX:
        found = _KERNEL.findall(window.read(0, window.size))
    elif kind is CodeKind.CUBIN:
        elf = read_elf(window)
        if elf.machine != CUDA_MACHINE:
            raise Damaged(f"an ELF file for machine {elf.machine} in the place of a cubin")
        found = [name for name, info, other, index in symbols(window, elf) if info & 15 == _FUNCTION and other & _ENTRY_POINT and index]
    else:
        return ()
    return tuple(sorted(name.decode("utf8", "replace") for name in set(found)))
