"""Room that the kernel grants: shared memory, open files, processes, locked memory, CPUs, disk, and time before a timer fires."""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from firsttoken.model.checks import Check, Part, fail, passed, skipped, warn
from firsttoken.model.plan import Timer
from firsttoken.model.words import Phase
from firsttoken.survey.amounts import gib
from firsttoken.survey.asked import Asked
from firsttoken.survey.mounts import Mount

_fail, _warn = partial(fail, Part.MACHINE), partial(warn, Part.MACHINE)
_pass, _skipped = partial(passed, Part.MACHINE), partial(skipped, Part.MACHINE)
_SHM_LEAST, _SHM_GOOD = 96 << 20, 1 << 30
"""bytes of /dev/shm: Docker's 64 MiB are too few for NCCL and for the engines' rings; NVIDIA's images ask for 1 GiB"""
_FILES_LEAST, _FILES_GOOD = 1024, 8192
"""open files: engines raise their soft limit up to the hard one, to 65535 where they may; a socket a connection and a shard a reader"""
_PROCESSES_A_RANK = 200
"""threads: interpreter, BLAS, gloo, compile workers"""
_ROOM_FOR_CODE = 5 << 30
_UNIX_PATH = 107

Room = Callable[[str], tuple[int, int] | None]
"""of a folder: bytes in all and free for us; None where it cannot be told"""


def shared_memory(asked: Asked, root: str = "/", *, room: Room) -> Iterator[Check]:
    """Ranks of one node exchange through /dev/shm."""
    found = room(os.path.join(root, "dev/shm"))
    ranks = asked.plan.sizes.ranks_here
    if found is None:
        yield _skipped("shm-too-small", "/dev/shm is not there")
        return
    total, free = found
    fact = f"/dev/shm has {gib(free)} of {gib(total)} free"
    remedy = "docker run --shm-size=16g (or --ipc=host); in Kubernetes an emptyDir of medium Memory"
    if ranks > 1 and free < _SHM_LEAST:
        yield _fail(
            "shm-too-small",
            f"{fact}, for {ranks} rank{'s' if ranks > 1 else ''}",
            remedy,
            "NCCL ends with a system error, or a rank with SIGBUS",
        )
    elif ranks > 1 and free < _SHM_GOOD:
        yield _warn("shm-too-small", f"{fact}, for {ranks} rank{'s' if ranks > 1 else ''}", remedy, "a rank may end with SIGBUS under load")
    else:
        yield _pass("shm-too-small", fact)


def limits(asked: Asked, root: str, pid: int, *, pids_room: int | None = None, rdma: bool = False) -> Iterator[Check]:
    """`pid`: whose limits the server inherits. `pids_room`: processes that the cgroup still allows."""
    told = read_limits(root, pid)
    if not told:
        yield _skipped("nofile-limit", f"/proc/{pid}/limits cannot be read")
        return
    hard = told.get("Max open files")
    if hard is not None and hard < _FILES_LEAST:
        yield _fail(
            "nofile-limit",
            f"a process may open {hard} files",
            "ulimit -n 65536; docker run --ulimit nofile=65536",
            "sockets or shards cannot be opened",
        )
    elif hard is not None and hard < _FILES_GOOD:
        remedy = "ulimit -n 65536; docker run --ulimit nofile=65536"
        yield _warn(
            "nofile-limit", f"a process may open {hard} files, each connection takes one", remedy, "connections are refused under load"
        )
    else:
        yield _pass("nofile-limit", f"{hard if hard is not None else 'unlimited'} open files")
    ranks = asked.plan.sizes.ranks_here
    allowed = min((one for one in (told.get("Max processes"), pids_room) if one is not None), default=None)
    if allowed is not None and allowed < _PROCESSES_A_RANK * (ranks + 1):
        fact = f"{allowed} more processes and threads are allowed, {ranks} ranks want about {_PROCESSES_A_RANK * (ranks + 1)}"
        remedy = "ulimit -u unlimited; docker run --pids-limit -1; podPidsLimit"
        yield _warn("pids-limit", fact, remedy, "`can't start new thread` in the midst of the start")
    locked = told.get("Max locked memory")
    if rdma and locked is not None and asked.plan.sizes.nodes > 1:
        remedy = "ulimit -l unlimited; docker run --ulimit memlock=-1"
        yield _fail(
            "memlock-limit",
            f"InfiniBand is here, and only {gib(locked)} may be locked",
            remedy,
            "ranks cannot register memory with the adapter",
        )


def read_limits(root: str, pid: int) -> dict[str, int | None]:
    """Hard limits by name; None is unlimited. Empty where they cannot be read."""
    try:
        lines = (Path(root) / f"proc/{pid}/limits").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    found: dict[str, int | None] = {}
    for line in lines[1:]:
        words = line[26:].split()
        if len(words) >= 2:
            found[line[:26].strip()] = int(words[1]) if words[1].isdecimal() else None
    return found


def processors(asked: Asked, *, usable: int, quota: float | None) -> Iterator[Check]:
    """`quota`: CPUs' worth of time that the cgroup grants."""
    ranks = asked.plan.sizes.ranks_here
    most = min(float(usable), quota) if quota is not None else float(usable)
    if most < ranks:
        name = "cgroup-cpu-throttled" if quota is not None and quota < usable else "cpu-oversubscription"
        fact = f"{most:g} CPUs for {ranks} rank{'s' if ranks > 1 else ''}"
        remedy = "more CPUs for the container, or OMP_NUM_THREADS=1"
        yield _warn(name, fact, remedy, "imports, loading and launches of kernels take several times as long")


def disk(folders: Mapping[str, str], *, room: Room, download: int = 0) -> Iterator[Check]:
    """`folders`: what for → where. `download`: bytes that are still to be fetched into the folder named `weights`."""
    short = False
    for name, folder in folders.items():
        found = room(folder)
        if found is None:
            continue
        _, free = found
        want = download if name == "weights" else _ROOM_FOR_CODE
        if free < 64 << 20 or (name == "weights" and free < want):
            short = True
            yield _fail(
                "disk-full",
                f"{gib(free)} are free for {name} in {folder}",
                f"make room there ({gib(want)})",
                "compiled code or weights cannot be written",
            )
        elif free < want:
            short = True
            yield _warn(
                "disk-full",
                f"{gib(free)} are free for {name} in {folder}",
                f"make room there ({gib(want)})",
                "compilers end in the midst of their work",
            )
    if not short and folders:
        yield _pass("disk-full", "room for compiled code and temporary files")


def temporary_folder(asked: Asked) -> Iterator[Check]:
    """Unix sockets live in it, and their names are short."""
    folder = asked.env.get("TMPDIR") or "/tmp"
    length = len(os.fsencode(folder)) + asked.rules.unix_socket_length
    if asked.rules.unix_socket_length and length > _UNIX_PATH:
        fact = f"TMPDIR is {len(folder)} characters long: the engine's sockets there would have {length} of at most {_UNIX_PATH}"
        yield _fail("ipc-path-too-long", fact, "TMPDIR=/tmp", "the start ends when its first queue is made")


def timers(asked: Asked, *, load_bytes: int, rate: float | None, where: str) -> Iterator[Check]:
    """Engine timers against the time that loading will take. `rate`: bytes a second of the storage, None where nobody knows."""
    if rate is None or not load_bytes:
        return
    seconds = load_bytes / rate
    for timer in asked.plan.timers:
        if timer.phases and Phase.WEIGHTS not in timer.phases:
            continue
        if seconds > timer.seconds:
            fact = (
                f"{gib(load_bytes)} at {rate / 1e6:.0f} MB/s ({where}) take {seconds:.0f} s, {timer.name} fires after {timer.seconds:.0f} s"
            )
            yield _warn(
                _cause(timer), fact, f"raise {timer.name} beyond {2 * seconds:.0f} s", "the engine ends a start that is well under way"
            )


def storage(name: str, path: str, mount: Mount | None, *, weights: bool) -> Iterator[Check]:
    """Whether a folder lies on the network."""
    if mount is None or not mount.network:
        return
    fact = f"{name} ({path}) lies on {mount.kind} ({mount.source})"
    if weights:
        remedy = "read instead of mapping (see the engine's options), or copy the weights to a local disk"
        yield _warn("mmap-network-storage", fact, remedy, "page faults over the network: a tenth of the storage's rate")
    else:
        yield _warn(
            "cache-on-network-storage", fact, "a local folder", "compiling is slow, and locks may outlive their holders on other nodes"
        )


def _cause(timer: Timer) -> str:
    name = timer.name.lower()
    if "load" in name:
        return "load-timer-kills-slow-start"
    return "watchdog-kills-slow-start" if "watchdog" in name or "dist" in name else "ready-timeout-kills-slow-start"
