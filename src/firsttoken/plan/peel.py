"""Peels a command down to the one that serves: assignments, launchers, shells, scripts and containers that stand in front of it.

Each step replaces the command and the world that it sees. A script or `-c` string is entered only where exactly one of its commands is
known, or where it holds a single command at all; in doubt the command stays as it is, and processes and log tell later what runs.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from posixpath import basename

from firsttoken.knowledge.profile import Profile
from firsttoken.plan import container as containers
from firsttoken.plan import recognise, shell
from firsttoken.plan.container import Container, env_file
from firsttoken.plan.launchers import LAUNCHERS, SHELL_VALUES, SHELLS, TALKERS, Launcher, read_options
from firsttoken.plan.world import UNKNOWN, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Peeled:
    """`argv`: the innermost command and `world`, what it sees. `start`: the engine that it starts, if one is known. `wrapper`: the
    container client, shell or remote launcher around it. `far`: it runs on another machine or behind a daemon, where its flags and files
    say nothing about this one. `sealed`: nothing can be peeled off any more. `entered`: the shell texts that were gone into."""

    argv: tuple[str, ...]
    world: World
    start: recognise.Start | None = None
    wrapper: str | None = None
    container: Container | None = None
    far: bool = False
    sealed: bool = False
    version: str | None = None
    not_read: tuple[str, ...] = ()
    entered: tuple[str, ...] = ()


def peel(argv: Sequence[str], world: World, profiles: Mapping[str, Profile]) -> Peeled:
    """Never raises, whatever the command."""
    return _peel(Peeled(argv=tuple(argv), world=world), profiles)


_LAYERS = 16
_NESTED = 4  # scripts within scripts
_COMMANDS = 100  # of one script that are looked at
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.S)
_VERSION = re.compile(r"[=@]=?v?(\d+(?:\.\d+)+\S*)$")


def _peel(peeled: Peeled, profiles: Mapping[str, Profile]) -> Peeled:
    for _ in range(_LAYERS):
        inner = _layer(peeled, profiles)
        if inner is None:
            break
        peeled = inner
        if peeled.start is not None or peeled.sealed:
            break
    return peeled


def _layer(peeled: Peeled, profiles: Mapping[str, Profile]) -> Peeled | None:
    """The command one layer further in; None where there is none."""
    argv, world = list(peeled.argv), peeled.world
    env = dict(world.env)
    while argv and (assignment := _ASSIGNMENT.fullmatch(argv[0])):
        env[assignment[1]] = assignment[2]
        argv = argv[1:]
    if len(argv) < len(peeled.argv):
        return replace(peeled, argv=tuple(argv), world=replace(world, env=env))
    if not argv:
        return None
    start = recognise.start(argv, profiles)
    if start is not None:
        return replace(peeled, start=start)
    name = basename(argv[0])
    if name in containers.CLIENTS:
        return _container(peeled, argv, profiles)
    if name in SHELLS:
        return _shell(peeled, argv, profiles)
    for launcher in LAUNCHERS.get(name, ()):
        if tuple(argv[1 : 1 + len(launcher.words)]) == launcher.words:
            return _launched(peeled, argv, launcher)
    return _script(peeled, argv, profiles) or _passed_by(peeled, argv, profiles)


def _launched(peeled: Peeled, argv: list[str], launcher: Launcher) -> Peeled | None:
    if launcher.far:
        return replace(peeled, wrapper=basename(argv[0]), far=True, sealed=True)
    argv = _unsplit(argv) if launcher.splits else argv
    given, at = read_options(argv, 1 + len(launcher.words), lambda name: name in launcher.values)
    world = peeled.world
    env = dict(world.env)
    module: tuple[str, ...] = ()
    version = peeled.version
    rest = argv[at:]
    for name, value in given:
        if name in launcher.clears:
            env = {}
        elif name in launcher.unsets and value:
            env.pop(value, None)
        elif name in launcher.folder and value:
            world = replace(world, cwd=world.path(value))
        elif name in launcher.env_file and value:
            env |= env_file(world.read_text(world.path(value)) or "")
        elif name in launcher.module:
            module = ("python", "-m")
        elif name in ("with", "from") and value and (found := _VERSION.search(value)):
            version = found[1]
    while launcher.assigns and rest and (assignment := _ASSIGNMENT.fullmatch(rest[0])):
        env[assignment[1]] = assignment[2]
        rest = rest[1:]
    if not launcher.optional or (rest and rest[0].lstrip("-").isdecimal()):
        rest = rest[launcher.positionals :]
    if rest and not module and basename(rest[0]).endswith(".py") and basename(argv[0]) == "uv":
        module = ("python",)
    return replace(peeled, argv=(*module, *rest), world=replace(world, env=env), version=version) if rest else None


def _unsplit(argv: list[str]) -> list[str]:
    """`env -S 'A=b program …' more` with the words of the string in its place."""
    for at, word in enumerate(argv[1:], start=1):
        found = re.fullmatch(r"-[A-Za-z0]*S(.*)|--split-string(?:=(.*))?", word, re.S)
        if found is not None:
            attached = found[1] or found[2]
            text, rest = (attached, argv[at + 1 :]) if attached else (" ".join(argv[at + 1 : at + 2]), argv[at + 2 :])
            words = shell.commands(text, {})
            assigned = [f"{key}={value}" for key, value in words[0].env.items()] if words else []
            return [*argv[:at], *assigned, *(words[0].argv if words else ()), *rest]
        if not word.startswith("-"):
            break
    return argv


def _container(peeled: Peeled, argv: list[str], profiles: Mapping[str, Profile]) -> Peeled | None:
    entered = containers.enter(argv, peeled.world)
    if entered is None:
        # `docker compose run SERVICE …`: what the service publishes stands in a file that is not read
        peeled = replace(peeled, wrapper=basename(argv[0]), container=Container(client=basename(argv[0])))
        return _passed_by(peeled, argv, profiles) or replace(peeled, far=True, sealed=True)
    container, inside, world = entered
    profile = recognise.by_image(container.repository, profiles) if container.entrypoint is None and container.image else None
    own = profile.recognise.programs[0] if profile is not None and profile.recognise.programs else ()
    if own and not (inside and (recognise.read_python(inside) or basename(inside[0]) in SHELLS or recognise.start(inside, profiles))):
        # the entry point is the program; some images have its first word only, and the command brings the rest
        inside = (*own[:1], *inside) if inside[: len(own) - 1] == own[1:] else (*own, *inside)
    tagged = re.match(r"v?(\d+\.\d+(?:\.\d+)?[\w.]*)", container.tag or "")
    return replace(
        peeled,
        argv=inside,
        world=world,
        wrapper=container.client,
        container=container,
        version=tagged[1] if tagged else peeled.version,
    )


def _shell(peeled: Peeled, argv: list[str], profiles: Mapping[str, Profile]) -> Peeled | None:
    given, at = read_options(argv, 1, lambda name: name in SHELL_VALUES)
    rest = argv[at:]
    if not rest or any(name == "s" for name, _ in given):
        return None
    if any(name == "c" for name, _ in given):
        return _entered(peeled, rest[0], rest[1:] or [argv[0]], basename(argv[0]), profiles)
    text = peeled.world.read_text(peeled.world.path(rest[0]))
    if text is None:
        note = f"script {rest[0]}: not readable"
        return replace(peeled, wrapper=peeled.wrapper or basename(argv[0]), sealed=True, not_read=(*peeled.not_read, note))
    return _entered(peeled, text, rest, basename(argv[0]), profiles)


def _script(peeled: Peeled, argv: list[str], profiles: Mapping[str, Profile]) -> Peeled | None:
    """A shell script that is started by its own name."""
    if "/" not in argv[0]:
        return None
    text = peeled.world.read_text(peeled.world.path(argv[0]))
    first = re.match(r"#!\s*(\S+)(?:[ \t]+(\S+))?", text) if text else None
    if text is None or first is None or not SHELLS & {basename(first[1]), basename(first[2] or "")}:
        return None
    return _entered(peeled, text, argv, basename(argv[0]), profiles)


def _entered(peeled: Peeled, text: str, args: Sequence[str], wrapper: str, profiles: Mapping[str, Profile]) -> Peeled | None:
    """The one command of a shell text that serves; the shell itself, marked as `far`, where it cannot be told which."""
    world = peeled.world
    peeled = replace(peeled, wrapper=peeled.wrapper or wrapper)
    if text in peeled.entered or len(peeled.entered) >= _NESTED:
        return replace(peeled, sealed=True)
    found = shell.commands(text, world.env, args, lambda path: world.read_text(world.path(path)))
    inner = [
        _peel(replace(peeled, argv=command.argv, world=_moved(world, command), entered=(*peeled.entered, text)), profiles)
        for command in found[:_COMMANDS]
        if UNKNOWN not in command.argv[0]
    ]
    serving = [one for one in inner if one.start is not None] or (inner if len(found) == 1 else [])
    if len({one.argv for one in serving}) == 1:
        return serving[0]
    return replace(peeled, sealed=True)


def _moved(world: World, command: shell.SimpleCommand) -> World:
    env = {**world.env, **command.env}
    cwd = world.cwd
    for folder in command.folders:
        cwd = UNKNOWN if UNKNOWN in (cwd, folder) or UNKNOWN in folder else replace(world, cwd=cwd).path(folder)
    return replace(world, env=env, cwd=cwd)


def _passed_by(peeled: Peeled, argv: list[str], profiles: Mapping[str, Profile]) -> Peeled | None:
    """A launcher that nobody knows (`srun -N1 …`, `mpirun -n 2 …`, `nsys profile …`): the first known command behind it."""
    if basename(argv[0]) in TALKERS:
        return None
    for at in range(1, len(argv)):
        start = recognise.start(argv[at:], profiles)
        if start is not None:
            return replace(peeled, argv=tuple(argv[at:]), start=start)
    return None
