"""The NVIDIA GPUs of this machine, asked of `nvidia-smi`: a process of its own, since a wedged driver keeps whoever calls into it.

Without it the kernel's own files tell how many there are and which driver. Everything here takes what was printed and answers values.
"""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

_FIELDS = "index,uuid,name,memory.total,memory.used,memory.free,driver_version,compute_cap,mig.mode.current,pci.bus_id"
_PATIENCE = 8.0
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """Sizes in bytes; None where they were not told. `capability`: `9.0`. `bus`: `0000:3b:00.0`, lower case."""

    index: int
    uuid: str = ""
    name: str = ""
    total: int | None = None
    used: int | None = None
    free: int | None = None
    capability: str | None = None
    mig: bool = False
    bus: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUser:
    """A process that holds memory of a GPU. `used` None: in a container the driver does not say."""

    pid: int
    uuid: str
    used: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """`driver` version of the kernel module. `problem`: why nothing (or less) could be told. `library`: of the user-space part, where
    nvidia-smi complains that it differs. `fabric`: states that the GPUs tell (`Completed`, `In Progress`…) where they are on NVSwitches.
    `links`: rows of the topology matrix between GPUs (`NV18`, `PIX`, `SYS`…)."""

    found: tuple[Gpu, ...] = ()
    driver: str | None = None
    users: tuple[GpuUser, ...] = ()
    problem: str | None = None
    fabric: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    devices: int = 0


def read_gpus(*, root: str = "/", program: str = "nvidia-smi", env: Mapping[str, str] | None = None, details: bool = True) -> Gpus:
    """Three calls at most, each with a deadline. `root`: of /proc and /dev. `details`: fabric and topology too."""
    driver, devices = kernel_driver(root), len(device_files(root))
    said, problem = _ask([program, f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"], env)
    if said is None:
        return Gpus(driver=driver, devices=devices, problem=problem)
    found = parse_gpus(said)
    apps, _ = _ask([program, "--query-compute-apps=pid,gpu_uuid,used_memory", "--format=csv,noheader,nounits"], env)
    gpus = Gpus(found=found, driver=driver or _driver(said), devices=devices, users=parse_users(apps or ""))
    if not details or not found:
        return gpus
    fabric, _ = _ask([program, "-q", "-d", "PERFORMANCE"], env) if not _has_switch(root) else _ask([program, "-q"], env)
    topology, _ = _ask([program, "topo", "-m"], env) if len(found) > 1 else (None, None)
    return replace(gpus, fabric=parse_fabric(fabric or ""), links=parse_topology(topology or ""))


def visible(gpus: Sequence[Gpu], env: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Those that a process with this environment sees, in its order."""
    chosen = env.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return tuple(gpus)
    seen: list[Gpu] = []
    for word in filter(None, (part.strip() for part in chosen.split(","))):
        match = [gpu for gpu in gpus if (word.isdecimal() and gpu.index == int(word)) or (len(word) > 4 and gpu.uuid.startswith(word))]
        if not match:
            break  # the runtime stops at the first that it does not know
        seen += match[:1]
    return tuple(seen)


def kernel_driver(root: str = "/") -> str | None:
    """Version of the loaded kernel module, from /proc/driver/nvidia/version."""
    try:
        text = (Path(root) / "proc/driver/nvidia/version").read_text(encoding="utf8", errors="replace")
    except OSError:
        return None
    words = text.splitlines()[0].split() if text else []
    return next((word for word in words if word[:1].isdigit() and word.count(".") >= 1 and word.replace(".", "").isdigit()), None)


def device_files(root: str = "/") -> tuple[str, ...]:
    try:
        return tuple(sorted(path.name for path in (Path(root) / "dev").iterdir() if path.name[:6] == "nvidia" and path.name[6:].isdigit()))
    except OSError:
        return ()


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    found = []
    for line in text.splitlines():
        row = [cell.strip() for cell in line.split(",")]
        if len(row) < 10 or not row[0].isdecimal():
            continue
        found.append(
            Gpu(
                index=int(row[0]),
                uuid=row[1],
                name=row[2],
                total=_mib(row[3]),
                used=_mib(row[4]),
                free=_mib(row[5]),
                capability=row[7] if row[7].replace(".", "").isdigit() else None,
                mig=row[8].lower() == "enabled",
                bus=row[9].lower()[-12:],
            )
        )
    return tuple(found)


def parse_users(text: str) -> tuple[GpuUser, ...]:
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return tuple(GpuUser(pid=int(row[0]), uuid=row[1], used=_mib(row[2])) for row in rows if len(row) >= 3 and row[0].isdecimal())


def parse_fabric(text: str) -> tuple[str, ...]:
    """`State` of each GPU's `Fabric` section in `nvidia-smi -q`."""
    found, inside = [], False
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if not value.strip():
            inside = name.strip() == "Fabric"
        elif inside and name.strip() == "State":
            found.append(value.strip())
            inside = False
    return tuple(state for state in found if state != "N/A")


def parse_topology(text: str) -> tuple[str, ...]:
    """The words between two GPUs in `nvidia-smi topo -m`, each pair once."""
    rows = [line.split() for line in text.splitlines() if line.startswith("GPU")]
    found = []
    for number, row in enumerate(rows):
        found += [word for word in row[1 : 1 + len(rows)][number + 1 :] if word.isupper() or word[:2] == "NV"]
    return tuple(found)


def _driver(text: str) -> str | None:
    cells = [cell.strip() for cell in text.splitlines()[0].split(",")] if text else []
    return cells[6] if len(cells) > 6 and cells[6][:1].isdigit() else None


def _has_switch(root: str) -> bool:
    return (Path(root) / "proc/driver/nvidia-nvswitch").exists() or (Path(root) / "dev/nvidia-nvswitchctl").exists()


def _mib(text: str) -> int | None:
    try:
        return int(float(text) * _MIB)
    except ValueError:
        return None


def _ask(command: list[str], env: Mapping[str, str] | None) -> tuple[str | None, str | None]:
    """What it printed, or why there is nothing."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PATIENCE, env=env, stdin=subprocess.DEVNULL, check=False)
    except FileNotFoundError:
        return None, "nvidia-smi is not installed here"
    except subprocess.TimeoutExpired:
        return None, f"nvidia-smi gave no answer within {_PATIENCE:.0f} s: the driver may be wedged"
    except OSError as error:
        return None, f"nvidia-smi cannot be run: {error.strerror or error}"
    text = done.stdout.decode("utf8", "replace")
    if done.returncode:
        said = (done.stderr.decode("utf8", "replace") + text).strip().splitlines()
        return None, f"nvidia-smi ended with status {done.returncode}: {said[-1] if said else 'no word'}"
    return text, None
