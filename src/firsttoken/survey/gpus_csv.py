"""`nvidia-smi --query-gpu=… --format=csv`, whatever columns it was asked for, into GPU lines. Never raises."""

import re

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
            )
        )
    return tuple(rows)


def _column(cell: str) -> str | None:
    name = cell.partition("[")[0].strip().lower()
    if name in ("name", "gpu_name"):
        return "name"
    return next((column for prefix, column in _COLUMNS if name.startswith(prefix)), None)


def _number(text: str | None) -> float | None:
    match = _NUMBER.match(text) if text else None
    return float(match.group()) if match is not None else None


def _plain(text: str | None) -> str | None:
    return text if text and _NUMBER.fullmatch(text) else None
