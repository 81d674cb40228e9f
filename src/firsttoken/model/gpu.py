"""A GPU at one time, as NVML or `nvidia-smi` tells it."""

from dataclasses import dataclass
from typing import NamedTuple


class GpuProcess(NamedTuple):
    """A process that has a context on the GPU. `memory` in bytes, None where the driver does not tell (MIG, WSL). In a container the pid
    may be that of the host.
    """

    pid: int
    memory: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """Levels but for what is said otherwise; None: not supported here. Shares are 0 to 1.

    `busy`: share of the last second in which a kernel ran, which a kernel that only waits does as well. `memory_busy`: share in which
    device memory was accessed; `sm`, `dram`: share of multiprocessors and of memory bandwidth in use since the sample before (GPM, from
    Hopper on).
    `pcie_*` and `nvlink_*`: bytes a second, averaged over 20 ms (PCIe) or since the sample before. Power in watts, clocks in MHz, memory in
    bytes. `throttled`: reasons that slow it down, idle and the user's own settings left out. `xids`: errors since the sample before.
    `link_*`: PCIe generation and lanes, now and at most. `processes` None: cannot be listed.
    """

    index: int
    uuid: str = ""
    name: str = ""
    minor: int | None = None
    compute_capability: str | None = None
    busy: float | None = None
    memory_busy: float | None = None
    sm: float | None = None
    dram: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    power: float | None = None
    power_limit: float | None = None
    pcie_rx: float | None = None
    pcie_tx: float | None = None
    nvlink_rx: float | None = None
    nvlink_tx: float | None = None
    sm_clock: float | None = None
    temperature: float | None = None
    throttled: tuple[str, ...] = ()
    xids: tuple[int, ...] = ()
    link_generation: int | None = None
    link_generation_most: int | None = None
    link_width: int | None = None
    link_width_most: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    lost: bool = False
    """the driver says that it fell off the bus or needs a reset"""
