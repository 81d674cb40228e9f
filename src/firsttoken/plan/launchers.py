"""Programs that start another one and what stands between their name and it: which options take a value, how many arguments come first.

Data only. Programs that are not here are passed by when the command behind them is one that a profile knows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """`values`: options that take a value, long ones without dashes, one-letter ones as letters. `words`: words that must follow the
    name (`uv run`). `positionals`: arguments before the command; `optional`: there only where it is a number. `assigns`: `A=b` before
    the command sets its environment. `splits`: `-S` holds words of the command. `far`: what it starts runs somewhere else. The other
    sets name options by what they do: change the folder, make the command a Python module, clear the environment or unset a variable,
    name a file of variables."""

    values: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()
    positionals: int = 0
    optional: bool = False
    assigns: bool = False
    folder: frozenset[str] = frozenset()
    module: frozenset[str] = frozenset()
    clears: frozenset[str] = frozenset()
    unsets: frozenset[str] = frozenset()
    splits: bool = False
    env_file: frozenset[str] = frozenset()
    far: bool = False


def _of(values: str = "") -> frozenset[str]:
    return frozenset(values.split())


_UV = _of(
    "extra no-extra group no-group only-group no-editable-package env-file w with with-editable with-requirements package python-platform "
    "index default-index i index-url extra-index-url f find-links index-strategy keyring-provider P upgrade-package upgrade-group "
    "resolution prerelease prerelease-package fork-strategy exclude-newer exclude-newer-package no-sources-package reinstall-package "
    "link-mode C config-setting config-settings-package no-build-isolation-package no-build-package no-binary-package cache-dir "
    "refresh-package p python color allow-insecure-host directory project config-file from c constraints b "
    "build-constraints overrides torch-backend"
)
_CONDA = Launcher(words=("run",), values=_of("n name p prefix cwd r root-prefix e env a attach"), folder=_of("cwd"))
_APPTAINER = Launcher(
    words=("exec",),
    values=_of(
        "B bind env env-file H home pwd cwd W workdir S scratch o overlay network network-args security app dns add-caps "
        "drop-caps mount fusemount hostname no-mount pem-path memory cpus"
    ),
    positionals=1,
    folder=_of("pwd cwd"),
    env_file=_of("env-file"),
)

PLAIN = _of("env nohup setsid unbuffer time nice ionice chrt taskset numactl stdbuf timeout prlimit flock")
"""those that find the program behind them in the PATH that they have themselves"""

LAUNCHERS: Mapping[str, tuple[Launcher, ...]] = {
    "env": (
        Launcher(
            values=_of("u unset C chdir"),
            assigns=True,
            folder=_of("C chdir"),
            clears=_of("i ignore-environment"),
            unsets=_of("u unset"),
            splits=True,
        ),
    ),
    "nohup": (Launcher(),),
    "setsid": (Launcher(),),
    "unbuffer": (Launcher(),),
    "time": (Launcher(values=_of("f format o output")),),
    "nice": (Launcher(values=_of("n adjustment")),),
    "ionice": (Launcher(values=_of("c class n classdata p pid P pgid u uid")),),
    "chrt": (
        Launcher(
            values=_of("T sched-runtime P sched-period D sched-deadline"),
            positionals=1,
            optional=True,
        ),
    ),
    "taskset": (Launcher(positionals=1),),
    "numactl": (
        Launcher(
            values=_of(
                "i interleave w weighted-interleave p preferred P preferred-many C physcpubind N cpunodebind m membind c cpubind "
                "S shm f file o offset length M shmmode I shmid"
            ),
        ),
    ),
    "stdbuf": (Launcher(values=_of("i input o output e error")),),
    "timeout": (Launcher(values=_of("k kill-after s signal"), positionals=1),),
    "prlimit": (Launcher(values=_of("p pid o output")),),
    "unshare": (
        Launcher(
            values=_of("map-user map-group map-users map-groups propagation setgroups R root w wd S setuid G setgid monotonic boottime"),
            folder=_of("w wd"),
        ),
    ),
    "flock": (Launcher(values=_of("w timeout E conflict-exit-code"), positionals=1),),
    "sudo": (
        Launcher(
            values=_of("u user g group h host p prompt C close-from D chdir R chroot r role t type T command-timeout U other-user"),
            assigns=True,
            folder=_of("D chdir"),
        ),
    ),
    "doas": (Launcher(values=_of("u C")),),
    "gosu": (Launcher(positionals=1),),
    "su-exec": (Launcher(positionals=1),),
    "tini": (Launcher(values=_of("p e")),),
    "dumb-init": (Launcher(values=_of("r rewrite")),),
    "uv": (
        Launcher(words=("run",), values=_UV, folder=_of("directory"), module=_of("m module"), env_file=_of("env-file")),
        Launcher(words=("tool", "run"), values=_UV, folder=_of("directory"), env_file=_of("env-file")),
    ),
    "uvx": (Launcher(values=_UV, folder=_of("directory"), env_file=_of("env-file")),),
    "poetry": (Launcher(words=("run",), values=_of("C directory P project")),),
    "pipenv": (Launcher(words=("run",)),),
    "pdm": (Launcher(words=("run",), values=_of("p project")),),
    "rye": (Launcher(words=("run",)),),
    "pixi": (Launcher(words=("run",), values=_of("e environment manifest-path")),),
    "conda": (_CONDA,),
    "mamba": (_CONDA,),
    "micromamba": (_CONDA,),
    "apptainer": (_APPTAINER,),
    "singularity": (_APPTAINER,),
    "systemd-run": (
        Launcher(
            values=_of("u unit p property slice description service-type uid gid nice working-directory E setenv M machine H host"),
            folder=_of("working-directory"),
        ),
    ),
    "ssh": (Launcher(far=True),),
    "kubectl": (Launcher(far=True),),
    "oc": (Launcher(far=True),),
    "docker-compose": (Launcher(far=True),),
}
"""By base name; of several the first whose words fit."""

SHELLS = _of("sh bash dash zsh ksh ash")
SHELL_VALUES = _of("o O rcfile init-file")
TALKERS = _of("echo printf grep rg man which type pgrep pkill pip pip3 cat ls tmux screen")
"""Programs whose arguments may name a server without starting one below them."""


def read_options(argv: Sequence[str], at: int, takes: Callable[[str], bool]) -> tuple[list[tuple[str, str | None]], int]:
    """The options from index `at` on as (name without dashes, value), and the index of the first word that is none. `takes` tells
    whether an option takes a value; one-letter options may stand in one word and may have their value attached."""
    found: list[tuple[str, str | None]] = []
    while at < len(argv):
        word = argv[at]
        if word == "--":
            return found, at + 1
        if not word.startswith("-") or word == "-":
            break
        at += 1
        following = argv[at] if at < len(argv) else None
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            wants = not equals and takes(name)
            found.append((name, value if equals else following if wants else None))
            at += wants
            continue
        for index, letter in enumerate(word[1:], start=2):
            if takes(letter):
                attached = word[index:].removeprefix("=")
                found.append((letter, attached or following))
                at += not attached
                break
            found.append((letter, None))
    return found, min(at, len(argv))
