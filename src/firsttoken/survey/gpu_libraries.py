"""Which GPU code a file holds: shared libraries, executables, objects, static archives, bare fat binaries, cubins and PTX.

Whatever the bytes, the answer is a Library: what could not be read stands in its `problems`.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from firsttoken.model.gpu_code import CodeKind, Kernels, Library, Module, Target, merged
from firsttoken.survey import elf, fatbin
from firsttoken.survey.images import cubin_target, kernel_names, ptx_target
from firsttoken.survey.packed import unpacked
from firsttoken.survey.window import Damaged, Window

_LINKED, _UNLINKED = b".nv_fatbin", b"__nv_relfatbin"
_ARCHIVE = b"!<arch>\n"
_LOOSE = (".cubin", ".ptx")
_SUFFIXES = (".so", ".fatbin", ".a", *_LOOSE)
_HEAD = 1 << 12
_PTX_HEAD = 1 << 16


def read_library(path: str | os.PathLike[str], *, names: bool = False) -> Library:
    """`names`: with the names of the kernels that can be loaded, which reads the images too and unpacks them."""
    file = os.fspath(path)
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO of that name must not hold us up
        try:
            return read_window(Window.of_file(fd), file, names=names)
        finally:
            os.close(fd)
    except OSError as error:
        return Library(file=file, problems=(f"cannot be read: {error.strerror or error}",))


def read_window(window: Window, file: str, *, names: bool = False) -> Library:
    """The same for bytes that come from elsewhere. OSError as the window's source raises it."""
    reader = _Reader(names=names)
    try:
        reader.read(window)
    except Damaged as problem:
        reader.problems.append(str(problem))
    return Library(
        file=file,
        size=window.size,
        modules=merged(reader.modules),
        unlinked=merged(reader.unlinked),
        ptx_bytes=reader.ptx_bytes,
        problems=tuple(reader.problems),
    )


def files_with_code(folder: Path) -> Iterator[Path]:
    """By their names, below `folder`, each file once: links are not followed."""
    for where, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = Path(where, name)
            if (name.endswith(_SUFFIXES) or ".so." in name) and not path.is_symlink():
                yield path


def loose(path: Path) -> bool:
    """One image in a file of its own."""
    return path.name.endswith(_LOOSE)


def together(folder: str, libraries: Iterable[Library]) -> Library:
    """Loose images of one folder as one library: there may be thousands."""
    parts = list(libraries)
    return Library(
        file=folder,
        size=sum(part.size for part in parts),
        modules=merged([module for part in parts for module in part.modules]),
        ptx_bytes=sum(part.ptx_bytes for part in parts),
        problems=tuple(f"{os.path.basename(part.file)}: {problem}" for part in parts for problem in part.problems),
    )


class _Reader:
    def __init__(self, *, names: bool) -> None:
        self._names = names
        self.modules: list[Module] = []
        self.unlinked: list[Module] = []
        self.problems: list[str] = []
        self.ptx_bytes = 0

    def read(self, window: Window) -> None:
        head = window.read(0, _HEAD)
        if head.startswith(elf.MAGIC):
            self._elf(window)
        elif head.startswith(fatbin.MAGIC):
            self._fat(window, self.modules)
        elif head.startswith(_ARCHIVE):
            self._archive(window)
        elif b".version" in head and b".target" in head:
            self.ptx_bytes += window.size
            self._single(ptx_target(window.read(0, _PTX_HEAD)), window)
        else:
            raise Damaged("neither ELF, archive, fat binary nor PTX" if head else "the file is empty")

    def _elf(self, window: Window) -> None:
        found = elf.read_elf(window)
        if found.machine == elf.CUDA_MACHINE:
            self._single(cubin_target(window, found), window)
            return
        for section in found.sections:
            if section.name not in (_LINKED, _UNLINKED):
                continue
            if section.offset + section.size > window.size:
                self.problems.append(f"section {section.name.decode()} ends beyond the file: it is cut off")
            self._fat(window.part(section.offset, section.size), self.modules if section.name == _LINKED else self.unlinked)

    def _single(self, target: Target, window: Window) -> None:
        kernels = (Kernels(target=target, names=kernel_names(target.kind, window)),) if self._names else ()
        self.modules.append(Module(targets=(target,), kernels=kernels))

    def _fat(self, window: Window, into: list[Module]) -> None:
        for container in fatbin.containers(window):
            self.problems += container.problems
            if not container.entries:
                continue
            named = self._names and into is self.modules
            kernels = tuple(self._kernels(window, entry) for entry in container.entries) if named else ()
            into.append(Module(targets=tuple(entry.target for entry in container.entries), kernels=kernels))
            if into is self.modules:
                self.ptx_bytes += sum(entry.payload.size for entry in container.entries if entry.target.kind is CodeKind.PTX)

    def _kernels(self, window: Window, entry: fatbin.Entry) -> Kernels:
        payload = entry.payload
        if entry.target.kind is CodeKind.LTO:
            return Kernels(target=entry.target, names=())
        try:
            if payload.packing is None:
                image = window.part(payload.offset + payload.skip, payload.size)
            else:
                content = unpacked(payload.packing, window.read(payload.offset, payload.length), payload.whole or payload.size)
                image = Window.of_bytes(content[payload.skip : payload.skip + payload.size])
            return Kernels(target=entry.target, names=kernel_names(entry.target.kind, image))
        except Damaged as problem:
            self.problems.append(f"the {entry.target.kind} for {entry.target.name} at {payload.offset}: {problem}")
            return Kernels(target=entry.target, names=())

    def _archive(self, window: Window) -> None:
        at = len(_ARCHIVE)
        while at + 60 <= window.size:
            header = window.read(at, 60)
            if header[58:60] != b"`\n" or not header[48:58].strip().isdigit():
                raise Damaged(f"the archive's member at {at} has no header")
            size = int(header[48:58])
            member = window.part(at + 60, size)
            if member.read(0, 4) == elf.MAGIC:
                try:
                    self._elf(member)
                except Damaged as problem:
                    self.problems.append(f"member at {at}: {problem}")
            at += 60 + size + size % 2
