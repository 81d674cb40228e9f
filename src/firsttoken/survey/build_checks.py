"""Compiling at start: the caches it goes to, who holds their locks, and the tools that it needs.

Two kinds of lock: a *baton* is a file whose presence says that somebody builds, and it stays when its owner is killed: whoever comes next
waits for ever. A lock by the kernel (flock) goes with its holder, so only a live one matters, and it can be named.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from firsttoken.knowledge.profile import CacheFolder
from firsttoken.model.checks import Check, Part, fail, passed, skipped, warn
from firsttoken.survey.limit_checks import storage
from firsttoken.survey.mounts import Mount

_fail, _warn = partial(fail, Part.MACHINE), partial(warn, Part.MACHINE)
_pass, _skipped = partial(passed, Part.MACHINE), partial(skipped, Part.MACHINE)
_MOST_BATONS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A lock file that a live process holds."""

    path: str
    holder: str


def place(cache: CacheFolder, env: Mapping[str, str]) -> str | None:
    """Where it lies for a process with this environment; None where it has no home."""
    given = next((env[name] for name in cache.env if env.get(name)), None)
    text = f"{given}/{cache.below}".rstrip("/") if given is not None else cache.default
    text = text.replace("$USER", env.get("USER") or env.get("LOGNAME") or "root")
    if text == "~" or text.startswith("~/"):
        home = env.get("HOME")
        return f"{home}{text[1:]}" if home else None
    return text or None


def locks(folders: Sequence[tuple[CacheFolder, str]], held: Sequence[Held], is_open: Callable[[str], str | None]) -> Iterator[Check]:
    """`folders` with their places; `held`: locks of live processes, wherever they lie; `is_open`: who has a file open."""
    clean = True
    for cache, folder in folders:
        for path in batons(cache, folder):
            clean = False
            if (owner := is_open(path)) is not None:
                fact = f"{path} is held by {owner}, which builds"
                yield _warn("foreign-lock-holder", fact, "wait for that build", "the start waits until it is done")
            else:
                fact = f"{path} says that somebody builds, and no process has it open"
                yield _fail("jit-stale-lock", fact, f"rm {path}", "the start waits for it for ever")
        for one in held:
            if one.path.startswith(folder + "/"):
                clean = False
                fact = f"{one.path} is locked by {one.holder}"
                yield _warn("foreign-lock-holder", fact, "wait for it, or use another cache folder", "the start waits until it is released")
    if clean and folders:
        yield _pass("jit-stale-lock", f"no locks in {len(folders)} caches")


def batons(cache: CacheFolder, folder: str) -> list[str]:
    found: list[str] = []
    for pattern in cache.batons:
        try:
            found += [str(path) for path, _ in zip(Path(folder).glob(pattern), range(_MOST_BATONS), strict=False)]
        except OSError:
            continue
    return sorted(found)


def cache_folders(folders: Sequence[tuple[CacheFolder, str]], mount_of: Callable[[str], Mount | None]) -> Iterator[Check]:
    """Writable, and on a local disk. `mount_of` an absolute path."""
    for cache, folder in folders:
        mount = mount_of(os.path.abspath(folder))
        yield from storage(cache.name, folder, mount, weights=False)
        above = _existing(folder)
        if above is not None and (mount is None or not mount.network) and not os.access(above, os.W_OK | os.X_OK):
            variable = cache.env[0] if cache.env else "HOME"
            fact = f"{cache.name} is to lie in {folder}, where this user may not write"
            yield _warn(
                "cache-dir-not-writable",
                fact,
                f"another folder ({variable})",
                "everything is compiled again at each start, or the start ends",
            )


def tools(env: Mapping[str, str], *, beside: str | None, gpu: bool, root: str = "/") -> Iterator[Check]:
    """Compilers on the server's own PATH. `beside`: the folder of its interpreter, whose programs the engine finds too."""
    path = os.pathsep.join(filter(None, (beside, env.get("PATH", os.defpath))))

    def there(*names: str) -> bool:
        return any(shutil.which(name, path=path) for name in names)

    missing = [] if there(env.get("CC", "gcc").split()[0], "gcc", "cc", "clang") else ["a C compiler (gcc)"]
    if not there(env.get("CXX", "g++").split()[0], "g++", "c++", "clang++"):
        missing.append("a C++ compiler (g++)")
    if gpu:
        missing += [] if there("ninja") else ["ninja"]
        toolkits = [env[name] for name in ("CUDA_HOME", "CUDA_PATH") if env.get(name)] or [os.path.join(root, "usr/local/cuda")]
        missing += [] if there("nvcc") or any(os.path.exists(f"{folder}/bin/nvcc") for folder in toolkits) else ["nvcc (CUDA toolkit)"]
    if missing:
        fact = f"not found: {', '.join(missing)}"
        remedy = "install them, set CUDA_HOME, or use prebuilt kernels (flashinfer-jit-cache)"
        yield _warn("jit-build-failed", fact, remedy, "kernels that must be compiled at start cannot be")
    else:
        yield _pass("jit-build-failed", "compilers found" + (", nvcc and ninja too" if gpu else ""))


def packages(alike: Sequence[Sequence[str]], versions: Mapping[str, str]) -> Iterator[Check]:
    """Distributions that must be of one version."""
    for group in alike:
        found = {name: versions[name] for name in group if name in versions}
        if len({version.split("+")[0] for version in found.values()}) > 1:
            listed = ", ".join(f"{name} {version}" for name, version in found.items())
            yield _fail(
                "dependency-abi-mismatch",
                f"versions differ: {listed}",
                "install the same version of each",
                "the start ends at their import",
            )
        elif len(found) > 1:
            yield _pass("dependency-abi-mismatch", f"{', '.join(found)} agree")


def _existing(folder: str) -> str | None:
    """The folder, or the nearest one above it that is there."""
    path = os.path.abspath(folder)
    while not os.path.isdir(path):
        above = os.path.dirname(path)
        if above == path:
            return None
        path = above
    return path
