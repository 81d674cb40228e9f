"""Is there code for this GPU in what the engine will load? The environment behind the command is read, nothing of it is imported or run."""

import contextlib
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from firsttoken.history.runs import home
from firsttoken.knowledge.libraries import libraries
from firsttoken.knowledge.load import profiles
from firsttoken.model.checks import Check, Outcome, Part
from firsttoken.model.gpu_code import Capability, Coverage, Fit, Library, coverage
from firsttoken.model.plan import Plan
from firsttoken.plan.peel import peel
from firsttoken.plan.world import World
from firsttoken.survey.engine_libraries import Loaded, Need, loaded
from firsttoken.survey.gpu_libraries import files_with_code, loose, read_library, together
from firsttoken.survey.gpus import Gpu, Gpus, read_gpus, visible
from firsttoken.survey.installed import import_folders, interpreter, site_packages
from firsttoken.survey.library_cache import LibraryCache

CAUSE = "kernel-missing-sm"
_JIT_BYTES_A_SECOND = 200_000
"""PTX that one core compiles: ptxas 13.5 made 140,000 (attention) to 360,000 (small operators) a processor second on a cloud core"""


class NothingFound(ValueError):
    """What was asked for is no file, folder, environment or package; the text says what was tried."""


def kernel_checks(
    argv: Sequence[str],
    world: World,
    plan: Plan,
    *,
    wanted: Sequence[Capability] = (),
    gpus: Gpus | None = None,
    cache: LibraryCache | None = None,
) -> tuple[Check, ...]:
    """One check for each library with a fault, or one that all is well. `wanted`: the capabilities to check for, else those of `gpus`, else
    of this machine. Milliseconds once `cache` knows the libraries, up to seconds from a cold disk before."""
    if plan.contained:
        return (_not_checked("the server runs in a container, whose files are not read from here; run firsttoken kernels inside"),)
    found = Gpus() if wanted else gpus or read_gpus(details=False)
    inner = peel(argv, world, profiles())
    seen = used_gpus(found.found, inner.world.env)
    capabilities = tuple(wanted) or capabilities_of(seen)
    if not capabilities:
        why = found.problem or "none has a compute capability that is told"
        return (_not_checked(f"no NVIDIA GPU is seen ({why}); --gpu sm_120 checks for one that is elsewhere"),)
    folders = environment(inner.argv[0], inner.world) if inner.argv else []
    if not folders:
        return (_not_checked(f"no Python environment is found behind {inner.argv[0] if inner.argv else 'the command'}"),)
    shown = shlex.join([*(f"{name}={value}" for name, value in inner.world.env.items()), *inner.argv])
    cache = cache or LibraryCache(home() / "gpu-libraries.json")
    checks = [*_mixed(seen), *_all_judged(plan.engine, shown, folders, capabilities, cache)]
    cache.keep()
    return tuple(checks)


def used_gpus(found: Sequence[Gpu], env: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Those that the command will see. CUDA numbers the fastest first, nvidia-smi by bus: unless CUDA_DEVICE_ORDER=PCI_BUS_ID, numbers in
    CUDA_VISIBLE_DEVICES tell nothing about GPUs that differ, and all are taken."""
    numbered = any(part.strip().isdecimal() for part in env.get("CUDA_VISIBLE_DEVICES", "").split(","))
    if numbered and env.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID" and len(capabilities_of(found)) > 1:
        return tuple(found)
    return visible(found, env)


def capabilities_of(gpus: Sequence[Gpu]) -> tuple[Capability, ...]:
    """Distinct, sorted; what the driver does not tell is left out."""
    found = set()
    for gpu in gpus:
        with contextlib.suppress(ValueError):
            found.add(Capability.parse(gpu.capability or ""))
    return tuple(sorted(found))


def environment(program: str, world: World) -> list[str]:
    """The folders that `program`'s Python imports from; empty where it is no Python."""
    python = interpreter(program, world.env, world.cwd)
    return import_folders(python, world.env) if python is not None else []


def judged(item: Loaded, library: Library, seen: Coverage) -> Check:
    """What the code in one library means for a start on one GPU."""
    name, gpu = f"{item.library.package}/{item.path.name}", f"compute capability {seen.capability}"
    held = ", ".join(dict.fromkeys(target.name + (" as PTX" if target.kind == "ptx" else "") for target, _ in library.counts()))
    used = f"it serves {item.library.what}"
    if not seen.total and not library.problems and item.need is Need.CERTAIN:
        remedy = item.library.remedy or f"install a build of {item.library.package} for this GPU"
        price = "the start ends, or serves on the CPU"
        fact = f"{name} holds no GPU code at all: a build for the CPU? ({used})"
        return Check(id=CAUSE, part=Part.KERNELS, result=Outcome.WARN, fact=fact, remedy=remedy, price=price)
    if not seen.total:
        return _not_checked(f"{name}: {library.problems[0] if library.problems else 'it holds no GPU code'}")
    if library.problems:
        remedy = f"is the file whole? Install {item.library.package} again"
        return Check(id=CAUSE, part=Part.KERNELS, result=Outcome.WARN, fact=f"{name}: {library.problems[0]}", remedy=remedy)
    if seen.fit is Fit.NATIVE:
        parts = f"{seen.native} of {seen.total} modules have code for {gpu}" + (f", {seen.jit} more as PTX" if seen.jit else "")
        return Check(id=CAUSE, part=Part.KERNELS, result=Outcome.PASS, fact=f"{name}: {parts}")
    if seen.fit is Fit.JIT:
        return Check(
            id=CAUSE,
            part=Part.KERNELS,
            result=Outcome.WARN,
            fact=f"{name} holds {held}: for {gpu} only PTX, which the driver compiles at first use ({used})",
            remedy=item.library.remedy or None,
            price=_jit_price(library),
        )
    return Check(
        id=CAUSE,
        part=Part.KERNELS,
        result=Outcome.FAIL if item.need is Need.CERTAIN else Outcome.WARN,
        fact=f"{name} holds {held}: nothing that runs on {gpu} ({used})",
        remedy=item.library.remedy or None,
        price='"no kernel image is available for execution on the device" at the first call'
        + ("" if item.need is Need.CERTAIN else ", where the model and settings lead to it"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """Libraries that were asked for, and `root`, from which their files are named."""

    root: Path
    libraries: tuple[Library, ...]


def named_libraries(what: str, *, names: bool = False, cwd: str = ".", environ: dict[str, str] | None = None) -> Named:
    """`what`: a file, a folder, a virtual environment, an interpreter, or a package of the Python in use. NothingFound else."""
    path = Path(cwd, what).expanduser()
    if path.is_file():
        python = site_packages(path) if path.name.startswith("python") else []
        if not python:
            return Named(root=path.parent, libraries=(read_library(path, names=names),))
        path = Path(python[0])
    elif not path.is_dir():
        path = _package(what, dict(os.environ) if environ is None else environ, cwd)
    return Named(root=path, libraries=tuple(_below(path, names)))


def _below(folder: Path, names: bool) -> list[Library]:
    """Those with GPU code, or with a fault that kept us from seeing it; loose images are told by folder."""
    found: list[Library] = []
    scattered: dict[Path, list[Library]] = {}
    for file in files_with_code(folder):
        library = read_library(file, names=names)
        if loose(file):
            scattered.setdefault(file.parent, []).append(library)
        elif library.modules or library.unlinked or (library.problems and file.suffix in (".so", ".fatbin")):
            found.append(library)
    found += [together(str(where), parts) for where, parts in scattered.items()]
    return sorted(found, key=lambda library: library.file)


def _package(name: str, environ: dict[str, str], cwd: str) -> Path:
    """The folder of a package (or distribution, whose name may differ in `-`) in the environment in use."""
    venv = environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX")
    pythons = [Path(venv, "bin", "python")] if venv else []
    beside = interpreter("python3", environ, cwd)
    pythons += [python for python in (beside, Path(sys.executable)) if python is not None]
    folders = list(dict.fromkeys(folder for python in pythons for folder in import_folders(python, environ)))
    for folder in folders:
        for spelling in (name, name.replace("-", "_")):
            if Path(folder, spelling).is_dir():
                return Path(folder, spelling)
    tried = ", ".join(folders) or "no Python environment"
    raise NothingFound(f"{name!r} is no file or folder, and no package in {tried}; activate its environment, or give a path")


def _all_judged(
    engine: str | None, command: str, folders: Sequence[str], capabilities: Sequence[Capability], cache: LibraryCache
) -> list[Check]:
    rows: list[Check] = []
    looked = 0
    for capability in capabilities:
        for item in loaded(libraries(), engine, command, folders, capability):
            if item.need is Need.SELDOM:
                continue
            library = cache.read(item.path)
            looked += bool(library.modules)
            rows.append(judged(item, library, coverage(library, capability)))
    if not rows:
        return [_not_checked("no library with GPU code that is known to firsttoken is installed behind the command")]
    faults = [row for row in rows if row.result is not Outcome.PASS]
    if faults or not looked:
        return faults
    fact = f"all {looked} libraries that the engine loads have code for compute capability {', '.join(map(str, capabilities))}"
    return [Check(id=CAUSE, part=Part.KERNELS, result=Outcome.PASS, fact=fact)]


def _mixed(gpus: Sequence[Gpu]) -> list[Check]:
    if len(capabilities_of(gpus)) < 2:
        return []
    names = ", ".join(f"{gpu.index}: {gpu.name} ({gpu.capability})" for gpu in gpus)
    return [
        Check(
            id="gpus-differ",
            part=Part.KERNELS,
            result=Outcome.WARN,
            fact=f"the GPUs are of different kinds: {names}",
            remedy="choose alike ones: CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=…",
            price="ranks choose kernels by their own GPU, the slowest sets the pace, and some engines choose by the first GPU for all",
        )
    ]


def _jit_price(library: Library) -> str:
    megabytes = library.ptx_bytes / 1e6
    minutes = library.ptx_bytes / _JIT_BYTES_A_SECOND / 60
    once = "each module at its first use, then kept in ~/.nv/ComputeCache"
    return (
        f"{megabytes:.0f} MB of PTX, of which a start compiles what it uses; all of it would take one core about {minutes:.0f} min; {once}"
    )


def _not_checked(fact: str) -> Check:
    return Check(id=CAUSE, part=Part.KERNELS, result=Outcome.NOT_CHECKED, fact=fact)
