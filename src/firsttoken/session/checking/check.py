"""What a command will meet: its weights, memory and machine, looked at before (or beside) the start. Nothing is launched or imported.

Mounts that the command's files lie on are asked first: one that gives no answer is told by its name, and nothing behind it is looked at.
Each part runs in a thread of its own with a deadline, for what dies later: a part that hangs is told, and the others count. A process with
such a thread in it does not end, so this is for a child (`check_apart`). The quick checks leave out what starts programs or asks the
network, and kernels, whose libraries take long to read for the first time.
"""

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from firsttoken.history.runs import runs
from firsttoken.history.times import mean_phases
from firsttoken.hosts.procfs import Procfs
from firsttoken.knowledge.load import generic, profiles
from firsttoken.knowledge.profile import CacheFolder
from firsttoken.model.checks import Check, CheckReport, MemoryNeeds, Outcome, Part, fail, skipped, warn
from firsttoken.model.gpu_code import Capability
from firsttoken.model.plan import Plan
from firsttoken.model.redact import mask_argv
from firsttoken.model.words import Phase
from firsttoken.plan.make import Command, make_plan, read_command
from firsttoken.plan.rules import WEIGHT_RATE, holds
from firsttoken.plan.weights import weight_files
from firsttoken.plan.world import World
from firsttoken.session.checking import facts
from firsttoken.session.checking.apart import PATIENCE
from firsttoken.session.checking.places import SEARCHED, Place, ask_mounts, in_the_way, on_far_mounts, places_of
from firsttoken.session.far_files import FAR, FarFiles
from firsttoken.session.planning import local_world, working_folder
from firsttoken.survey import build_checks, gpu_checks, limit_checks, memory_checks, network_checks
from firsttoken.survey.asked import Asked
from firsttoken.survey.checkpoint import Checkpoint, read_checkpoint
from firsttoken.survey.draft_checks import draft_checks
from firsttoken.survey.engine_libraries import torch_cuda
from firsttoken.survey.gpus import Gpus, device_files, kernel_driver, read_gpus
from firsttoken.survey.installed import interpreter, site_packages, versions
from firsttoken.survey.memory_checks import Estimate
from firsttoken.survey.model_config import ModelShape, read_shape
from firsttoken.survey.mounts import Mount
from firsttoken.survey.safetensors import Fault
from firsttoken.survey.weight_checks import weight_checks

_ASKED_AGAIN, _LEFT_AFTER = 5.0, 1.0
"""seconds that parts may take before mounts are asked again, and after one has been found dead"""


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


def check(argv: Sequence[str], wanted: Wanted | None = None, *, world: World | None = None) -> CheckReport:
    """All checks of a command, as this machine is now. Takes no longer than the patience of its parts."""
    began = time.monotonic()
    wanted = wanted or Wanted()
    made: list[_Bench] = []
    reading = threading.Thread(
        target=lambda: made.append(_Bench(argv, world or local_world(dict(os.environ), working_folder()), wanted)), daemon=True
    )
    reading.start()
    reading.join(wanted.patience)
    if not made:
        late = _late(Part.MACHINE, "the command's files", wanted.patience)
        return CheckReport(command=mask_argv(argv), checks=(late,), seconds=time.monotonic() - began)
    bench = made[0]
    found = bench.run(began + wanted.patience)
    return CheckReport(
        command=bench.plan.command,
        engine=bench.plan.engine,
        model=bench.plan.model,
        checks=tuple(found),
        memory=_needs(bench.estimate),
        seconds=time.monotonic() - began,
    )


class _Bench:
    """One command, its facts, and its parts side by side."""

    def __init__(self, argv: Sequence[str], world: World, wanted: Wanted) -> None:
        self.argv, self.world, self.wanted = argv, world, wanted
        self.command = read_command(argv, world, profiles())
        self.plan = make_plan(argv, world, profiles())
        self.asked = _asked(self.command, self.plan)
        self.inner = self.command.peeled.world
        self.estimate: Estimate | None = None
        self._gpus: Gpus | None = None
        self._model: tuple[Checkpoint, ModelShape] | None = None
        self._seen_model, self._seen_gpus = threading.Event(), threading.Event()
        self._silent: frozenset[str] = frozenset()

    def run(self, until: float) -> list[Check]:
        """`until`: by the monotonic clock, when whoever has not answered is left."""
        places = self._ask_mounts(until)
        parts: list[tuple[Part, str, Callable[[], Iterator[Check]]]] = [
            (Part.MACHINE, "program", self._program),
            (Part.WEIGHTS, "weights", self._weights),
            (Part.MEMORY, "memory", self._memory),
            (Part.MACHINE, "machine", self._machine),
            (Part.MACHINE, "gpus", self._gpu),
        ]
        if not self.wanted.quick:
            parts.insert(0, (Part.KERNELS, "kernels", self._kernels))
        results: dict[str, list[Check]] = {name: [] for _, name, _ in parts}
        errors: dict[str, str] = {}

        def work(name: str, part: Callable[[], Iterator[Check]]) -> None:
            try:
                for one in part():
                    results[name].append(one)
            except Exception as error:  # a check that fails says so, and the others go on
                errors[name] = f"{type(error).__name__}: {error}"

        threads = {name: threading.Thread(target=work, args=(name, part), daemon=True) for _, name, part in parts}
        for thread in threads.values():
            thread.start()
        died = self._wait(list(threads.values()), places, until)
        found = in_the_way(places, self.wanted.far)
        for part, name, _ in parts:
            found += list(results[name])
            if threads[name].is_alive() and died:
                found.append(skipped(part, "not-answered", f"{name}: not looked at to the end, since a mount died meanwhile"))
            elif threads[name].is_alive():
                found.append(_late(part, name, self.wanted.patience, on_far_mounts(places, self.wanted.far)))
            elif name in errors:
                found.append(skipped(part, "not-answered", f"{name}: {errors[name]}"))
        return found

    def _ask_mounts(self, until: float) -> list[Place]:
        """The command's places; what lies on silent mounts is nobody's any more."""
        far = self.wanted.far
        caches = [(cache.name, folder) for cache, folder in self._caches() if cache.jit]
        places = places_of(self.argv, self.plan, self.command, draft=self._draft_path(), caches=caches)
        ask_mounts(places, far, until)
        self._silent = frozenset(one.mount.point for one in far.silent)
        env = {name: self._without_silent(name, value) for name, value in self.asked.env.items()}
        self.asked = replace(self.asked, env=env)
        self.inner = replace(self.inner, env=env)
        self.world = replace(self.world, env={name: self._without_silent(name, value) for name, value in self.world.env.items()})
        found: list[str | None] = []
        reading = threading.Thread(target=lambda: found.append(self._python()), daemon=True)  # it reads the program's first lines
        reading.start()
        reading.join(max(0.0, min(until - time.monotonic(), _ASKED_AGAIN)))
        places += [Place(what="the interpreter", path=path, needed=True) for path in found if path is not None]
        ask_mounts(places if not found else places[-1:], far, until)
        self._silent = frozenset(one.mount.point for one in far.silent)
        return places

    def _wait(self, threads: Sequence[threading.Thread], places: Sequence[Place], until: float) -> bool:
        """For all of them. What takes long may hang in a mount that answered at first: then it is not waited for any longer, and True."""
        _join(threads, min(until, time.monotonic() + _ASKED_AGAIN))
        if not any(thread.is_alive() for thread in threads):
            return False
        before = self.wanted.far.silent
        ask_mounts(places, self.wanted.far, until)
        died = self.wanted.far.silent != before
        _join(threads, time.monotonic() + _LEFT_AFTER if died else until)
        return died

    def _without_silent(self, name: str, value: str) -> str:
        """Of variables that name folders, those that can be looked into."""
        if name not in SEARCHED or not self._silent:
            return value
        return os.pathsep.join(folder for folder in value.split(os.pathsep) if not self._is_silent(folder))

    def _is_silent(self, path: str) -> bool:
        mount = self.wanted.far.mount(path) if self._silent else None
        return mount is not None and mount.point in self._silent

    # ---------------------------------------------------------------- parts

    def _program(self) -> Iterator[Check]:
        name = self.argv[0]
        if self._is_silent(self.world.path(name)) or (self._silent and "/" not in name):
            return  # told with its mount, or it may be in a folder that cannot be looked into
        if shutil.which(name, path=self.world.env.get("PATH", os.defpath)) is None:
            remedy = "install it, activate its environment, or write its whole path"
            yield warn(
                Part.MACHINE,
                "program-not-found",
                f"{name}: no such program is on the PATH",
                remedy,
                "on this machine the launch ends with 127",
            )

    def _kernels(self) -> Iterator[Check]:
        from firsttoken.session.kernels import kernel_checks  # reads libraries: not needed by the quick checks

        if self._silent and self._python() is None:
            yield skipped(Part.KERNELS, "kernel-missing-sm", "the engine's environment lies on a mount that does not answer")
            return
        gpus = None if self.wanted.capabilities else self._wait_gpus()
        yield from kernel_checks(self.argv, self.world, self.plan, wanted=self.wanted.capabilities, gpus=gpus)

    def _weights(self) -> Iterator[Check]:
        try:
            yield from self._weights_and_hub()
        finally:
            self._seen_model.set()

    def _weights_and_hub(self) -> Iterator[Check]:
        model = self.plan.model
        if model is None:
            return
        if not self.plan.weight_files:
            yield skipped(Part.WEIGHTS, "weights-corrupt", f"where {model} lies cannot be seen from this machine")
            return
        path = self.plan.weight_files[0]
        if self._is_silent(path):
            return
        seen = read_checkpoint(path)
        named = _is_hub_name(model, self.inner)
        if seen is None and not named:
            fact = f"{path} is not there"
            yield fail(
                Part.WEIGHTS, "weights-corrupt", fact, "the path of the model", "the start ends at once, or asks the hub for that name"
            )
            return
        absent = seen is None or (seen.kind is None and seen.config is None)
        partly = seen is not None and bool(seen.broken) and all(broken.fault is Fault.MISSING for broken in seen.broken)
        if named and (absent or partly):
            reach, endpoint = (None, "the hub") if self.wanted.quick else facts.hub_answers(self.asked.env)
            yield from network_checks.hub(self.asked, needed=True, reach=reach, endpoint=endpoint)
        if seen is None or (absent and named):
            return
        if absent:  # a folder of this machine, and no model in it
            yield from weight_checks(self.asked, seen, ModelShape())
            return
        shape = read_shape(seen.config) if seen.config is not None else ModelShape()
        self._model = (seen, shape)
        self._seen_model.set()
        yield from weight_checks(self.asked, replace(seen, broken=()) if named and partly else seen, shape)
        yield from self._draft(shape)

    def _draft(self, target: ModelShape) -> Iterator[Check]:
        drafted = self._draft_model()
        if drafted is None:
            return
        if isinstance(drafted, str):
            yield fail(Part.WEIGHTS, "spec-draft-mismatch", f"the draft model {drafted} is not there", "its path", "the start ends")
            return
        yield from draft_checks(self.asked, target, *drafted)

    def _draft_path(self) -> str | None:
        name = self.asked.text("draft_model")
        return next(iter(weight_files(name, self.command.read, self.inner)), None) if name is not None else None

    def _draft_model(self) -> tuple[Checkpoint, ModelShape] | str | None:
        """The draft, its name where it is not there, None where none is asked for (or the hub has it, or its mount does not answer)."""
        name, path = self.asked.text("draft_model"), self._draft_path()
        if name is None or (path is not None and self._is_silent(path)):
            return None
        seen = read_checkpoint(path) if path is not None else None
        if seen is None or (seen.kind is None and seen.config is None):
            return None if path is None or _is_hub_name(name, self.inner) else name
        return seen, read_shape(seen.config) if seen.config is not None else ModelShape()

    def _memory(self) -> Iterator[Check]:
        yield from self._storage()
        self._seen_model.wait(self.wanted.patience)
        found: Estimate | None = None
        files = 0
        if self._model is not None:
            seen, shape = self._model
            files = seen.bytes
        if self._model is not None and seen.kind != "gguf":
            drafted = self._draft_model()
            found = memory_checks.estimate(self.asked, seen, shape, drafted if isinstance(drafted, tuple) else None)
            if found is None:
                why = "pickled weights tell nothing about themselves" if seen.kind == "pickle" else "headers or config.json are not whole"
                yield skipped(Part.MEMORY, "gpu-oom", f"weights by rank are not known: {why}")
        cpu = self._uses_cpu()
        if found is not None and not cpu and (not self.wanted.quick or self.wanted.gpu_memory is not None):
            found, checks = memory_checks.on_gpus(self.asked, found, self._wait_gpus(), self.wanted.gpu_memory)
            yield from checks
        if not self.plan.contained:
            host = facts.host_memory(self.wanted.procfs)
            found, checks = memory_checks.on_host(self.asked, found, host, cpu=cpu, file_bytes=files)
            yield from checks
        self.estimate = found
        if files:
            yield from self._timers(files)

    def _storage(self) -> Iterator[Check]:
        if self.plan.weight_files and not self.plan.contained:
            yield from limit_checks.storage("the model", self.plan.weight_files[0], self._weights_mount(), weights=True)

    def _weights_mount(self) -> Mount | None:
        """By the name of their folder; where that is of this machine by the first file's, which may be a link to somewhere else."""
        mount = self._mount(self.plan.weight_files[0])
        if mount is not None and mount.here:
            self._seen_model.wait(self.wanted.patience)
            files = self._model[0].files if self._model is not None else ()
            mount = self._mount(files[0][0]) if files else mount
        return mount

    def _timers(self, files: int) -> Iterator[Check]:
        """The load's time: what the like took here before, else what shared storage gives where the weights lie on the network."""
        before = mean_phases(self.plan, runs()).get(Phase.WEIGHTS)
        mount = self._weights_mount()
        rate, where = (files / before, "as in earlier runs") if before else (None, "")
        if rate is None and mount is not None and mount.network:
            rate, where = WEIGHT_RATE, "taken for network storage"
        yield from limit_checks.timers(self.asked, load_bytes=files, rate=rate, where=where)

    def _machine(self) -> Iterator[Check]:
        asked, root, procfs = self.asked, self.wanted.root, self.wanted.procfs
        yield from network_checks.proxies(asked.env)
        if self.plan.contained:
            yield skipped(
                Part.MACHINE, "port-in-use", "the server runs in a container: limits, caches and ports inside are not seen from here"
            )
            return
        wanted_ports = self._ports()
        held = facts.taken(procfs, [port for _, _, port in wanted_ports], without=self.wanted.without())
        yield from network_checks.ports(wanted_ports, held)
        yield from network_checks.hosts_file(asked, root)
        yield from network_checks.interfaces(asked, root, addresses=facts.own_addresses())
        yield from limit_checks.shared_memory(asked, root, room=facts.room_of)
        rdma = os.path.isdir(os.path.join(root, "sys/class/infiniband")) and bool(os.listdir(os.path.join(root, "sys/class/infiniband")))
        yield from limit_checks.limits(asked, root, os.getpid(), pids_room=facts.pids_room(procfs, root), rdma=rdma)
        yield from limit_checks.processors(asked, usable=len(os.sched_getaffinity(0)), quota=facts.cpu_quota(procfs, root))
        yield from limit_checks.temporary_folder(asked)
        caches = self._caches()
        jit = [(cache, folder) for cache, folder in caches if cache.jit]
        yield from build_checks.locks(
            caches, facts.held_locks(procfs, [folder for _, folder in caches]), lambda path: facts.who_has_open(procfs, path)
        )
        yield from build_checks.cache_folders(jit, self.wanted.far.mount)
        written = {"temporary files": asked.env.get("TMPDIR") or "/tmp", **{cache.name: folder for cache, folder in jit}}
        heard = {name: folder for name, folder in written.items() if not self._is_silent(folder)}
        yield from limit_checks.disk(facts.one_a_disk(heard), room=facts.room_of)
        if not self._eager():
            gpu = bool(device_files(root)) and not self._uses_cpu()
            yield from build_checks.tools(asked.env, beside=self._beside(), gpu=gpu, root=root)
        yield from build_checks.packages(
            asked.rules.packages_alike, self._versions([name for group in asked.rules.packages_alike for name in group])
        )

    def _gpu(self) -> Iterator[Check]:
        gpus = self._read_gpus()
        if self.wanted.capabilities or self.wanted.gpu_memory is not None or self.plan.contained:
            return  # checked for a machine that is elsewhere
        cpu = self._uses_cpu()
        pids = {user.pid for user in gpus.users}
        titles = {pid: facts.titled(self.wanted.procfs, pid) for pid in pids if self.wanted.procfs.stat(pid) is not None}
        found = gpu_checks.gpu_checks(self.asked, gpus, cpu=cpu, root=self.wanted.root, titles=titles, cuda=self._cuda())
        yield from (one for one in found if not (self.wanted.quick and one.result is Outcome.NOT_CHECKED))

    # ---------------------------------------------------------------- facts

    def _read_gpus(self) -> Gpus:
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

    def _wait_gpus(self) -> Gpus:
        self._seen_gpus.wait(self.wanted.patience)
        return self._gpus or Gpus(problem="the GPUs were not told in time")

    def _uses_cpu(self) -> bool:
        rules = self.asked.rules
        if self.wanted.gpu_memory is not None or self.wanted.capabilities:
            return False  # the question is about a GPU, whatever is installed here
        if not rules.uses_gpu or (self.asked.text("device") or "").startswith("cpu"):
            return True
        return bool(rules.cpu_packages) and bool(self._versions(rules.cpu_packages))

    def _versions(self, packages: Sequence[str]) -> Mapping[str, str]:
        python = self._python() if packages else None
        return versions(python, packages, dict(self.inner.env), self.inner.cwd) if python is not None else {}

    def _python(self) -> str | None:
        """None where there is none, or it lies on a mount that does not answer."""
        program = self.command.peeled.argv[0] if self.command.peeled.argv else ""
        if not program or ("/" in program and self._is_silent(self.inner.path(program))):
            return None
        found = interpreter(program, self.inner.env, self.inner.cwd)
        return str(found) if found is not None and not self._is_silent(str(found)) else None

    def _beside(self) -> str | None:
        python = self._python()
        return os.path.dirname(python) if python is not None else None

    def _cuda(self) -> str | None:
        python = self._python()
        if python is None:
            return None
        found = torch_cuda(site_packages(Path(python)))
        return f"{found[0]}.{found[1]}" if found is not None else None

    def _ports(self) -> list[tuple[str, str | None, int]]:
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
        return [one for one in found if 0 < one[2] < 1 << 16]

    def _caches(self) -> list[tuple[CacheFolder, str]]:
        """Those that can be looked into."""
        known = (*self.asked.rules.caches, *generic().check.caches)
        found = [(cache, folder) for cache in known if (folder := build_checks.place(cache, self.asked.env)) is not None]
        return [(cache, folder) for cache, folder in found if not self._is_silent(os.path.abspath(folder))]

    def _mount(self, path: str) -> Mount | None:
        return self.wanted.far.mount(os.path.abspath(path))

    def _eager(self) -> bool:
        return self.asked.switch("eager") and not device_files(self.wanted.root)


def _join(threads: Iterable[threading.Thread], until: float) -> None:
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))


def _late(part: Part, what: str, patience: float, far: str = "") -> Check:
    """`far`: what of the command lies on mounts that may have died meanwhile."""
    fact = f"{what}: no answer within {patience:.0f} s; a mount or a driver may be dead" + (f" ({far})" if far else "")
    return warn(part, "not-answered", fact, "try it by hand: `stat`, `df`, nvidia-smi", "the start waits at the same place")


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


def _is_hub_name(model: str, world: World) -> bool:
    if model.startswith(("/", "./", "../", "~")) or model.count("/") > 1 or model.endswith(".gguf"):
        return False
    return world.list_folder(world.path(model)) is None


def _needs(found: Estimate | None) -> MemoryNeeds | None:
    if found is None:
        return None
    return MemoryNeeds(
        weights_by_rank=found.weights.by_rank,
        draft=found.draft,
        kv_per_token=found.kv.per_token + sum(size for _, size in found.kv.windows),
        kv_per_sequence=found.kv.per_sequence,
        context=found.context,
        kv_of_context=found.kv.at(found.context) if found.context else None,
        room=found.room,
        longest=found.longest,
        concurrency=found.together,
    )
