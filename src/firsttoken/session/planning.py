"""The plan of a command that is about to be launched here, from what this machine holds: environment, config files, earlier runs."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from firsttoken.history.runs import runs
from firsttoken.history.times import mean_phases, with_quiet
from firsttoken.knowledge.load import profiles
from firsttoken.model.plan import Plan
from firsttoken.plan.make import make_plan
from firsttoken.plan.world import World
from firsttoken.session.far_files import FAR, LARGEST_TEXT

OBSERVER = (sys.executable, "-P", "-m", "firsttoken.wiring")
"""The command of an observer, but for its run's folder. It lives in a process of its own, so no face has to load what it is made of;
-P: a file in the user's folder that is named like a module is not taken for it."""


def plan_of(argv: Sequence[str]) -> Plan:
    """With budgets from what the like took before."""
    world = local_world(dict(os.environ), working_folder())
    plan = make_plan(argv, world, profiles())
    history = mean_phases(plan, runs())
    return with_quiet(make_plan(argv, world, profiles(), history=history), runs()) if history else plan


def working_folder() -> str:
    """Ours; one that was deleted has only the name that the kernel still knows, and keeps nobody from launching."""
    try:
        return os.getcwd()
    except OSError:
        try:
            return os.readlink("/proc/self/cwd")
        except OSError:
            return "/"


def local_world(env: Mapping[str, str], cwd: str, *, root: str = "/") -> World:
    """`root`: the folder that the command takes for `/`. Files of a mount that gives no answer are not there."""
    base = root.rstrip("/")
    return World(env=env, cwd=cwd, read_text=lambda path: _read_text(base + path), list_folder=lambda path: _list_folder(base + path))


def _read_text(path: str) -> str | None:
    """A small text file (config, script). What is no file, large or not text is None."""
    if FAR.far(path):
        return FAR.read_text(path)
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > LARGEST_TEXT:
            return None
        return Path(path).read_text(encoding="utf8")
    except (OSError, ValueError):
        return None


def _list_folder(path: str) -> tuple[str, ...] | None:
    if FAR.far(path):
        return FAR.list_folder(path)
    try:
        return tuple(os.listdir(path))
    except OSError:
        return None
