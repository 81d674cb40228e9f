"""GPUs as NVML tells them. Every figure is asked for by itself, since each kind of card lacks some.

GPM (Hopper and later, driver 520 or newer) measures between two looks and is preferred; where it is missing, PCIe traffic is a mean over
20 ms and memory traffic the share of time with any access (`nvml.h`, NVML 13).
"""

import ctypes
import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pynvml  # type: ignore[import-untyped]  # nvidia-ml-py has no types

from firsttoken.model.gpu import GpuProcess, GpuSample

T = TypeVar("T")

THROTTLES = {0x8: "hardware slowdown", 0x20: "software thermal slowdown", 0x40: "hardware thermal slowdown", 0x80: "power brake"}
"""bits of the clocks' event reasons; a software power cap is what a busy card runs into and no fault"""
_LOST = (pynvml.NVML_ERROR_GPU_IS_LOST, getattr(pynvml, "NVML_ERROR_RESET_REQUIRED", 16))
_ALL_LINKS = 0xFFFFFFFF
_DRAM, _PCIE_TX, _PCIE_RX, _NVLINK_RX, _NVLINK_TX, _SM = (
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
    pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC,
    pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC,
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC,
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC,
    pynvml.NVML_GPM_METRIC_SM_UTIL,
)
_GPM = (_DRAM, _PCIE_TX, _PCIE_RX, _NVLINK_RX, _NVLINK_TX, _SM)
_MIB = 1 << 20


class Nvml:
    """RuntimeError where there is no library, no driver, or no card."""

    source = "nvml"

    def __init__(self) -> None:
        library = os.environ.get("FIRSTTOKEN_NVML")
        if library:
            pynvml.nvmlLib = ctypes.CDLL(library)
        try:
            pynvml.nvmlInit()
            self.driver: str | None = _try(pynvml.nvmlSystemGetDriverVersion)
            self._devices = [_Device(index) for index in range(pynvml.nvmlDeviceGetCount())]
        except pynvml.NVMLError as error:
            raise RuntimeError(f"NVML: {error}") from error
        if not self._devices:
            raise RuntimeError("NVML knows no GPU")
        self._events = _try(pynvml.nvmlEventSetCreate)
        for device in self._devices:
            if self._events is not None and device.handle is not None:
                _try(pynvml.nvmlDeviceRegisterEvents, device.handle, pynvml.nvmlEventTypeXidCriticalError, self._events)

    def sample(self) -> list[GpuSample]:
        xids = self._xids()
        return [device.sample(tuple(xids.get(device.index, ()))) for device in self._devices]

    def _xids(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        while self._events is not None and sum(map(len, found.values())) < 100:
            data = _try(pynvml.nvmlEventSetWait, self._events, 0)
            if data is None:
                break
            index = _try(pynvml.nvmlDeviceGetIndex, data.device)
            if index is not None:
                found.setdefault(index, []).append(int(data.eventData))
        return found


class _Device:
    """One card, and what was read from it the time before."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.handle = _try(pynvml.nvmlDeviceGetHandleByIndex, index)
        handle = self.handle
        self._uuid, self._name = _text(_ask(pynvml.nvmlDeviceGetUUID, handle)), _text(_ask(pynvml.nvmlDeviceGetName, handle))
        self._minor = _ask(pynvml.nvmlDeviceGetMinorNumber, handle)
        capability = _ask(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
        self._capability = f"{capability[0]}.{capability[1]}" if capability is not None else None
        support = _ask(pynvml.nvmlGpmQueryDeviceSupport, handle)
        self._gpm = bool(support is not None and support.isSupportedDevice)
        self._before: Any = None
        self._links: tuple[float, float, float] | None = None

    def sample(self, xids: tuple[int, ...]) -> GpuSample:
        handle = self.handle
        if handle is None:
            return GpuSample(index=self.index, xids=xids, lost=True)
        try:
            pynvml.nvmlDeviceGetMemoryInfo(handle)
        except pynvml.NVMLError as error:
            if error.value in _LOST:
                return GpuSample(index=self.index, uuid=self._uuid, name=self._name, minor=self._minor, xids=xids, lost=True)
        memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
        rates = _ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
        power, limit = _ask(pynvml.nvmlDeviceGetPowerUsage, handle), _ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        reasons = _ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
        if reasons is None:
            reasons = _ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        gpm = self._metrics()
        links = (gpm[_NVLINK_RX] * _MIB, gpm[_NVLINK_TX] * _MIB) if _NVLINK_RX in gpm and _NVLINK_TX in gpm else self._link_traffic()
        return GpuSample(
            index=self.index,
            uuid=self._uuid,
            name=self._name,
            minor=self._minor,
            compute_capability=self._capability,
            busy=rates.gpu / 100 if rates is not None else None,
            memory_busy=rates.memory / 100 if rates is not None else None,
            sm=_share(gpm.get(_SM)),
            dram=_share(gpm.get(_DRAM)),
            memory_used=memory.used if memory is not None else None,
            memory_total=memory.total if memory is not None else None,
            power=power / 1000 if power is not None else None,
            power_limit=limit / 1000 if limit is not None else None,
            pcie_rx=gpm[_PCIE_RX] * _MIB if _PCIE_RX in gpm else self._pcie(pynvml.NVML_PCIE_UTIL_RX_BYTES),
            pcie_tx=gpm[_PCIE_TX] * _MIB if _PCIE_TX in gpm else self._pcie(pynvml.NVML_PCIE_UTIL_TX_BYTES),
            nvlink_rx=links[0],
            nvlink_tx=links[1],
            sm_clock=_ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
            temperature=_ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
            throttled=tuple(name for bit, name in THROTTLES.items() if (reasons or 0) & bit),
            xids=xids,
            link_generation=_ask(pynvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
            link_generation_most=_ask(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
            link_width=_ask(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
            link_width_most=_ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
            processes=self._processes(),
        )

    def _processes(self) -> tuple[GpuProcess, ...] | None:
        rows = _ask(pynvml.nvmlDeviceGetComputeRunningProcesses, self.handle)
        return tuple(GpuProcess(int(row.pid), row.usedGpuMemory) for row in rows) if rows is not None else None

    def _pcie(self, counter: int) -> float | None:
        """KB a second, over 20 ms."""
        told = _ask(pynvml.nvmlDeviceGetPcieThroughput, self.handle, counter)
        return told * 1000.0 if told is not None else None

    def _link_traffic(self) -> tuple[float | None, float | None]:
        """From counters of KiB over all links."""
        fields = [
            (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
            (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
        ]
        values = _ask(pynvml.nvmlDeviceGetFieldValues, self.handle, fields)
        if values is None or any(value.nvmlReturn != pynvml.NVML_SUCCESS for value in values):
            return None, None
        now, before = (time.monotonic(), float(values[0].value.ullVal), float(values[1].value.ullVal)), self._links
        self._links = now
        if before is None or now[0] <= before[0]:
            return None, None
        gap = now[0] - before[0]
        return max(now[1] - before[1], 0.0) * 1024 / gap, max(now[2] - before[2], 0.0) * 1024 / gap

    def _metrics(self) -> dict[int, float]:
        """Of GPM since the sample before; empty at first, and where there is none."""
        if not self._gpm:
            return {}
        sample = _try(pynvml.nvmlGpmSampleAlloc)
        if sample is None or _try(pynvml.nvmlGpmSampleGet, self.handle, sample) is None:
            self._gpm = False
            return {}
        before, self._before = self._before, sample
        if before is None:
            return {}
        asked = pynvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(_GPM)
        asked.sample1, asked.sample2 = before, sample
        for place, metric in enumerate(_GPM):
            asked.metrics[place].metricId = metric
        told = _try(pynvml.nvmlGpmMetricsGet, asked)
        _try(pynvml.nvmlGpmSampleFree, before)
        if told is None:
            return {}
        rows = [told.metrics[place] for place in range(len(_GPM))]
        return {row.metricId: float(row.value) for row in rows if row.nvmlReturn == pynvml.NVML_SUCCESS and row.value >= 0}


def _ask(call: Callable[..., T], handle: Any, *arguments: Any) -> T | None:
    return None if handle is None else _try(call, handle, *arguments)


def _try(call: Callable[..., T], *arguments: Any) -> T | None:
    """None where this card, driver or library has it not."""
    try:
        return call(*arguments)
    except (pynvml.NVMLError, UnicodeDecodeError):
        return None


def _text(told: Any) -> str:
    return told.decode("utf8", "replace") if isinstance(told, bytes) else told if isinstance(told, str) else ""


def _share(percent: float | None) -> float | None:
    return percent / 100 if percent is not None else None
