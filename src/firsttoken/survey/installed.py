"""Versions of packages in an engine's own environment, from its metadata on disk: nothing of it is imported or run.

`python -P -m firsttoken.survey.installed JSON`: the same by a process that may be left behind, where that disk is a network's.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import distributions
from pathlib import Path

_MOST = 8
"""site-packages folders looked into, at most"""
_MOST_PTH = 100


def versions(program: str, packages: Iterable[str], env: Mapping[str, str], cwd: str = "/") -> dict[str, str]:
    """Those of `packages` (distribution names) that are installed beside `program`; empty where it is no Python.

    `program` is an interpreter, or a script whose first line names one.
    """
    found = interpreter(program, env, cwd)
    folders = site_packages(found) if found is not None else []
    told: dict[str, str] = {}
    for package in packages:
        for folder in folders:
            version = _version(package, folder)
            if version is not None:
                told[package] = version
                break
    return told


def interpreter(program: str, env: Mapping[str, str], cwd: str) -> Path | None:
    """The Python behind `program`: itself, or the one that its first line names."""
    path = shutil.which(program, path=env.get("PATH")) if "/" not in program else os.path.join(cwd, program)
    if path is None:
        return None
    if Path(path).name.startswith("python"):
        return Path(path)
    try:
        with open(path, "rb") as file:
            line, second = file.readline(500), file.readline(500)
    except OSError:
        return None
    words = line[2:].split() if line.startswith(b"#!") else []
    if words and os.path.basename(words[0]) == b"env":
        named = next((os.fsdecode(word) for word in words[1:] if b"python" in word), None)
        resolved = shutil.which(named, path=env.get("PATH")) if named else None
        return Path(resolved) if resolved else None
    if second.startswith(b"'''exec' "):  # installers write it where the path is too long for a first line
        words = [word.strip(b"\"'") for word in second.split()[1:]]
    return Path(os.fsdecode(words[0])) if words and b"python" in os.path.basename(words[0]) else None


def import_folders(python: Path, env: Mapping[str, str]) -> list[str]:
    """Where its imports are found: PYTHONPATH, then its packages, then folders that their `.pth` files add (editable installs)."""
    own = site_packages(python)
    more = [line for folder in own for file in sorted(Path(folder).glob("*.pth"))[:_MOST_PTH] for line in _lines(file)]
    added = [line for line in more if os.path.isabs(line) and os.path.isdir(line)]
    given = [folder for folder in env.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(folder)]
    return list(dict.fromkeys((*given, *own, *added)))


def _lines(file: Path) -> list[str]:
    try:
        with open(file, encoding="utf8", errors="replace") as text:
            return [line.strip() for line in text.read(1 << 14).splitlines() if not line.startswith(("import", "#"))]
    except OSError:
        return []


def site_packages(python: Path) -> list[str]:
    """Of a virtual environment where it is one (a symlink must not be followed), else of the installation itself."""
    own = sorted(map(str, python.parent.parent.glob("lib*/python3*/*-packages")))
    real = python.resolve().parent.parent
    base = sorted(map(str, real.glob("lib*/python3*/*-packages"))) if not own else []
    return [*own, *base][:_MOST]


def _version(package: str, folder: str) -> str | None:
    try:
        for found in distributions(name=package, path=[folder]):
            return str(found.metadata["Version"])
    except (OSError, ValueError, KeyError):
        return None
    return None


if __name__ == "__main__":
    print(json.dumps(versions(**json.loads(sys.argv[1]))))
