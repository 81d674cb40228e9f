"""Which of an engine's libraries lie in an environment, and which file of each is loaded on a GPU: the loaders' rules over the files."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from firsttoken.knowledge.libraries import EngineLibrary, matches
from firsttoken.model.gpu_code import Capability

_CUDA_LINE = re.compile(r"^cuda(?:\s*:[^=]*)?\s*=\s*['\"](\d+)\.(\d+)", re.MULTILINE)
_NUMBER = re.compile(r"cuda(\d\d)(\d+)")


class Need(StrEnum):
    CERTAIN = "certain"
    """no start works without it"""
    USUAL = "usual"
    """most models and settings use it on this GPU"""
    SELDOM = "seldom"
    """only with settings that the command does not have"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """`path` is what would be loaded on the GPU that was asked about."""

    library: EngineLibrary
    path: Path
    need: Need


def loaded(
    known: Iterable[EngineLibrary], engine: str | None, command: str, folders: Sequence[str], capability: Capability
) -> tuple[Loaded, ...]:
    """`command`: with its environment assignments, as a shell would show it. `folders`: site-packages, in the order of import."""
    cuda = torch_cuda(folders)
    found = []
    for library in known:
        if library.engines and engine not in library.engines:
            continue
        package = next((Path(folder, library.package) for folder in folders if Path(folder, library.package).is_dir()), None)
        path = _file(library, package, capability, cuda) if package is not None else None
        if path is not None:
            found.append(Loaded(library=library, path=path, need=_need(library, command, capability)))
    return tuple(found)


def torch_cuda(folders: Sequence[str]) -> tuple[int, int] | None:
    """The CUDA version that torch was built with, from its version file; None for a build without."""
    for folder in folders:
        try:
            with open(Path(folder, "torch", "version.py"), encoding="utf8", errors="replace") as file:
                match = _CUDA_LINE.search(file.read(1 << 14))
        except OSError:
            continue
        return (int(match[1]), int(match[2])) if match else None
    return None


def _need(library: EngineLibrary, command: str, capability: Capability) -> Need:
    if library.asked_for(command):
        return Need.CERTAIN
    if not matches(library.used_on, capability):
        return Need.SELDOM
    return Need.CERTAIN if library.certain else Need.USUAL


def _file(library: EngineLibrary, package: Path, capability: Capability, cuda: tuple[int, int] | None) -> Path | None:
    choice = library.chosen(capability)
    for pattern in choice.files if choice is not None else ():
        try:
            files = sorted(package.glob(pattern))
        except OSError:
            files = []
        if choice is not None and choice.by_cuda_version:
            files = _by_cuda_version(files, cuda)
        if files:
            return files[0]
    return None


def _by_cuda_version(files: Sequence[Path], cuda: tuple[int, int] | None) -> list[Path]:
    named = {(int(match[1]), int(match[2])): path for path in files if (match := _NUMBER.search(path.name))}
    if cuda is None:
        return []
    alike = [version for version in named if version[0] == cuda[0]]
    below = [version for version in alike if version <= cuda]
    best = max(below) if below else min(alike, default=None)
    return [named[best]] if best is not None else []
