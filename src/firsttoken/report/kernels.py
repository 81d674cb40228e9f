"""GPU code in libraries, for people and scripts: targets, and what each GPU finds."""

from collections.abc import Iterator, Sequence
from typing import Any

from firsttoken.model.gpu_code import Capability, CodeKind, Coverage, Fit, Library, Target, coverage
from firsttoken.report.document import document

_MOST_NAMES = 20


def kernels_document(libraries: Sequence[Library], gpus: Sequence[Capability], *, names: bool = False) -> dict[str, Any]:
    """Kind `kernels`. Lists of kernels are mangled names; null where names were not asked for."""
    return document("kernels", gpus=[str(gpu) for gpu in gpus], libraries=[_row(library, gpus, names) for library in libraries])


def kernels_text(libraries: Sequence[Library], gpus: Sequence[Capability], *, root: str = "", names: bool = False) -> str:
    return "\n".join(line for library in libraries for line in _lines(library, gpus, root, names))


def _row(library: Library, gpus: Sequence[Capability], names: bool) -> dict[str, Any]:
    return {
        "file": library.file,
        "bytes": library.size,
        "modules": sum(module.count for module in library.modules),
        "targets": _targets(library.counts()),
        "unlinked": _targets(library.counts(unlinked=True)),
        "ptx_bytes": library.ptx_bytes,
        "coverage": [_coverage(coverage(library, gpu), names) for gpu in gpus],
        "problems": list(library.problems),
    }


def _targets(counts: Sequence[tuple[Target, int]]) -> list[dict[str, Any]]:
    return [{"kind": str(target.kind), "target": target.name, "count": count} for target, count in counts]


def _coverage(seen: Coverage, names: bool) -> dict[str, Any]:
    kernels = {"native": list(seen.kernels_native), "jit": list(seen.kernels_jit), "none": list(seen.kernels_none)}
    return {
        "gpu": str(seen.capability),
        "fit": str(seen.fit),
        "modules": {"native": seen.native, "jit": seen.jit, "none": seen.none},
        "kernels": kernels if names else None,
    }


def _lines(library: Library, gpus: Sequence[Capability], root: str, names: bool) -> Iterator[str]:
    name = library.file.removeprefix(root).lstrip("/") if root and root != "/" else library.file
    modules = sum(module.count for module in library.modules)
    yield f"{name or library.file}  ({_size(library.size)}, {modules} module{'' if modules == 1 else 's'})"
    if library.modules:
        yield f"    {_told(library.counts())}"
    if library.unlinked:
        yield f"    relocatable, not loaded: {_told(library.counts(unlinked=True))}"
    if not library.modules and not library.unlinked:
        yield "    no GPU code"
    if library.modules:
        for gpu in gpus:
            yield from _fits(coverage(library, gpu), library, names)
    yield from (f"    ! {problem}" for problem in library.problems)


def _fits(seen: Coverage, library: Library, names: bool) -> Iterator[str]:
    if seen.fit is Fit.NONE:
        told = "nothing runs: no kernel image"
    else:
        whole = "every module runs" if seen.native == seen.total else f"{seen.native} of {seen.total} modules run"
        parts = [whole if seen.native else ""]
        parts += [f"{seen.jit} only after the driver compiled PTX ({_size(library.ptx_bytes)} of it in all)" if seen.jit else ""]
        parts += [f"{seen.none} not at all" if seen.none else ""]
        told = ", ".join(part for part in parts if part)
    yield f"    {seen.capability}: {told}"
    if not names:
        return
    for label, kernels in (("only by PTX", seen.kernels_jit), ("missing", seen.kernels_none)):
        if kernels:
            yield f"      {len(kernels)} kernel{'' if len(kernels) == 1 else 's'} {label}:"
            yield from (f"        {kernel}" for kernel in kernels[:_MOST_NAMES])
            if len(kernels) > _MOST_NAMES:
                yield f"        … and {len(kernels) - _MOST_NAMES} more: --json tells all"


def _told(counts: Sequence[tuple[Target, int]]) -> str:
    shown = []
    for kind, label in ((CodeKind.CUBIN, ""), (CodeKind.PTX, "PTX "), (CodeKind.LTO, "link-time ")):
        shown += [f"{label}{target.name}×{count}" for target, count in counts if target.kind is kind]
    return "  ".join(shown)


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
