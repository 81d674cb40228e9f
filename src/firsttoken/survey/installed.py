"""Versions of packages in an engine's own environment, from its metadata on disk: nothing of it is imported or run."""

import os
import shutil
from collections.abc import Iterable, Mapping
from importlib.metadata import distributions
from pathlib import Path

_MOST = 8
"""site-packages folders looked into, at most"""


def versions(program: str, packages: Iterable[str], env: Mapping[str, str], cwd: str = "/") -> dict[str, str]:
    """Those of `packages` (distribution names) that are installed beside `program`; empty where it is no Python.

    `program` is an interpreter, or a script whose first line names one.
    """
    found = _interpreter(program, env, cwd)
    folders = _site_packages(found) if found is not None else []
    told: dict[str, str] = {}
    for package in packages:
        for folder in folders:
            version = _version(package, folder)
            if version is not None:
                told[package] = version
                break
    return told


def _interpreter(program: str, env: Mapping[str, str], cwd: str) -> Path | None:
    path = shutil.which(program, path=env.get("PATH")) if "/" not in program else os.path.join(cwd, program)
    if path is None:
        return None
    if Path(path).name.startswith("python"):
        return Path(path)
    try:
        with open(path, "rb") as file:
            line = file.readline(500)
    except OSError:
        return None
    words = line[2:].split() if line.startswith(b"#!") else []
    return Path(os.fsdecode(words[0])) if words and b"python" in os.path.basename(words[0]) else None


def _site_packages(interpreter: Path) -> list[str]:
    """Of a virtual environment where it is one (a symlink must not be followed), else of the installation itself."""
    own = sorted(map(str, interpreter.parent.parent.glob("lib*/python3*/*-packages")))
    real = interpreter.resolve().parent.parent
    base = sorted(map(str, real.glob("lib*/python3*/*-packages"))) if not own else []
    return [*own, *base][:_MOST]


def _version(package: str, folder: str) -> str | None:
    try:
        for found in distributions(name=package, path=[folder]):
            return str(found.metadata["Version"])
    except (OSError, ValueError, KeyError):
        return None
    return None
