"""GPUs as `nvidia-smi` prints them, where its library cannot be loaded. Fewer figures: no traffic, no errors."""

import shutil
import subprocess
from collections.abc import Sequence

from firsttoken.model.gpu import GpuProcess, GpuSample

_WITHIN = 5.0
"""seconds; one that hangs in the driver cannot even be killed, and its caller hangs with it"""
_NEEDED = ("index", "uuid", "name", "utilization.gpu", "utilization.memory", "memory.used", "memory.total", "power.draw", "power.limit")
_MORE = (
    "temperature.gpu", "clocks.sm", "clocks_throttle_reasons.active", "pcie.link.gen.current", "pcie.link.gen.max",
    "pcie.link.width.current", "pcie.link.width.max", "compute_cap",
)  # fmt: skip
"""columns that not every version knows: asking for one of them fails as a whole"""
_THROTTLES = {0x8: "hardware slowdown", 0x20: "software thermal slowdown", 0x40: "hardware thermal slowdown", 0x80: "power brake"}
_MIB = 1 << 20


class Smi:
    source = "nvidia-smi"
    driver: str | None = None

    def __init__(self, program: str) -> None:
        self._program = program
        self._columns: tuple[str, ...] = (*_NEEDED, *_MORE)

    @classmethod
    def found(cls) -> "Smi | None":
        program = shutil.which("nvidia-smi")
        return cls(program) if program is not None else None

    def sample(self) -> list[GpuSample]:
        """RuntimeError where it tells nothing."""
        text = self._run(f"--query-gpu={','.join(self._columns)}")
        if text is None and self._columns != _NEEDED:
            self._columns = _NEEDED
            text = self._run(f"--query-gpu={','.join(self._columns)}")
        if text is None:
            raise RuntimeError("nvidia-smi tells nothing about GPUs")
        return read_table(text, self._columns, self._run("--query-compute-apps=gpu_uuid,pid,used_memory"))

    def _run(self, query: str) -> str | None:
        command = (self._program, query, "--format=csv,noheader,nounits")
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_WITHIN)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.decode("utf8", "replace") if done.returncode == 0 else None


def read_table(text: str, columns: Sequence[str], processes: str | None = None) -> list[GpuSample]:
    """Rows of `--format=csv,noheader,nounits`. `processes`: lines of GPU uuid, pid, MiB; None: not known. Never raises."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        row = dict(zip(columns, cells, strict=False))
        index = _number(row.get("index"))
        if index is None or len(cells) != len(columns):
            continue
        reasons = row.get("clocks_throttle_reasons.active", "")
        bits = int(reasons, 16) if reasons.startswith("0x") and reasons[2:].isalnum() and _is_hex(reasons[2:]) else 0
        busy, memory_busy = _number(row.get("utilization.gpu")), _number(row.get("utilization.memory"))
        found.append(
            GpuSample(
                index=int(index),
                uuid=row.get("uuid", ""),
                name=row.get("name", ""),
                compute_capability=row.get("compute_cap") if _number(row.get("compute_cap")) is not None else None,
                busy=busy / 100 if busy is not None else None,
                memory_busy=memory_busy / 100 if memory_busy is not None else None,
                memory_used=_bytes(row.get("memory.used")),
                memory_total=_bytes(row.get("memory.total")),
                power=_number(row.get("power.draw")),
                power_limit=_number(row.get("power.limit")),
                temperature=_number(row.get("temperature.gpu")),
                sm_clock=_number(row.get("clocks.sm")),
                throttled=tuple(name for bit, name in _THROTTLES.items() if bits & bit),
                link_generation=_whole(row.get("pcie.link.gen.current")),
                link_generation_most=_whole(row.get("pcie.link.gen.max")),
                link_width=_whole(row.get("pcie.link.width.current")),
                link_width_most=_whole(row.get("pcie.link.width.max")),
                processes=_processes(processes, row.get("uuid", "")) if processes is not None else None,
            )
        )
    return found


def _processes(text: str, uuid: str) -> tuple[GpuProcess, ...]:
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return tuple(
        GpuProcess(pid, _bytes(row[2])) for row in rows if len(row) == 3 and row[0] == uuid and (pid := _whole(row[1])) is not None
    )


def _number(text: str | None) -> float | None:
    """None for `[N/A]`, `[Not Supported]` and what else is no number."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if abs(value) < 1e15 else None


def _whole(text: str | None) -> int | None:
    value = _number(text)
    return int(value) if value is not None else None


def _bytes(mib: str | None) -> int | None:
    value = _number(mib)
    return int(value * _MIB) if value is not None else None


def _is_hex(text: str) -> bool:
    return all(char in "0123456789abcdefABCDEF" for char in text)
