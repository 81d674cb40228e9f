"""Which engine a command, a container image, a process title or a log line names, by the patterns of the profiles."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from posixpath import basename

from firsttoken.knowledge.profile import Profile, compiled


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """An engine's own start: `args` are what stands behind the program's words or the module."""

    profile: Profile
    args: tuple[str, ...]
    program: tuple[str, ...] = ()
    module: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Python:
    """A call of a Python interpreter: exactly one of `module` and `script` is set, or neither (`-c`, nothing to run)."""

    module: str | None
    script: str | None
    args: tuple[str, ...]


def start(argv: Sequence[str], profiles: Mapping[str, Profile]) -> Start | None:
    """The engine that this very command starts, no wrapper in between."""
    python = read_python(argv)
    if python is None:
        return _program(argv, profiles)
    if python.module is not None:
        for profile in profiles.values():
            if python.module in profile.recognise.modules or any(rule.when.module == python.module for rule in profile.roles):
                return Start(profile=profile, args=_behind_words(python.args, profile), module=python.module)
    return _program((python.script, *python.args), profiles) if python.script is not None else None


def by_image(repository: str, profiles: Mapping[str, Profile]) -> Profile | None:
    """The engine that is the entry point of a container image."""
    return _first(profiles, lambda profile: profile.recognise.images, (repository,))


def by_output(profiles: Mapping[str, Profile], *, titles: Iterable[str] = (), lines: Iterable[str] = ()) -> str | None:
    """The engine that titles of processes or lines of a log name; lines are searched in the order given, the first that names one wins."""
    found = _first(profiles, lambda profile: profile.recognise.titles, titles)
    found = found or _first(profiles, lambda profile: profile.recognise.lines, lines)
    return found.name if found is not None else None


def read_python(argv: Sequence[str]) -> Python | None:
    """The parts of a call of a Python interpreter; None where it is none."""
    if not argv or _PYTHON.fullmatch(basename(argv[0])) is None:
        return None
    at = 1
    while at < len(argv) and argv[at].startswith("-") and argv[at] != "-":
        word, following = argv[at], argv[at + 1 : at + 2]
        cluster = re.fullmatch(r"-([A-Za-z]*?)([mcWX])(.*)", word, re.S)
        if cluster is None:
            at += 2 if word == "--check-hash-based-pycs" else 1
            continue
        attached = cluster[3]
        at += 1 if attached else 2
        if cluster[2] == "m":
            module = attached or (following[0] if following else None)
            return Python(module=module, script=None, args=tuple(argv[at:]))
        if cluster[2] == "c":
            return Python(module=None, script=None, args=tuple(argv[at:]))
    script = argv[at] if at < len(argv) else None
    return Python(module=None, script=script, args=tuple(argv[at + 1 :]))


_PYTHON = re.compile(r"(?:python|pypy)(?:\d+(?:\.\d+)*)?t?(?:\.exe)?|python-?dbg")


def _program(argv: Sequence[str], profiles: Mapping[str, Profile]) -> Start | None:
    if not argv:
        return None
    name = basename(argv[0])
    best: Start | None = None
    for profile in profiles.values():
        for words in (*profile.recognise.programs, *(rule.when.program for rule in profile.roles if rule.when.program)):
            fits = words[:1] == (name,) and tuple(argv[1 : len(words)]) == words[1:]
            if fits and (best is None or len(words) > len(best.program)):
                best = Start(profile=profile, args=tuple(argv[len(words) :]), program=words)
        if best is None and any(compiled(script).search(argv[0]) for script in profile.recognise.scripts):
            best = Start(profile=profile, args=tuple(argv[1:]))
    return best


def _behind_words(args: tuple[str, ...], profile: Profile) -> tuple[str, ...]:
    """A package's own main module takes the words of its program: `python -m engine.main serve …`."""
    for words in profile.recognise.programs:
        if len(words) > 1 and args[: len(words) - 1] == words[1:]:
            return args[len(words) - 1 :]
    return args


def _first(profiles: Mapping[str, Profile], patterns: Callable[[Profile], tuple[str, ...]], texts: Iterable[str]) -> Profile | None:
    for text in texts:
        for profile in profiles.values():
            if any(compiled(pattern).search(text) for pattern in patterns(profile)):
                return profile
    return None
