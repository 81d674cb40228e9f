"""Builds small files with GPU code whose targets are known, since nvcc was told them: `builds.zip` and `truth.json` beside this script.

    python build.py --nvcc …/nvcc --ptxas-12 …/ptxas

Made with nvcc 13.5.37 (PyPI: nvidia-cuda-nvcc, -crt, -runtime, -cccl and nvidia-nvvm in one folder) and ptxas 12.4.131
(nvidia-cuda-nvcc-cu12), g++ and binutils from the system. `truth.json` holds for each file the targets by nvcc's own arguments (`linked` is
what can be loaded, `unlinked` is relocatable) and the kernels of its sources.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

ONE = """
__global__ void fill(float *a, float x) { a[threadIdx.x] = x; }
__global__ void scale(float *a, float x) { a[threadIdx.x] *= x; }
"""
TWO = "__global__ void shift(float *a, const float *b) { a[threadIdx.x] = b[threadIdx.x + 1]; }\n"
KERNELS = {"one": ["_Z4fillPff", "_Z5scalePff"], "two": ["_Z5shiftPfPKf"]}
OLD_PTX = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry old()\n{\n ret;\n}\n"


@dataclass(frozen=True)
class Build:
    """`codes` by source file, as nvcc's `code=`: sm_… is machine code, compute_… PTX, lto_… input of the linker."""

    name: str
    codes: dict[str, list[str]]
    flags: list[str] = field(default_factory=list)
    how: str = "object"


BUILDS = [
    Build("single.o", {"one": ["sm_80"]}),
    Build("several.o", {"one": ["sm_75", "sm_80", "sm_86", "sm_90"]}),
    Build("arch_specific.o", {"one": ["sm_90a", "sm_100a", "sm_120a"]}),
    Build("family.o", {"one": ["sm_100f", "sm_103f", "sm_120f"]}),
    Build("all_suffixes.o", {"one": ["sm_90", "sm_90a", "sm_100f", "sm_103a", "sm_120", "compute_90"]}),
    Build("ptx_only.o", {"one": ["compute_80"]}),
    Build("ptx_suffixes.o", {"one": ["compute_90a", "compute_120f"]}),
    Build("lz4.o", {"one": ["sm_80", "sm_90a", "compute_80"]}, ["--compress-mode=speed", "-Xfatbin", "-compress-all"]),
    Build("zstd.o", {"one": ["sm_80", "sm_100f", "compute_80"]}, ["--compress-mode=size"]),
    Build("unpacked.o", {"one": ["sm_80", "compute_80"]}, ["--compress-mode=none"]),
    Build("concatenated.o", {"one": ["sm_80", "sm_90a", "sm_103f", "sm_120a", "compute_120f"]}, ["--concat"]),
    Build("relocatable.o", {"one": ["sm_80", "sm_120f", "compute_90"]}, ["-rdc=true"]),
    Build("link_time.o", {"one": ["lto_90", "sm_80"]}, ["-rdc=true"]),
    Build("linked.so", {"one": ["sm_80", "sm_90"], "two": ["sm_80", "sm_90"]}, ["-rdc=true"], "device_linked"),
    Build("differing.so", {"one": ["sm_80", "sm_90a"], "two": ["sm_80", "compute_80"]}, [], "library"),
    Build("archive.a", {"one": ["sm_80"], "two": ["sm_86", "compute_86"]}, [], "archive"),
    Build("bare.fatbin", {"one": ["sm_80", "sm_90a"]}, ["-fatbin"]),
    Build("plain.cubin", {"one": ["sm_86"]}, ["-cubin"]),
    Build("arch_specific.cubin", {"one": ["sm_90a"]}, ["-cubin"]),
    Build("family.cubin", {"one": ["sm_120f"]}, ["-cubin"]),
    Build("bare.ptx", {"one": ["compute_90a"]}, ["-ptx"]),
    Build("no_kernels.o", {"none": ["sm_80"]}),
    Build("old_abi.cubin", {"old": ["sm_90a"]}, [], "old_ptxas"),
]


def truth(build: Build) -> dict[str, object]:
    """What nvcc was told: `{"linked": {"cubin sm_80": 1}, "unlinked": {…}, "kernels": […]}`."""
    told: dict[str, dict[str, int]] = {"linked": {}, "unlinked": {}}
    relocatable = "-rdc=true" in build.flags
    for codes in build.codes.values():
        for code in codes:
            kind = {"sm": "cubin", "compute": "ptx", "lto": "lto"}[code.partition("_")[0]]
            key = f"{kind} sm_{code.partition('_')[2]}"
            where = told["unlinked" if relocatable else "linked"]
            where[key] = where.get(key, 0) + 1
    if build.how == "device_linked":  # the linker makes one image of all sources, for each target
        told["linked"] = dict.fromkeys(told["unlinked"], 1)
    kernels = sorted(name for source in build.codes for name in KERNELS.get(source, ["old"] if source == "old" else []))
    return {**told, "kernels": kernels}


def make(build: Build, nvcc: str, out: Path, *, old_ptxas: str | None = None) -> Path:
    """subprocess.CalledProcessError where the compiler refuses."""
    path = out / build.name
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        (work / "one.cu").write_text(ONE)
        (work / "two.cu").write_text(TWO)
        (work / "none.cu").write_text("int nothing() { return 0; }\n")
        (work / "old.ptx").write_text(OLD_PTX)
        if build.how == "old_ptxas":
            _run([str(old_ptxas), "-arch=sm_90a", "old.ptx", "-o", str(path)], work)
            return path
        bare = any(flag in build.flags for flag in ("-fatbin", "-cubin", "-ptx"))
        objects = []
        for source, codes in build.codes.items():
            target = path if build.how == "object" else work / f"{source}.o"
            generate = [word for code in codes for word in ("-gencode", f"arch=compute_{code.partition('_')[2]},code={code}")]
            if "-ptx" in build.flags or "-cubin" in build.flags:
                generate = ["-arch", codes[0]]
            _run([nvcc, *generate, *build.flags, *([] if bare else ["-c", "-Xcompiler", "-fPIC"]), f"{source}.cu", "-o", str(target)], work)
            objects.append(str(target))
        if build.how == "archive":
            _run(["ar", "rcs", str(path), *objects], work)
        elif build.how == "device_linked":
            generate = [word for code in build.codes["one"] for word in ("-gencode", f"arch=compute_{code[3:]},code={code}")]
            _run([nvcc, *generate, "-dlink", "-Xcompiler", "-fPIC", *objects, "-o", "linked.o"], work)
            _run(["g++", "-shared", "-nostdlib", "-Wl,--build-id=none", *objects, "linked.o", "-o", str(path)], work)
        elif build.how == "library":
            _run(["g++", "-shared", "-nostdlib", "-Wl,--build-id=none", *objects, "-o", str(path)], work)
        if path.suffix in (".o", ".so"):
            _run(["strip", "--strip-unneeded", str(path)], work)
    return path


def _run(command: list[str], cwd: Path) -> None:
    subprocess.run(command, cwd=cwd, check=True, timeout=300)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--ptxas-12", dest="old_ptxas", required=True)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(asked.out / "builds.zip", "w", zipfile.ZIP_LZMA) as archive:
        for build in BUILDS:
            path = make(build, asked.nvcc, Path(scratch), old_ptxas=asked.old_ptxas)
            print(f"{path.name:<24} {path.stat().st_size:>7}", file=sys.stderr)
            archive.writestr(zipfile.ZipInfo(path.name), path.read_bytes(), zipfile.ZIP_LZMA)
    told = {build.name: truth(build) for build in BUILDS}
    (asked.out / "truth.json").write_text(json.dumps(told, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
