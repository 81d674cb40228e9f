"""`nvidia-smi --query-gpu=… --format=csv`, whatever columns it was asked for, into GPU lines. Never raises."""

import re
from collections.abc import Mapping

from firsttoken.model.attached import GpuLine

_NUMBER = re.compile(r"-?\d{1,12}(?:\.\d{1,6})?")
_COLUMNS = (
    ("index", "index"),
    ("compute_cap", "capability"),
    ("memory.used", "used"),
    ("memory.total", "total"),
    ("utilization.gpu", "utilisation"),
    ("power.draw", "power"),
    ("power.limit", "limit"),
    ("enforced.power.limit", "limit"),
)
_EXACT = {
    "temperature.gpu": "temperature",
    "pcie.link.gen.current": "generation",
    "pcie.link.gen.gpucurrent": "generation",
    "pcie.link.gen.max": "generation_most",
    "pcie.link.width.current": "width",
    "pcie.link.width.max": "width_most",
    **{f"clocks_{word}_reasons.active": "reasons" for word in ("throttle", "event")},
}
_REASONS = {
    "hw_slowdown": (0x8, "hardware slowdown"),
    "sw_thermal_slowdown": (0x20, "software thermal slowdown"),
    "hw_thermal_slowdown": (0x40, "hardware thermal slowdown"),
    "hw_power_brake_slowdown": (0x80, "power brake"),
}
"""columns and bits of reasons that are a fault; a power cap is what a busy card runs into"""
_REASON = re.compile(r"clocks_(?:throttle|event)_reasons\.(\w+)")
_BITS = re.compile(r"0x[0-9a-fA-F]{1,16}")


def read_gpus(text: str) -> tuple[GpuLine, ...]:
    columns: list[str] | None = None
    rows: list[GpuLine] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        named = [_column(cell) for cell in cells]
        if sum(name is not None for name in named) >= 2 and not any(cell.isdecimal() for cell in cells):
            columns = [name or "" for name in named]
            continue
        if columns is None or len(cells) != len(columns):
            continue
        told = dict(zip(columns, cells, strict=True))
        index = _number(told.get("index"))
        rows.append(
            GpuLine(
                index=int(index) if index is not None else None,
                name=told.get("name") or None,
                compute_capability=_plain(told.get("capability")),
                memory_used=_number(told.get("used")),
                memory_total=_number(told.get("total")),
                utilisation=_number(told.get("utilisation")),
                power=_number(told.get("power")),
                power_limit=_number(told.get("limit")),
                throttled=_throttled(told),
                link_generation=_whole(told.get("generation")),
                link_generation_most=_whole(told.get("generation_most")),
                link_width=_whole(told.get("width")),
                link_width_most=_whole(told.get("width_most")),
                temperature=_number(told.get("temperature")),
            )
        )
    return tuple(rows)


def _column(cell: str) -> str | None:
    name = cell.partition("[")[0].strip().lower()
    if name in ("name", "gpu_name"):
        return "name"
    if name in _EXACT:
        return _EXACT[name]
    reason = _REASON.fullmatch(name)
    if reason is not None:
        return reason[1]
    return next((column for prefix, column in _COLUMNS if name.startswith(prefix)), None)


def _throttled(told: Mapping[str, str]) -> tuple[str, ...] | None:
    """None where it was not asked for."""
    bits = _BITS.fullmatch(told.get("reasons", ""))
    if bits is not None:
        return tuple(name for bit, name in _REASONS.values() if int(bits.group(), 16) & bit)
    asked = {reason: told[reason] for reason in _REASONS if reason in told}
    return tuple(_REASONS[reason][1] for reason, value in asked.items() if value == "Active") if asked else None


def _whole(text: str | None) -> int | None:
    number = _number(text)
    return int(number) if number is not None else None


def _number(text: str | None) -> float | None:
    match = _NUMBER.match(text) if text else None
    return float(match.group()) if match is not None else None


def _plain(text: str | None) -> str | None:
    return text if text and _NUMBER.fullmatch(text) else None
