"""Facts: what attached files show, as named values that rules and the verdict ask for. Pure.

A fact that the files cannot tell is None, which is not the same as false: rules answer "unknown, for want of it".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from firsttoken.explain.apart import collectives_apart
from firsttoken.explain.nccl import communicator_init
from firsttoken.explain.recorded import Value, recorded_facts
from firsttoken.knowledge.signs import Signs
from firsttoken.model.attached import Asked, Attached, GpuLine, ProbeLine, ProcessLine, StackDump
from firsttoken.model.collectives import Comparison, Discord
from firsttoken.model.reading import Reading

BUSY = 20.0
"""per cent of one core over a process's life: more than polling"""
QUIET = 3.0
CONTEXT_ONLY = 1024.0
"""MiB of a card: no more than contexts and NCCL's buffers, however large the card is"""
SPINNING = 95.0
"""per cent of GPU utilisation"""
IDLE_GPU = 10.0
LOW_POWER = 0.45
"""share of what a card may draw: a kernel that only polls stays below"""
_UNKNOWN_CARD_WATTS = 150.0

_SIGNS = {
    "collective": "collective", "rendezvous": "connect", "lock": "lock", "file_read": "read", "compile": "compile", "sleep_retry": "sleep",
    "import": "import", "cuda_sync": "device", "network": "download", "queue": "request_loop", "idle": "request_loop",
}  # fmt: skip
"""what a recorded stack says already, in the words of attached ones"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSeen:
    """One process of the run that is a rank or a worker; `sign`: what its main thread's stack shows."""

    rank: int | None
    process: ProcessLine | None
    stack: StackDump | None
    sign: str | None
    compiling: bool = False
    """it has busy compilers below it"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    attached: Attached
    reading: Reading
    ranks: tuple[RankSeen, ...] = ()
    values: Mapping[str, Value] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Value:
        return self.values.get(name)


def gather(attached: Attached, reading: Reading, signs: Signs) -> Facts:
    processes = attached.processes or ()
    compilers = [process for process in processes if signs.of_title(process.title) == "compiler"]
    ranks = _ranks(attached, reading, signs, compilers)
    values: dict[str, Value] = {}
    values |= _process_facts(attached, ranks, compilers, signs)
    values |= _gpu_facts(attached.gpus, signs)
    values |= _link_facts(attached.gpus) | _recorder_facts(attached.flight_recorder)
    values |= _probe_facts(attached)
    mains = [seen.stack.threads[0] for seen in ranks if seen.stack is not None and seen.stack.threads]
    values |= recorded_facts(attached, mains, signs.of_title)
    plan = reading.plan
    values |= {
        "engine": plan.engine,
        "wrapper": plan.wrapper,
        "world": float(plan.sizes.world),
        "nodes": float(plan.sizes.nodes),
        "tp": float(plan.sizes.tp),
        "pp": float(plan.sizes.pp),
        "dp": float(plan.sizes.dp),
        "phase": reading.phase.value,
        "claims_ready": reading.claims_ready,
        "idle_s": reading.idle,
        "elapsed_s": reading.now if reading.now is not None else reading.last_t,
        "nccl_complete": communicator_init(reading.log).state,
        "ranks_missing": _ranks_missing(reading),
        "load_slow": _load_slow(reading),
        "load_bar_full": reading.weights.shards is not None and reading.weights.done == reading.weights.shards,
        "cpu_over_cores": _cpu_over_cores(attached, ranks),
        "has_stacks": bool(attached.stacks),
        "has_processes": attached.processes is not None,
        "has_gpus": attached.gpus is not None,
        "recorded": attached.recorded,
    }
    for sign in {sign.sign for sign in signs.frame}:
        shown = [seen for seen in ranks if seen.stack is not None]
        values[f"stack_{sign}"] = any(seen.sign == sign for seen in shown) if shown else None
    stacked = [seen for seen in ranks if seen.sign is not None]
    # a run's own record tells it better (`ranks_apart`): with what each thread waits for
    dumps = {seen.rank: seen.stack.threads[0].frames for seen in ranks if seen.rank is not None and seen.stack and seen.stack.threads}
    values["collectives_apart"] = None if attached.recorded else collectives_apart(dumps, plan.sizes.world // plan.sizes.pp, signs)
    values["stacks_alike"] = len({seen.sign for seen in stacked}) == 1 if len(stacked) > 1 else None
    return Facts(attached=attached, reading=reading, ranks=ranks, values=values)


def _ranks(attached: Attached, reading: Reading, signs: Signs, compilers: list[ProcessLine]) -> tuple[RankSeen, ...]:
    """Ranks by ps and stacks; where nothing names ranks, the processes that are no helpers and not the launcher."""
    processes = {process.pid: process for process in attached.processes or ()}
    stacks: dict[int, StackDump] = {}
    for dump in attached.stacks:
        stacks[dump.pid] = dump
    pids = list(dict.fromkeys((*processes, *stacks)))
    ranked = [pid for pid in pids if pid in reading.rank_of]
    if not ranked:
        inside = {process.pid for process in compilers}
        parents = {process.parent for process in processes.values()}
        ranked = [
            pid
            for pid in pids
            if pid not in inside
            and signs.of_title(processes[pid].title if pid in processes else "") is None
            and (len(pids) == 1 or pid not in parents or pid in stacks)
        ]
    found = []
    for pid in ranked:
        stack = stacks.get(pid)
        main = stack.threads[0] if stack is not None and stack.threads else None
        own = [process for process in compilers if _below(process, pid, processes)]
        below = any(not _waits_for_work(process) for process in own)
        sign = (_SIGNS.get(main.doing or "") or signs.of_frames(main.frames)) if main is not None else None
        if sign == "compile" and own and not below and pid in processes and (processes[pid].cpu or 0) < QUIET:
            sign = None  # it waits for its pool, and there nobody compiles
        found.append(
            RankSeen(
                rank=reading.rank_of.get(pid),
                process=processes.get(pid),
                stack=stack,
                sign=sign,
                compiling=below,
            )
        )
    return tuple(found)


def _waits_for_work(process: ProcessLine) -> bool:
    """Inductor's pool of compile workers lives as long as its rank, with or without something to compile."""
    pool = "compile_worker" in process.title or "torch/_inductor" in process.title
    return pool and process.state[:1] == "S" and process.cpu is not None and process.cpu < QUIET


def _below(process: ProcessLine, pid: int, processes: Mapping[int, ProcessLine]) -> bool:
    parent, steps = process.parent, 0
    while parent is not None and steps < 20:
        if parent == pid:
            return True
        above = processes.get(parent)
        parent = above.parent if above is not None else None
        steps += 1
    return False


def _process_facts(attached: Attached, ranks: tuple[RankSeen, ...], compilers: list[ProcessLine], signs: Signs) -> dict[str, Value]:
    processes = attached.processes
    names = (
        "compilers_busy", "compilers_alive", "stopped", "zombie", "all_quiet", "ranks_spin", "rank_busy", "disk_wait", "orphans", "defunct",
        "max_cpu", "max_memory", "driver_wait", "fifo_wait",
    )  # fmt: skip
    if processes is None:
        return dict.fromkeys(names)
    own = [process for process in processes if signs.of_title(process.title) is None]
    cpus = [process.cpu for process in own if process.cpu is not None]
    members = [seen.process for seen in ranks if seen.process is not None]
    member_cpus = [process.cpu for process in members if process.cpu is not None]
    return {
        "compilers_alive": bool(compilers),
        "compilers_busy": any(p.state[:1] in ("R", "D") or (p.cpu or 0) >= QUIET for p in compilers),
        "stopped": any(process.state[:1] in ("T", "t") for process in processes),
        "zombie": any(process.state[:1] == "Z" for process in processes),
        "defunct": any("<defunct>" in process.title for process in processes),
        "all_quiet": bool(cpus) and max(cpus) < QUIET,
        "ranks_spin": bool(member_cpus) and min(member_cpus) >= 90.0,
        "rank_busy": bool(member_cpus) and max(member_cpus) >= BUSY,
        "disk_wait": any(process.state[:1] == "D" for process in members or own),
        "driver_wait": any((process.wchan or "").startswith(("os_acquire", "nv_", "nvidia", "uvm_", "rm_")) for process in processes),
        "fifo_wait": any((process.wchan or "").startswith(("wait_for_partner", "fifo_open")) for process in members or own),
        "orphans": any(process.parent == 1 for process in members) and len(members) > 1,
        "max_cpu": max(cpus, default=None),
        "max_memory": max((process.memory for process in own if process.memory is not None), default=None),
    }


def _gpu_facts(gpus: tuple[GpuLine, ...] | None, signs: Signs) -> dict[str, Value]:
    names = (
        "gpu_spin",
        "gpus_idle",
        "gpu_memory_empty",
        "gpu_memory_full",
        "gpu_name",
        "gpu_capability",
        "gpu_high",
        "gpu_memory_share",
        "gpus_uneven",
    )
    if not gpus:
        return dict.fromkeys(names)
    used = [gpu for gpu in gpus if gpu.utilisation is not None]
    spinning = [gpu for gpu in used if (gpu.utilisation or 0) >= SPINNING and _low(gpu, signs) is True]
    taken = [gpu.memory_used for gpu in gpus if gpu.memory_used is not None]
    shares = [gpu.memory_used / gpu.memory_total for gpu in gpus if gpu.memory_used is not None and gpu.memory_total]
    return {
        "gpu_spin": bool(spinning) if used else None,
        "gpu_high": any((gpu.utilisation or 0) >= SPINNING for gpu in used) if used else None,
        "gpus_uneven": any((g.utilisation or 0) >= SPINNING for g in used) and any((g.utilisation or 0) <= IDLE_GPU for g in used),
        "gpus_idle": all((gpu.utilisation or 0) <= IDLE_GPU for gpu in used) if used else None,
        "gpu_memory_empty": max(shares) < 0.05 if shares else max(taken) < CONTEXT_ONLY if len(taken) == len(gpus) else None,
        "gpu_memory_full": min(shares) > 0.85 if shares else None,
        "gpu_memory_share": max(shares) if shares else None,
        "gpu_name": gpus[0].name,
        "gpu_capability": gpus[0].compute_capability,
    }


def _link_facts(gpus: tuple[GpuLine, ...] | None) -> dict[str, Value]:
    """State of the hardware. An idle card lowers its link's generation to save power, never its lanes."""
    told = gpus or ()
    throttled = [gpu.throttled for gpu in told if gpu.throttled is not None]
    lanes = [(gpu.link_width, gpu.link_width_most) for gpu in told if gpu.link_width is not None and gpu.link_width_most is not None]
    speeds = [
        (gpu.link_generation, gpu.link_generation_most)
        for gpu in told
        if gpu.link_generation is not None and gpu.link_generation_most is not None and (gpu.utilisation or 0.0) >= SPINNING
    ]
    xids = sorted({xid for gpu in told for xid in gpu.xids})
    return {
        "gpu_throttled": any(throttled) if throttled else None,
        "gpu_throttle": ", ".join(sorted({reason for reasons in throttled for reason in reasons})) or None,
        "pcie_narrow": any(now < most for now, most in lanes) if lanes else None,
        "pcie_slow": any(now < most for now, most in speeds) if speeds else None,
        "gpu_xid": ", ".join(map(str, xids)) or None,
    }


def _recorder_facts(told: Comparison | None) -> dict[str, Value]:
    """From torch's flight recorder: ranks behind, other operations or sizes than the others', all in one collective without an end."""
    if told is None:
        return dict.fromkeys(("recorder_behind", "recorder_mismatch", "recorder_unfinished"))
    kinds = {one.kind for one in told.disagreements}
    return {
        "recorder_behind": bool(told.behind),
        "recorder_mismatch": bool(kinds & {Discord.MISMATCH, Discord.SIZES, Discord.ORDER}),
        "recorder_unfinished": Discord.UNFINISHED in kinds,
    }


def _low(gpu: GpuLine, signs: Signs) -> bool | None:
    """Whether it draws far less than work would."""
    if gpu.power is None:
        return None
    limit = gpu.power_limit or signs.watts(gpu.name)
    return gpu.power < LOW_POWER * limit if limit else gpu.power < _UNKNOWN_CARD_WATTS


def _probe_facts(attached: Attached) -> dict[str, Value]:
    names = (
        "answered", "unanswered", "server_error", "health_ok", "refused", "loading_503", "slowest_health_s", "first_slower",
        "answers_insane",
    )  # fmt: skip
    probes = attached.probes
    if probes is None or not probes.lines:
        return dict.fromkeys(names)
    generate = [line for line in probes.lines if line.asked is Asked.GENERATE]
    good = [line for line in generate if line.status is not None and 200 <= line.status < 300]
    loading = [line for line in probes.lines if line.status == 503]
    health = [line for line in probes.lines if line.asked is not Asked.GENERATE]
    times = [line.seconds for line in good if line.seconds is not None]
    return {
        "answered": bool(good),
        "unanswered": any(line.timed_out for line in generate),
        "server_error": any(line.status is not None and line.status >= 500 and line.status != 503 for line in generate),
        "health_ok": any(line.status == 200 for line in health) if health else None,
        "refused": any(line.refused for line in probes.lines),
        "loading_503": bool(loading),
        "slowest_health_s": max((line.seconds for line in health if line.status == 200 and line.seconds is not None), default=None),
        "answers_insane": any(line.sane is False for line in good),
        "first_slower": len(times) > 1 and times[0] > 1.5 * min(times[1:]),
    }


_CORES = re.compile(r"nproc[^\n]*\n\s*(\d{1,4})\b|CPU\(s\):\s*(\d{1,4})\b")


def _cpu_over_cores(attached: Attached, ranks: tuple[RankSeen, ...]) -> bool | None:
    """Whether the ranks together use nearly all cores, each of them several. None where the number of cores is not told."""
    match = _CORES.search(attached.probes.text) if attached.probes is not None else None
    cpus = [seen.process.cpu for seen in ranks if seen.process is not None and seen.process.cpu is not None]
    if match is None or not cpus:
        return None
    cores = int(match[1] or match[2])
    return sum(cpus) >= 90.0 * cores and max(cpus) >= 200.0


def _ranks_missing(reading: Reading) -> bool:
    """Whether fewer ranks than the world have ever been seen, by log or by ps."""
    seen = {one.rank for one in reading.told if one.rank is not None} | set(reading.rank_of.values())
    members = max(len(seen), 1)
    return members < reading.plan.sizes.world


def _load_slow(reading: Reading) -> bool:
    """Whether the weight bar moves, and takes long: ten seconds a shard or more, or minutes already without an end."""
    bar = reading.weights
    if bar.shards is None or bar.done is None or bar.done < 2 or bar.done >= bar.shards or bar.seconds is None:
        return False
    return bar.seconds / bar.done >= 10.0 or bar.seconds >= 300.0


def last_generate(facts: Facts) -> ProbeLine | None:
    probes = facts.attached.probes
    generate = [line for line in probes.lines if line.asked is Asked.GENERATE] if probes is not None else []
    return generate[-1] if generate else None
