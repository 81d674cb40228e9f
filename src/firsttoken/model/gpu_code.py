"""GPU code in libraries, and NVIDIA's rules for what runs where.

Machine code (cubin) runs on its own compute capability and on later ones of the same major version; with suffix `a` on its own alone;
with suffix `f` on its family, which is its major version from its own minor version on. PTX is compiled by the driver for any later GPU,
with the same limits for `a` and `f`. Binary compatibility holds on desktop and data-centre GPUs only: integrated ones (Jetson) take code
that was built for them alone. Sources: docs/explanation/gpu-code.md.

The unit of loading is the **module**: one fat binary, made from one source file, of which the driver takes the image that fits. So coverage
is counted in modules; a library may hold code for a GPU in some of them only.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache

_INTEGRATED = frozenset({(3, 2), (5, 3), (6, 2), (7, 2), (8, 7), (8, 8), (10, 1), (11, 0)})
"""Jetson and DRIVE: binary compatibility neither with desktop GPUs nor among themselves."""
_SM = re.compile(r"^(?:sm_?|compute_?)?(\d{2,3})([af]?)$", re.IGNORECASE)
_DOTTED = re.compile(r"^(\d{1,2})\.(\d)$")


class CodeKind(StrEnum):
    CUBIN = "cubin"
    PTX = "ptx"
    LTO = "lto"
    """input of the linker, never loaded by itself"""


class Fit(StrEnum):
    NATIVE = "native"
    JIT = "jit"
    """only after the driver has compiled PTX"""
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Capability:
    """A compute capability, like 12.0."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    @property
    def sm(self) -> str:
        return f"sm_{self.major}{self.minor}"

    @classmethod
    def parse(cls, text: str) -> "Capability":
        """`12.0`, `120`, `sm_120`, `sm_90a`. ValueError, with what is read, else."""
        dotted, named = _DOTTED.match(text.strip()), _SM.match(text.strip())
        if dotted:
            return cls(major=int(dotted[1]), minor=int(dotted[2]))
        if named:
            return cls(major=int(named[1][:-1]), minor=int(named[1][-1]))
        raise ValueError(f"{text!r} is no compute capability; write it like sm_120 or 12.0")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Target:
    """What one image was built for. `suffix`: empty, `a` (this GPU alone) or `f` (its family)."""

    sm: int
    suffix: str = ""
    kind: CodeKind = CodeKind.CUBIN

    @property
    def name(self) -> str:
        return f"sm_{self.sm}{self.suffix}"

    @property
    def capability(self) -> Capability:
        return Capability(major=self.sm // 10, minor=self.sm % 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Names (mangled) of the kernels in one module's image for `target`."""

    target: Target
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """`count` modules that hold the same `targets`. `kernels` only where names were asked for; then `count` is 1."""

    targets: tuple[Target, ...]
    count: int = 1
    kernels: tuple[Kernels, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """One file (or the loose cubins of one folder). `modules` can be loaded; `unlinked` is relocatable code, from which the linker made
    what can be loaded, or has not made it yet. `ptx_bytes`: PTX text in `modules`, uncompressed. `problems`: what could not be read."""

    file: str
    size: int = 0
    modules: tuple[Module, ...] = ()
    unlinked: tuple[Module, ...] = ()
    ptx_bytes: int = 0
    problems: tuple[str, ...] = ()

    def counts(self, *, unlinked: bool = False) -> list[tuple[Target, int]]:
        """Images by target, sorted: cubins first."""
        found: Counter[Target] = Counter()
        for module in self.unlinked if unlinked else self.modules:
            for target in module.targets:
                found[target] += module.count
        return sorted(found.items(), key=lambda item: (item[0].kind, item[0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Modules of a library by how they fit one GPU. `kernels_*` only where names are known; a kernel counts where it fits best."""

    capability: Capability
    native: int = 0
    jit: int = 0
    none: int = 0
    kernels_native: tuple[str, ...] = ()
    kernels_jit: tuple[str, ...] = ()
    kernels_none: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        return self.native + self.jit + self.none

    @property
    def fit(self) -> Fit:
        """Of the library: native where some module is, since the rest may be meant for other GPUs."""
        return Fit.NATIVE if self.native else Fit.JIT if self.jit else Fit.NONE


@cache
def fits(target: Target, capability: Capability) -> Fit:
    own = target.capability
    if target.kind is CodeKind.LTO:
        return Fit.NONE
    if target.suffix == "a":
        fit = own == capability
    elif target.suffix == "f":
        fit = own.major == capability.major and own.minor <= capability.minor
    elif target.kind is CodeKind.PTX:
        fit = own <= capability
    else:
        integrated = {(own.major, own.minor), (capability.major, capability.minor)} & _INTEGRATED
        fit = own == capability or (own.major == capability.major and own.minor < capability.minor and not integrated)
    return Fit.NONE if not fit else Fit.JIT if target.kind is CodeKind.PTX else Fit.NATIVE


def chosen(targets: tuple[Target, ...], capability: Capability) -> Target | None:
    """The image that the driver takes of a module: machine code before PTX, the nearest before the older; None where none fits."""
    running = [target for target in targets if fits(target, capability) is not Fit.NONE]
    return max(running, key=lambda t: (t.kind is CodeKind.CUBIN, t.capability, t.suffix == "a", t.suffix == "f"), default=None)


def coverage(library: Library, capability: Capability) -> Coverage:
    tally: Counter[Fit] = Counter()
    kernels: dict[Fit, set[str]] = {fit: set() for fit in Fit}
    for module in library.modules:
        image = chosen(module.targets, capability)
        fit = fits(image, capability) if image is not None else Fit.NONE
        tally[fit] += module.count
        if module.kernels:
            there = {name for item in module.kernels if item.target == image for name in item.names}
            kernels[fit] |= there
            kernels[Fit.NONE] |= {name for item in module.kernels for name in item.names} - there
    kernels[Fit.JIT] -= kernels[Fit.NATIVE]
    kernels[Fit.NONE] -= kernels[Fit.NATIVE] | kernels[Fit.JIT]
    return Coverage(
        capability=capability,
        native=tally[Fit.NATIVE],
        jit=tally[Fit.JIT],
        none=tally[Fit.NONE],
        kernels_native=tuple(sorted(kernels[Fit.NATIVE])),
        kernels_jit=tuple(sorted(kernels[Fit.JIT])),
        kernels_none=tuple(sorted(kernels[Fit.NONE])),
    )


def merged(modules: Sequence[Module]) -> tuple[Module, ...]:
    """Modules with the same targets, and no names, become one with a count."""
    named = [module for module in modules if module.kernels]
    alike: Counter[tuple[Target, ...]] = Counter()
    for module in modules:
        if not module.kernels:
            alike[tuple(sorted(module.targets))] += module.count
    return (*(Module(targets=targets, count=count) for targets, count in alike.items()), *(replace(m, count=1) for m in named))
