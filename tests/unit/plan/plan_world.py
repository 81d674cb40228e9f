"""A world made of a dictionary, and plans in it with the real profiles."""

import shlex
from collections.abc import Mapping, Sequence

from firsttoken.knowledge.load import profiles
from firsttoken.model.plan import Plan
from firsttoken.plan import World, make_plan

PROFILES = profiles()


def world(files: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None, cwd: str = "/srv") -> World:
    """`files`: absolute path → text; their folders exist."""
    texts = dict(files or {})

    def list_folder(path: str) -> tuple[str, ...] | None:
        root = path.rstrip("/") + "/"
        inside = {name[len(root) :].split("/")[0] for name in texts if name.startswith(root)}
        return tuple(sorted(inside)) or None

    return World(env={"HOME": "/home/u", **(env or {})}, cwd=cwd, read_text=texts.get, list_folder=list_folder)


def plan_of(command: str | Sequence[str], files: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None) -> Plan:
    argv = shlex.split(command) if isinstance(command, str) else command
    return make_plan(argv, world(files, env), PROFILES)
