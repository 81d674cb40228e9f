"""One command, and what is known of it before anything is judged: its plan, its places and their mounts, its engine's own interpreter,
GPUs, ports and caches. What lies on a mount that does not answer is nobody's."""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from firsttoken.hosts.procfs import Procfs
from firsttoken.knowledge.load import generic, profiles
from firsttoken.knowledge.profile import CacheFolder
from firsttoken.model.checks import PATIENCE
from firsttoken.model.gpu_code import Capability
from firsttoken.model.plan import Plan
from firsttoken.plan.launchers import LAUNCHERS, PLAIN
from firsttoken.plan.make import Command, make_plan, read_command
from firsttoken.plan.rules import holds
from firsttoken.plan.weights import weight_files
from firsttoken.plan.world import World
from firsttoken.session.checking.places import SEARCHED, Place, ask_mounts, places_of
from firsttoken.session.far_files import FAR, FarFiles
from firsttoken.survey import build_checks
from firsttoken.survey.asked import Asked
from firsttoken.survey.engine_libraries import torch_cuda
from firsttoken.survey.gpus import Gpus, device_files, kernel_driver, read_gpus
from firsttoken.survey.installed import interpreter, site_packages, versions
from firsttoken.survey.mounts import Mount

_PYTHON_WITHIN = 5.0
"""seconds for the first lines of the program, which name its interpreter"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is checked, and where. `gpu_memory`: bytes of a GPU that is not here; `capabilities`: its compute capability.

    `without`: processes of the server itself, where it runs already. `root`: of /proc, /sys, /dev and /etc."""

    quick: bool = False
    gpu_memory: float | None = None
    capabilities: tuple[Capability, ...] = ()
    without: Callable[[], frozenset[int]] = frozenset
    procfs: Procfs = field(default_factory=Procfs)
    root: str = "/"
    patience: float = PATIENCE
    far: FarFiles = FAR
    nvidia_smi: str = "nvidia-smi"


class Subject:
    """Reading it may block where the command's files lie on a dead mount; `ask_mounts` comes before all other questions."""

    def __init__(self, argv: Sequence[str], world: World, wanted: Wanted) -> None:
        self.argv, self.world, self.wanted = argv, world, wanted
        self.command = read_command(argv, world, profiles())
        self.plan = make_plan(argv, world, profiles())
        self.asked = _asked(self.command, self.plan)
        self.inner = self.command.peeled.world
        self.silent: frozenset[str] = frozenset()
        """points of the mounts that do not answer"""
        self._gpus: Gpus | None = None
        self._seen_gpus = threading.Event()

    def ask_mounts(self, until: float) -> list[Place]:
        """The command's places; what lies on silent mounts is nobody's any more."""
        far = self.wanted.far
        caches = [(cache.name, folder) for cache, folder in self.caches() if cache.jit]
        places = places_of(self.argv, self.plan, self.command, draft=self.draft_path(), caches=caches)
        ask_mounts(places, far, until)
        self.silent = frozenset(one.mount.point for one in far.silent)
        env = {name: self._without_silent(name, value) for name, value in self.asked.env.items()}
        self.asked = replace(self.asked, env=env)
        self.inner = replace(self.inner, env=env)
        self.world = replace(self.world, env={name: self._without_silent(name, value) for name, value in self.world.env.items()})
        found: list[str | None] = []
        reading = threading.Thread(target=lambda: found.append(self.python()), daemon=True)  # it reads the program's first lines
        reading.start()
        reading.join(max(0.0, min(until - time.monotonic(), _PYTHON_WITHIN)))
        places += [Place(what="the interpreter", path=path, needed=True) for path in found if path is not None]
        ask_mounts(places if not found else places[-1:], far, until)
        self.silent = frozenset(one.mount.point for one in far.silent)
        return places

    def _without_silent(self, name: str, value: str) -> str:
        """Of variables that name folders, those that can be looked into."""
        if name not in SEARCHED or not self.silent:
            return value
        return os.pathsep.join(folder for folder in value.split(os.pathsep) if not self.is_silent(folder))

    def is_silent(self, path: str) -> bool:
        mount = self.wanted.far.mount(path) if self.silent else None
        return mount is not None and mount.point in self.silent

    def draft_path(self) -> str | None:
        name = self.asked.text("draft_model")
        return next(iter(weight_files(name, self.command.read, self.inner)), None) if name is not None else None

    def read_gpus(self) -> Gpus:
        try:
            root = self.wanted.root
            if self.wanted.quick:
                self._gpus = Gpus(driver=kernel_driver(root), devices=len(device_files(root)))
            elif self.wanted.gpu_memory is None and not self.wanted.capabilities and self._may_have_gpus():
                self._gpus = read_gpus(root=root, program=self.wanted.nvidia_smi)
            else:
                self._gpus = Gpus(problem="this machine has no NVIDIA driver and no device")
            return self._gpus
        finally:
            self._seen_gpus.set()

    def _may_have_gpus(self) -> bool:
        """A driver, a device, or a program that would know: nothing is started where there is none of them."""
        root = self.wanted.root
        return kernel_driver(root) is not None or bool(device_files(root)) or self.wanted.nvidia_smi != "nvidia-smi"

    def wait_gpus(self) -> Gpus:
        self._seen_gpus.wait(self.wanted.patience)
        return self._gpus or Gpus(problem="the GPUs were not told in time")

    def uses_cpu(self) -> bool:
        rules = self.asked.rules
        if self.wanted.gpu_memory is not None or self.wanted.capabilities:
            return False  # the question is about a GPU, whatever is installed here
        if not rules.uses_gpu or (self.asked.text("device") or "").startswith("cpu"):
            return True
        return bool(rules.cpu_packages) and bool(self.versions(rules.cpu_packages))

    def versions(self, packages: Sequence[str]) -> Mapping[str, str]:
        python = self.python() if packages else None
        return versions(python, packages, dict(self.inner.env), self.inner.cwd) if python is not None else {}

    def python(self) -> str | None:
        """None where there is none, or it lies on a mount that does not answer."""
        program = self.command.peeled.argv[0] if self.command.peeled.argv else ""
        if not program or ("/" in program and self.is_silent(self.inner.path(program))):
            return None
        found = interpreter(program, self.inner.env, self.inner.cwd)
        return str(found) if found is not None and not self.is_silent(str(found)) else None

    def programs(self) -> list[tuple[str, str]]:
        """What is launched, and the program behind wrappers that look for it in their own PATH; each with that PATH."""
        found = [(self.argv[0], self.world.env.get("PATH", os.defpath))]
        inner = self.command.peeled.argv
        ahead = tuple(self.argv[: len(self.argv) - len(inner)])
        wrappers = {os.path.basename(word) for word in ahead} & set(LAUNCHERS)
        if ahead and inner and (*ahead, *inner) == tuple(self.argv) and wrappers <= PLAIN and not self.plan.contained:
            found.append((inner[0], self.inner.env.get("PATH", os.defpath)))
        return found

    def beside(self) -> str | None:
        python = self.python()
        return os.path.dirname(python) if python is not None else None

    def cuda(self) -> str | None:
        python = self.python()
        if python is None:
            return None
        found = torch_cuda(site_packages(Path(python)))
        return f"{found[0]}.{found[1]}" if found is not None else None

    def ports(self) -> list[tuple[str, str | None, int]]:
        endpoint, sizes = self.plan.endpoint, self.plan.sizes
        found: list[tuple[str, str | None, int]] = []
        if endpoint.port and endpoint.unix_socket is None:
            found.append(("HTTP", endpoint.host, endpoint.port))
        if sizes.node_rank:
            return found
        for rule in self.asked.rules.ports:
            base = self.asked.number(rule.field) if rule.field is not None else endpoint.port
            start = self.command.peeled.start
            if base and (not rule.when or any(holds(when, self.command.read, start) for when in rule.when)):
                found.append((rule.name, None, int(base) + rule.offset))
        return found

    def caches(self) -> list[tuple[CacheFolder, str]]:
        """Those that can be looked into."""
        known = (*self.asked.rules.caches, *generic().check.caches)
        found = [(cache, folder) for cache in known if (folder := build_checks.place(cache, self.asked.env)) is not None]
        return [(cache, folder) for cache, folder in found if not self.is_silent(os.path.abspath(folder))]

    def mount(self, path: str) -> Mount | None:
        return self.wanted.far.mount(os.path.abspath(path))

    def eager(self) -> bool:
        return self.asked.switch("eager") and not device_files(self.wanted.root)


def _asked(command: Command, plan: Plan) -> Asked:
    """The values of the command, with those that its speculative settings hold as JSON beside the others."""
    values = dict(command.read.values)
    nested = values.get("speculative")
    if isinstance(nested, Mapping):
        for name, key in (("draft_model", "model"), ("speculative_method", "method")):
            if isinstance(nested.get(key), str):
                values.setdefault(name, str(nested[key]))
    return Asked(
        plan=plan,
        values=values,
        env=command.peeled.world.env,
        rules=command.profile.check,
    )
