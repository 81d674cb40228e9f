"""Reading GPU code out of libraries: is it right, and how fast?

    python bench/kernels.py --nvcc …/nvcc --ptxas-12 …/ptxas --cuobjdump …/cuobjdump LIBRARY…

`build/NAME` has nvcc build each file of tests/unit/survey/gpu_code/build.py anew and compares targets and kernels with what it was told.
`library/FILE` compares the targets of a real library with cuobjdump, image by image, and times both: the file's pages dropped from the page
cache before (cold) and not (warm), in turn, median of `--rounds`; `…_cpu_s` is processor time, which a busy machine changes less.
cuobjdump prints family targets without their `f`, so these are compared without. `kernels_s` is our time with the names of all kernels.
`damage` reads `--damages` seeded corruptions of the builds that the tests use: none may raise.
The tools are on PyPI: nvidia-cuda-nvcc, nvidia-nvvm, nvidia-cuda-crt, nvidia-cuda-runtime, nvidia-cuda-cccl, nvidia-cuda-cuobjdump.
"""

import importlib.util
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from cells import Book, CellFailed, Row, measure, options, report
from firsttoken.model.gpu_code import Library, Target
from firsttoken.survey.gpu_libraries import read_library, read_window
from firsttoken.survey.window import Window

_BUILD = Path(__file__).resolve().parents[1] / "tests/unit/survey/gpu_code/build.py"
_LISTED = re.compile(r"^(ELF|PTX) file +\d+: .*\.(sm_\d+[af]?)\.(?:cubin|ptx)$", re.MULTILINE)
_LONGEST = 600.0


def main() -> int:
    parser = options("kernels", __doc__)
    parser.add_argument("libraries", nargs="*", type=Path, metavar="LIBRARY")
    parser.add_argument("--nvcc")
    parser.add_argument("--ptxas-12", dest="old_ptxas")
    parser.add_argument("--cuobjdump")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--damages", type=int, default=20_000)
    asked = parser.parse_args()
    build = _module()
    builds = {one.name: one for one in build.BUILDS if asked.old_ptxas or one.how != "old_ptxas"} if asked.nvcc else {}
    libraries = {str(path).rpartition("site-packages/")[2].strip("/"): path for path in asked.libraries} if asked.cuobjdump else {}
    cells = [*(f"build/{name}" for name in builds), *(f"library/{name}" for name in libraries), "damage"]
    book = Book(asked.out, {"seed": asked.seed, "rounds": asked.rounds, "damages": asked.damages})

    def one(cell: str) -> Mapping[str, Any]:
        what, _, name = cell.partition("/")
        try:
            if what == "library":
                return _library(libraries[name], asked.cuobjdump, asked.rounds)
            if what == "damage":
                return _damage(asked.damages, asked.seed)
            with tempfile.TemporaryDirectory(prefix="firsttoken-bench-") as folder:
                path = build.make(builds[name], asked.nvcc, Path(folder), old_ptxas=asked.old_ptxas)
                return _build(path, build.truth(builds[name]))
        except (OSError, subprocess.SubprocessError) as error:
            raise CellFailed(str(error)) from error

    failed = measure(book, cells, asked.shard, one, _told)
    rows = book.chosen(cells)
    report("kernels", asked.json, _summary(rows), rows, (_told(row) for row in rows))
    return 1 if failed or any(not row["right"] for row in rows) else 0


def _build(path: Path, truth: Mapping[str, Any]) -> dict[str, Any]:
    library = read_library(path, names=True)
    names = sorted({name for module in library.modules for item in module.kernels for name in item.names})
    found = {"linked": _counted(library.counts()), "unlinked": _counted(library.counts(unlinked=True)), "kernels": names}
    told = truth if library.modules else {**truth, "kernels": []}  # of relocatable code no names are read
    return {"right": found == told and not library.problems, "found": found, "bytes": library.size}


def _library(path: Path, cuobjdump: str, rounds: int) -> dict[str, Any]:
    linked, everything = _oracle(cuobjdump, path), _oracle(cuobjdump, path, "-all")
    library = read_library(path)
    ours = _without_family(library)
    times: defaultdict[str, list[float]] = defaultdict(list)

    def timed(name: str, one: Callable[[], object]) -> None:
        wall, cpu = _seconds(one)
        times[f"{name}_s"].append(wall)
        times[f"{name}_cpu_s"].append(cpu)

    for _ in range(rounds):
        for name, one in (("ours", lambda: read_library(path)), ("cuobjdump", lambda: _oracle(cuobjdump, path))):
            _drop(path)
            timed(f"{name}_cold", one)
            timed(f"{name}_warm", one)
        timed("kernels", lambda: read_library(path, names=True))
    named = read_library(path, names=True)
    return {
        "oracle": "cuobjdump" if everything is not None else "none: cuobjdump refuses the file",
        "right": everything is None or (not library.problems and ours[0] == (linked or {}) and ours[1] == everything),
        "targets": _counted(library.counts()),
        "modules": sum(module.count for module in library.modules),
        "images": sum(count for _, count in library.counts()),
        "kernels": len({name for module in named.modules for item in module.kernels for name in item.names}),
        "bytes": library.size,
        **{name: round(statistics.median(values), 4) for name, values in times.items()},
    }


def _damage(count: int, seed: int) -> dict[str, Any]:
    choose = random.Random(seed)
    with zipfile.ZipFile(_BUILD.with_name("builds.zip")) as archive:
        contents = [archive.read(name) for name in archive.namelist()]
    raised: Counter[str] = Counter()
    told = 0
    slowest = 0.0
    for _ in range(count):
        content = bytearray(choose.choice(contents))
        for _ in range(choose.choice((1, 1, 2, 8, 64))):
            at = choose.randrange(len(content))
            content[at : at + 4] = choose.choice((bytes(4), b"\xff" * 4, choose.randbytes(4), choose.randbytes(1)))
        window = Window.of_bytes(bytes(content[: choose.choice((len(content), len(content), choose.randrange(len(content) + 1)))]))
        began = time.perf_counter()
        try:
            told += bool(read_window(window, "damaged", names=choose.random() < 0.5).problems)
        except Exception as error:  # what is counted here
            raised[f"{type(error).__name__}: {error}"] += 1
        slowest = max(slowest, time.perf_counter() - began)
    return {"right": not raised, "inputs": count, "told": told, "raised": dict(raised), "slowest_s": round(slowest, 3)}


def _oracle(cuobjdump: str, path: Path, *more: str) -> dict[str, int] | None:
    """Images by kind and target; None where cuobjdump cannot read the file."""
    done = subprocess.run([cuobjdump, *more, "-lelf", "-lptx", str(path)], capture_output=True, text=True, timeout=_LONGEST)
    if "fatal" in done.stderr:
        return None
    return dict(Counter(f"{'cubin' if kind == 'ELF' else 'ptx'} {_plain(target)}" for kind, target in _LISTED.findall(done.stdout)))


def _without_family(library: Library) -> tuple[dict[str, int], dict[str, int]]:
    """What can be loaded, and with it what is relocatable, as cuobjdump names it."""
    linked: Counter[str] = Counter()
    for target, count in library.counts():
        linked[f"{target.kind} {_plain(target.name)}"] += count
    everything = linked.copy()
    for target, count in library.counts(unlinked=True):
        everything[f"{target.kind} {_plain(target.name)}"] += count
    return dict(linked), dict(everything)


def _plain(target: str) -> str:
    return target.removesuffix("f")


def _counted(counts: list[tuple[Target, int]]) -> dict[str, int]:
    return {f"{target.kind} {target.name}": count for target, count in counts}


def _seconds(one: Callable[[], object]) -> tuple[float, float]:
    """Wall and processor, ours and our children's."""
    began, before = time.perf_counter(), os.times()
    one()
    wall, after = time.perf_counter() - began, os.times()
    return wall, sum(after[:4]) - sum(before[:4])


def _drop(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def _module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_code_build", _BUILD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _summary(rows: list[Row]) -> dict[str, Any]:
    builds = [row for row in rows if row["cell"].startswith("build/")]
    libraries = [row for row in rows if row["cell"].startswith("library/") and row["oracle"] == "cuobjdump"]
    told: dict[str, Any] = {
        "builds": len(builds),
        "builds_right": sum(row["right"] for row in builds),
        "libraries": len(libraries),
        "libraries_right": sum(row["right"] for row in libraries),
    }
    if libraries:
        told |= {
            "images": sum(row["images"] for row in libraries),
            "speedup_warm": round(sum(row["cuobjdump_warm_s"] for row in libraries) / sum(row["ours_warm_s"] for row in libraries), 1),
            "speedup_warm_cpu": round(
                sum(row["cuobjdump_warm_cpu_s"] for row in libraries) / max(0.01, sum(row["ours_warm_cpu_s"] for row in libraries)), 1
            ),
            "speedup_cold": round(sum(row["cuobjdump_cold_s"] for row in libraries) / sum(row["ours_cold_s"] for row in libraries), 1),
            "slower_than_cuobjdump": [row["cell"] for row in libraries if row["ours_warm_s"] > row["cuobjdump_warm_s"]],
        }
    return told | {name: row[name] for row in rows if row["cell"] == "damage" for name in ("inputs", "raised", "slowest_s")}


def _told(row: Row) -> str:
    told = f"{row['cell']}: {'right' if row['right'] else 'WRONG'}"
    if "ours_warm_s" in row:
        told += f", {row['images']} images in {row['bytes'] / 1e6:.0f} MB; warm {row['ours_warm_s']:.3f} s"
        told += f" (cuobjdump {row['cuobjdump_warm_s']:.3f}), cold {row['ours_cold_s']:.3f} s ({row['cuobjdump_cold_s']:.3f})"
        told += f", with {row['kernels']} kernels {row['kernels_s']:.2f} s"
    if "inputs" in row:
        told += f", {row['inputs']} damaged inputs, {row['told']} told, {sum(row['raised'].values())} raised, slowest {row['slowest_s']} s"
    return told


if __name__ == "__main__":
    sys.exit(main())
