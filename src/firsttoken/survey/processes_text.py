"""The output of `ps` with whatever columns, into process lines. The header names the columns; the last one takes the rest of the line.

Never raises: a line that does not fit its header is left out.
"""

import re

from firsttoken.model.attached import ProcessLine

_COLUMNS = {
    "pid": "pid", "ppid": "parent", "stat": "state", "s": "state", "state": "state", "%cpu": "cpu", "pcpu": "cpu", "%mem": "memory",
    "pmem": "memory", "elapsed": "elapsed", "etimes": "elapsed", "etime": "elapsed", "wchan": "wchan", "command": "title", "cmd": "title",
    "args": "title",
}  # fmt: skip
_TIME = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d{1,6})(?:\.\d+)?")


def read_processes(text: str) -> tuple[ProcessLine, ...]:
    """All processes listed, in the order of the text; of a pid listed twice (two snapshots in one file) the last."""
    columns: list[str] | None = None
    found: dict[int, ProcessLine] = {}
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        lowered = [word.lower() for word in words]
        if "pid" in lowered and lowered[-1] in ("command", "cmd", "args"):
            columns = lowered
            continue
        if columns is None:
            continue
        process = _process(line, columns)
        if process is not None:
            found[process.pid] = process
    return tuple(found.values())


def _process(line: str, columns: list[str]) -> ProcessLine | None:
    parts = line.split(None, len(columns) - 1)
    if len(parts) < len(columns) - 1:
        return None
    told = {_COLUMNS[name]: value.strip() for name, value in zip(columns, parts, strict=False) if name in _COLUMNS}
    pid = _whole(told.get("pid"))
    if pid is None:
        return None
    wchan = told.get("wchan")
    return ProcessLine(
        pid=pid,
        parent=_whole(told.get("parent")),
        state=told.get("state") or "?",
        cpu=_number(told.get("cpu")),
        memory=_number(told.get("memory")),
        elapsed=_seconds(told.get("elapsed")),
        wchan=None if wchan in (None, "-", "0") else wchan,
        title=told.get("title", ""),
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 12 else None


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None and len(text) < 20 else None
    except ValueError:
        return None
    return value if value is not None and abs(value) < 1e9 else None


def _seconds(text: str | None) -> float | None:
    """Seconds, also from ps's `etime`: `[[dd-]hh:]mm:ss`."""
    if text is None:
        return None
    match = _TIME.fullmatch(text)
    if match is None:
        return _number(text)
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
