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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from firsttoken.history.runs import runs
from firsttoken.history.times import mean_phases
from firsttoken.model.checks import Check, CheckReport, MemoryNeeds, Outcome, Part, fail, skipped, warn
from firsttoken.model.redact import mask_argv
from firsttoken.model.words import Phase
from firsttoken.plan.rules import WEIGHT_RATE
from firsttoken.plan.world import World
from firsttoken.session.checking import facts
from firsttoken.session.checking.places import Place, ask_mounts, in_the_way, on_far_mounts
from firsttoken.session.checking.subject import Subject, Wanted
from firsttoken.session.planning import local_world, working_folder
from firsttoken.survey import build_checks, gpu_checks, limit_checks, memory_checks, network_checks
from firsttoken.survey.asked import Asked
from firsttoken.survey.checkpoint import Checkpoint, read_checkpoint
from firsttoken.survey.draft_checks import draft_checks
from firsttoken.survey.gpus import device_files
from firsttoken.survey.memory_checks import Estimate
from firsttoken.survey.model_config import ModelShape, read_shape
from firsttoken.survey.mounts import Mount
from firsttoken.survey.safetensors import Fault
from firsttoken.survey.weight_checks import known_dtype, weight_checks

_ASKED_AGAIN, _LEFT_AFTER = 5.0, 1.0
"""seconds that parts may take before mounts are asked again, and after one has been found dead"""


def check(argv: Sequence[str], wanted: Wanted | None = None, *, world: World | None = None) -> CheckReport:
    """All checks of a command, as this machine is now. Takes no longer than the patience of its parts."""
    began = time.monotonic()
    wanted = wanted or Wanted()
    made: list[_Bench] = []
    reading = threading.Thread(
        target=lambda: made.append(_Bench(Subject(argv, world or local_world(dict(os.environ), working_folder()), wanted))), daemon=True
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
    """The parts of one command's checks, side by side."""

    def __init__(self, subject: Subject) -> None:
        self.of, self.wanted, self.plan = subject, subject.wanted, subject.plan
        self.estimate: Estimate | None = None
        self._model: tuple[Checkpoint, ModelShape] | None = None
        self._seen_model = threading.Event()

    @property
    def asked(self) -> Asked:
        """Without what lies on silent mounts, once these were asked."""
        return self.of.asked

    def run(self, until: float) -> list[Check]:
        """`until`: by the monotonic clock, when whoever has not answered is left."""
        places = self.of.ask_mounts(until)
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

    # ---------------------------------------------------------------- parts

    def _program(self) -> Iterator[Check]:
        elsewhere = bool(self.wanted.capabilities) or self.wanted.gpu_memory is not None
        for name, path in self.of.programs():
            if self.of.is_silent(self.of.world.path(name)) or (self.of.silent and "/" not in name):
                return  # told with its mount, or it may be in a folder that cannot be looked into
            if shutil.which(name, path=path) is not None:
                continue
            remedy = "install it, activate its environment, or write its whole path"
            why = "there is no such program that may be run" if "/" in name else "no such program is on the PATH"
            if "=" in name and name.partition("=")[0].isidentifier():
                why, remedy = "it is a variable, not a program", "put `env` in front of it"
            price = "on this machine the launch ends with 127, or with 126 where it may not be run"
            yield (warn if elsewhere else fail)(Part.MACHINE, "program-not-found", f"{name}: {why}", remedy, price)
            return

    def _kernels(self) -> Iterator[Check]:
        from firsttoken.session.kernels import kernel_checks  # reads libraries: not needed by the quick checks

        if self.of.silent and self.of.python() is None:
            yield skipped(Part.KERNELS, "kernel-missing-sm", "the engine's environment lies on a mount that does not answer")
            return
        if self.of.uses_cpu():
            yield skipped(Part.KERNELS, "kernel-missing-sm", "the engine runs on the CPU")
            return
        gpus = None if self.wanted.capabilities else self.of.wait_gpus()
        yield from kernel_checks(self.of.argv, self.of.world, self.plan, wanted=self.wanted.capabilities, gpus=gpus)

    def _weights(self) -> Iterator[Check]:
        try:
            yield from self._weights_and_hub()
        finally:
            self._seen_model.set()

    def _weights_and_hub(self) -> Iterator[Check]:
        yield from known_dtype(self.asked)
        model = self.plan.model
        if model is None:
            return
        if not self.plan.weight_files:
            yield skipped(Part.WEIGHTS, "weights-corrupt", f"where {model} lies cannot be seen from this machine")
            return
        path = self.plan.weight_files[0]
        if self.of.is_silent(path):
            return
        seen = read_checkpoint(path)
        named = _is_hub_name(model, self.of.inner)
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

    def _draft_model(self) -> tuple[Checkpoint, ModelShape] | str | None:
        """The draft, its name where it is not there, None where none is asked for (or the hub has it, or its mount does not answer)."""
        name, path = self.asked.text("draft_model"), self.of.draft_path()
        if name is None or (path is not None and self.of.is_silent(path)):
            return None
        seen = read_checkpoint(path) if path is not None else None
        if seen is None or (seen.kind is None and seen.config is None):
            return None if path is None or _is_hub_name(name, self.of.inner) else name
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
        cpu = self.of.uses_cpu()
        if found is not None and not cpu and (not self.wanted.quick or self.wanted.gpu_memory is not None):
            found, checks = memory_checks.on_gpus(self.asked, found, self.of.wait_gpus(), self.wanted.gpu_memory)
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
        mount = self.of.mount(self.plan.weight_files[0])
        if mount is not None and mount.here:
            self._seen_model.wait(self.wanted.patience)
            files = self._model[0].files if self._model is not None else ()
            mount = self.of.mount(files[0][0]) if files else mount
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
        wanted_ports = self.of.ports()
        held = facts.taken(procfs, [port for _, _, port in wanted_ports], without=self.wanted.without())
        yield from network_checks.ports(wanted_ports, held)
        yield from network_checks.hosts_file(asked, root)
        yield from network_checks.interfaces(asked, root, addresses=facts.own_addresses())
        yield from limit_checks.shared_memory(asked, root, room=facts.room_of)
        rdma = os.path.isdir(os.path.join(root, "sys/class/infiniband")) and bool(os.listdir(os.path.join(root, "sys/class/infiniband")))
        yield from limit_checks.limits(asked, root, os.getpid(), pids_room=facts.pids_room(procfs, root), rdma=rdma)
        yield from limit_checks.processors(asked, usable=len(os.sched_getaffinity(0)), quota=facts.cpu_quota(procfs, root))
        yield from limit_checks.temporary_folder(asked)
        caches = self.of.caches()
        jit = [(cache, folder) for cache, folder in caches if cache.jit]
        yield from build_checks.locks(
            caches, facts.held_locks(procfs, [folder for _, folder in caches]), lambda path: facts.who_has_open(procfs, path)
        )
        yield from build_checks.cache_folders(jit, self.wanted.far.mount)
        written = {"temporary files": asked.env.get("TMPDIR") or "/tmp", **{cache.name: folder for cache, folder in jit}}
        heard = {name: folder for name, folder in written.items() if not self.of.is_silent(folder)}
        yield from limit_checks.disk(facts.one_a_disk(heard), room=facts.room_of)
        if not self.of.eager():
            gpu = bool(device_files(root)) and not self.of.uses_cpu()
            yield from build_checks.tools(asked.env, beside=self.of.beside(), gpu=gpu, root=root)
        yield from build_checks.packages(
            asked.rules.packages_alike, self.of.versions([name for group in asked.rules.packages_alike for name in group])
        )

    def _gpu(self) -> Iterator[Check]:
        gpus = self.of.read_gpus()
        if self.wanted.capabilities or self.wanted.gpu_memory is not None or self.plan.contained:
            return  # checked for a machine that is elsewhere
        cpu = self.of.uses_cpu()
        pids = {user.pid for user in gpus.users}
        titles = {pid: facts.titled(self.wanted.procfs, pid) for pid in pids if self.wanted.procfs.stat(pid) is not None}
        found = gpu_checks.gpu_checks(self.asked, gpus, cpu=cpu, root=self.wanted.root, titles=titles, cuda=self.of.cuda())
        yield from (one for one in found if not (self.wanted.quick and one.result is Outcome.NOT_CHECKED))


def _join(threads: Iterable[threading.Thread], until: float) -> None:
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))


def _late(part: Part, what: str, patience: float, far: str = "") -> Check:
    """`far`: what of the command lies on mounts that may have died meanwhile."""
    fact = f"{what}: no answer within {patience:.0f} s; a mount or a driver may be dead" + (f" ({far})" if far else "")
    return warn(part, "not-answered", fact, "try it by hand: `stat`, `df`, nvidia-smi", "the start waits at the same place")


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
