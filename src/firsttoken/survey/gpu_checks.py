"""GPUs, driver and the paths between them: enough of them, of the right driver, with nobody else's memory on them.

Least drivers: NVIDIA's CUDA release notes, table "CUDA Toolkit and Minimum Required Driver Version for CUDA Minor Version Compatibility"
(https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/). Fabric manager: https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from firsttoken.model.checks import Check, Part, fail, passed, skipped, warn
from firsttoken.survey.amounts import gib
from firsttoken.survey.asked import Asked
from firsttoken.survey.gpus import Gpus, visible

_fail, _warn = partial(fail, Part.MACHINE), partial(warn, Part.MACHINE)
_pass, _skipped = partial(passed, Part.MACHINE), partial(skipped, Part.MACHINE)
_LEAST_DRIVER = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580, 65, 6)}
_SHIM = ("libvgpu", "libcuda-control", "libgpushare", "libnvshare")
_NOTICEABLE = 512 << 20


def gpu_checks(asked: Asked, gpus: Gpus, *, cpu: bool, root: str = "/", titles: Mapping[int, str], cuda: str | None) -> Iterator[Check]:
    """`cpu`: the engine uses none. `titles` of processes that hold GPU memory; `cuda`: the engine's runtime version."""
    yield from _shim(asked)
    if cpu:
        return
    yield from _enough(asked, gpus)
    yield from _driver(asked, gpus, root, cuda)
    yield from _fabric(gpus, root)
    yield from _peers(asked, gpus, root)
    yield from _others(asked, gpus, titles)


def _enough(asked: Asked, gpus: Gpus) -> Iterator[Check]:
    if gpus.problem is not None and (gpus.devices or gpus.driver):
        remedy = "nvidia-smi must work first: look into dmesg for NVRM and Xid"
        yield _fail("gpu-not-visible", gpus.problem, remedy, "the ranks find no GPU, or hang in the driver")
        return
    if not gpus.found:
        yield _skipped("gpu-not-visible", gpus.problem or "no GPU was told")
        return
    seen, wanted = visible(gpus.found, asked.env), asked.plan.sizes.ranks_here
    chosen = asked.env.get("CUDA_VISIBLE_DEVICES")
    because = f" (CUDA_VISIBLE_DEVICES={chosen})" if chosen is not None else ""
    if len(seen) < wanted:
        fact = f"{wanted} rank{'s' if wanted > 1 else ''} here, {len(seen)} of {len(gpus.found)} GPUs visible{because}"
        remedy = "fewer ranks (--tensor-parallel-size, --tp), more nodes, or another CUDA_VISIBLE_DEVICES"
        yield _fail("gpu-not-visible", fact, remedy, "a rank ends with `invalid device ordinal`")
        return
    yield _pass("gpu-not-visible", f"{len(seen)} GPUs visible, {wanted} wanted{because}")
    if any(gpu.mig for gpu in seen[:wanted]):
        fact = "MIG is on: a rank sees one instance, and instances do not reach each other"
        if wanted > 1:
            yield _fail("gpu-not-visible", fact, "one rank a server, or MIG off", "NCCL finds no path between the ranks")


def _driver(asked: Asked, gpus: Gpus, root: str, cuda: str | None) -> Iterator[Check]:
    major = int(cuda.split(".")[0]) if cuda and cuda.split(".")[0].isdecimal() else None
    least = _LEAST_DRIVER.get(major or 0)
    own = _numbers(gpus.driver)
    if own and least and own < least:
        fact = f"driver {gpus.driver} with CUDA {cuda}, which needs {'.'.join(map(str, least))}"
        remedy = f"a newer driver, or a build of the engine for CUDA {(major or 1) - 1}"
        yield _fail("driver-cuda-mismatch", fact, remedy, "CUDA error 803 or 35 when the first rank touches its GPU")
    elif own and cuda:
        yield _pass("driver-cuda-mismatch", f"driver {gpus.driver}, CUDA {cuda}")
    elif gpus.found:
        yield _skipped("driver-cuda-mismatch", "the engine's CUDA version is not known")
    path = asked.env.get("LD_LIBRARY_PATH", "")
    compat = next((folder for folder in path.split(":") if folder.rstrip("/").endswith("/compat") and "cuda" in folder), None)
    if compat is not None:
        fact = f"LD_LIBRARY_PATH holds {compat}"
        yield _warn("driver-cuda-mismatch", fact, f"take {compat} out", "CUDA error 803 or 804 where its libcuda is older than the driver")
    if (library := _library_version(root)) is not None and gpus.driver is not None and library != gpus.driver:
        fact = f"the kernel module is {gpus.driver}, its libraries are {library}"
        yield _fail("driver-cuda-mismatch", fact, "reload the module, or reboot after the update", "`Driver/library version mismatch`")


def _fabric(gpus: Gpus, root: str) -> Iterator[Check]:
    """Only where there are NVSwitches."""
    switches = _any(Path(root) / "proc/driver/nvidia-nvswitch/devices") or (Path(root) / "dev/nvidia-nvswitchctl").exists()
    if not switches and not gpus.fabric:
        return
    states = {state.lower() for state in gpus.fabric}
    remedy = "systemctl start nvidia-fabricmanager, of exactly the driver's version"
    if states and states != {"completed"}:
        fact = f"the NVSwitch fabric is {', '.join(sorted(states))}"
        yield _fail("fabric-manager-missing", fact, remedy, "CUDA error 802 (system not yet initialized)")
    elif states:
        yield _pass("fabric-manager-missing", "the NVSwitch fabric is set up")
    elif "nv-fabricmanage" in _commands(root):
        yield _pass("fabric-manager-missing", "the fabric manager runs")
    else:
        fact = "there are NVSwitches, and no fabric manager is to be seen"
        yield _warn(
            "fabric-manager-missing", f"{fact} (in a container it may run outside)", remedy, "CUDA error 802 (system not yet initialized)"
        )


def _peers(asked: Asked, gpus: Gpus, root: str) -> Iterator[Check]:
    """Ranks that reach each other over PCIe: translated or redirected traffic between GPUs may never arrive."""
    if asked.plan.sizes.ranks_here < 2 or len(gpus.found) < 2:
        return
    if gpus.links and all(link.startswith("NV") for link in gpus.links):
        yield _pass("pcie-p2p-broken", "all GPUs are joined by NVLink")
        return
    if asked.env.get("NCCL_P2P_DISABLE") == "1":
        yield _pass("pcie-p2p-broken", "NCCL_P2P_DISABLE=1: nothing goes from GPU to GPU directly")
        return
    line = _text(root, "proc/cmdline").split()
    virtual = "hypervisor" in _text(root, "proc/cpuinfo")[: 1 << 16]
    on = _any(Path(root) / "sys/class/iommu") and not {"iommu=pt", "iommu=off", "intel_iommu=off", "amd_iommu=off"} & set(line)
    on = on and "iommu.passthrough=1" not in line and _default_domain(root) not in ("identity", None)
    redirects = _redirecting(root) if not virtual else []
    if on or redirects:
        what = "the IOMMU translates" if on else f"ACS redirects at {len(redirects)} bridges ({', '.join(redirects[:2])})"
        remedy = "iommu=pt on the kernel's command line, ACS off (BIOS or setpci); as a test NCCL_P2P_DISABLE=1"
        yield _warn("pcie-p2p-broken", f"GPUs reach each other over PCIe, and {what}", remedy, "the first collective may spin for ever")
    else:
        yield _pass("pcie-p2p-broken", "GPUs reach each other over PCIe; neither IOMMU nor ACS was seen in the way")


def _others(asked: Asked, gpus: Gpus, titles: Mapping[int, str]) -> Iterator[Check]:
    """Memory that is held already on the GPUs that the server will take."""
    seen = visible(gpus.found, asked.env)[: asked.plan.sizes.ranks_here]
    mine = {gpu.uuid: gpu for gpu in seen}
    held = [user for user in gpus.users if user.uuid in mine]
    full = [gpu for gpu in seen if (gpu.used or 0) > _NOTICEABLE]
    if held:
        listed = ", ".join(_user(user.pid, user.used, titles) for user in held[:3])
        fact = f"{len(held)} processes hold memory of these GPUs: {listed}"
        yield _warn(
            "leftover-process-vram",
            fact,
            "end them if they are left over (`firsttoken cleanup`, or by pid)",
            "less room for the cache, or out of memory",
        )
    elif full:
        gpu = full[0]
        fact = f"GPU {gpu.index} has {gib(gpu.used or 0)} in use, and no process of it is to be seen"
        remedy = "a process of another container or user holds it, or one died badly: nvidia-smi --gpu-reset when nobody uses it"
        yield _warn("leftover-process-vram", fact, remedy, "less room for the cache, or out of memory")
    elif seen:
        yield _pass("leftover-process-vram", "nobody else holds memory of these GPUs")


def _shim(asked: Asked) -> Iterator[Check]:
    preload = asked.env.get("LD_PRELOAD", "")
    if any(name in preload for name in _SHIM):
        fact = f"LD_PRELOAD={preload} stands between the engine and the driver"
        remedy = "a newer version of it, CUDA_DISABLE_CONTROL=true, or no LD_PRELOAD"
        yield _warn("gpu-shim-preload", fact, remedy, "memory calls may deadlock while the model loads")


def _user(pid: int, used: int | None, titles: Mapping[int, str]) -> str:
    return f"{titles.get(pid, 'unknown')[:60]} (pid {pid}{', ' + gib(used) if used else ''})"


def _numbers(version: str | None) -> tuple[int, ...] | None:
    parts = (version or "").split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else None


def _library_version(root: str) -> str | None:
    """Of the user-space driver, from the name of its file. Several: the one that the plain name leads to is not told apart."""
    found = set()
    for folder in ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64"):
        try:
            names = [path.name for path in (Path(root) / folder).glob("libnvidia-ml.so.*.*")]
        except OSError:
            continue
        found |= {name.removeprefix("libnvidia-ml.so.") for name in names}
    return found.pop() if len(found) == 1 else None


def _redirecting(root: str) -> list[str]:
    """PCI bridges whose ACS control redirects requests (bit 2) or completions (bit 3). Extended configuration needs root to be read."""
    found = []
    for device in sorted((Path(root) / "sys/bus/pci/devices").glob("*")):
        try:
            if not (device / "class").read_text(encoding="ascii").startswith("0x0604"):
                continue
            config = (device / "config").read_bytes()
        except OSError:
            continue
        at, seen = 0x100, 0
        while at and at + 8 <= len(config) and seen < 64:
            header = int.from_bytes(config[at : at + 4], "little")
            if header & 0xFFFF == 0x000D and int.from_bytes(config[at + 6 : at + 8], "little") & 0x0C:
                found.append(device.name)
            at, seen = header >> 20 & 0xFFC, seen + 1
    return found


def _default_domain(root: str) -> str | None:
    """How the kernel maps the first GPU: `identity` does not translate; None where it is not in an IOMMU group."""
    for device in sorted((Path(root) / "sys/bus/pci/devices").glob("*")):
        try:
            if (device / "vendor").read_text(encoding="ascii").strip() == "0x10de" and (device / "class").read_text(encoding="ascii")[
                :4
            ] == "0x03":
                return (device / "iommu_group/type").read_text(encoding="ascii").strip()
        except OSError:
            continue
    return None


def _commands(root: str) -> set[str]:
    found = set()
    for entry in (Path(root) / "proc").glob("[0-9]*/comm"):
        try:
            found.add(entry.read_text(encoding="utf8", errors="replace").strip())
        except OSError:
            continue
    return found


def _text(root: str, name: str) -> str:
    try:
        return (Path(root) / name).read_text(encoding="utf8", errors="replace")
    except OSError:
        return ""


def _any(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except OSError:
        return False
