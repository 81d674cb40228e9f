"""The places that a start will go to, and the mounts among them that do not answer: each is asked once, all at the same time."""

import os
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from firsttoken.model.checks import Check, Part, fail, warn
from firsttoken.model.plan import Plan
from firsttoken.plan.make import Command
from firsttoken.session.far_files import ANSWERS_WITHIN, FarFiles, listed

SEARCHED = ("PATH", "PYTHONPATH", "CUDA_HOME", "CUDA_PATH")
"""variables whose folders are looked into"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """`needed`: no start can do without it."""

    what: str
    path: str
    needed: bool = False
    part: Part = Part.MACHINE


def places_of(argv: Sequence[str], plan: Plan, command: Command, *, draft: str | None, caches: Iterable[tuple[str, str]]) -> list[Place]:
    """The most telling first. Of a container only what it is given from this machine."""
    weights = [*(("the model", path) for path in plan.weight_files), *([("the draft model", draft)] if draft is not None else [])]
    found = [Place(what=what, path=path, needed=True, part=Part.WEIGHTS) for what, path in weights]
    if plan.contained:
        return found
    world = command.peeled.world
    programs = dict.fromkeys(world.path(words[0]) for words in (argv, command.peeled.argv) if words and "/" in words[0])
    found += [Place(what="the program", path=path, needed=True) for path in programs]
    found += [Place(what=name, path=os.path.abspath(path), needed=True) for name, path in caches]
    found.append(Place(what="the folder for temporary files", path=os.path.abspath(world.env.get("TMPDIR") or "/tmp"), needed=True))
    found.append(Place(what="the working folder", path=world.cwd))
    for name in SEARCHED:
        folders = world.env.get(name, "").split(os.pathsep)
        found += [Place(what=f"a folder of {name}", path=folder) for folder in folders if os.path.isabs(folder)]
    return found


def ask_mounts(places: Iterable[Place], far: FarFiles, until: float) -> None:
    """`far` knows the silent ones then. `until`: by the monotonic clock."""
    first: dict[str, str] = {}
    for place in places:
        mount = far.mount(place.path)
        if mount is not None and not mount.here:
            first.setdefault(mount.point, place.path)
    asking = [threading.Thread(target=far.silence, args=(path,), daemon=True) for path in first.values()]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(max(0.0, min(until - time.monotonic(), 2 * ANSWERS_WITHIN)))


def in_the_way(places: Sequence[Place], far: FarFiles) -> list[Check]:
    """One for each silent mount, with what of the command lies on it."""
    found = []
    for silence in far.silent:
        here = [place for place in places if (mount := far.mount(place.path)) is not None and mount.point == silence.mount.point]
        part = here[0].part if here else Part.MACHINE
        fact = silence.words(*(_told(here) or ["a file that the command names"]))
        made = fail if not here or any(place.needed for place in here) else warn
        found.append(made(part, "file-never-ready", fact, silence.remedy, silence.price))
    return found


def on_far_mounts(places: Sequence[Place], far: FarFiles) -> str:
    """What of the command lies on mounts that answered once, and may not now."""
    silent = {silence.mount.point for silence in far.silent}
    by_mount: dict[str, list[Place]] = {}
    for place in places:
        mount = far.mount(place.path)
        if mount is not None and not mount.here and mount.point not in silent:
            by_mount.setdefault(mount.words, []).append(place)
    return "; ".join(f"{words} holds {listed(_told(here))}" for words, here in by_mount.items())


def _told(places: Sequence[Place]) -> list[str]:
    return list(dict.fromkeys(f"{place.what} ({place.path})" for place in places))
