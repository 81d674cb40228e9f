"""What an engine's log says about its own start: the yardstick for the durations that firsttoken reports.

Read by other patterns than the profiles', on purpose: a slip in a profile must not hide itself. Log stamps hold whole seconds, so two
seconds either way (or a tenth) is agreement.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

Spans = Mapping[str, tuple[str, str]]
"""Phase to the patterns of its first and its last line."""

VLLM: Spans = {
    "config": (r"non-default args", r"world_size=\d+ rank=\d+"),
    "distributed_init": (r"world_size=\d+ rank=\d+", r"is assigned as DP rank"),
    "weights": (r"Starting to load model", r"Using \w+ KV cache layout"),
    "compile": (r"Warming up model for the compilation", r"Warming up done"),
    "kv_cache": (r"Warming up done", r"Maximum concurrency"),
}
VLLM_FIRST_LINE = r"non-default args"
VLLM_WEIGHTS = r"Loading weights took ([\d.]+) seconds"

SGLANG: Spans = {
    "config": (r"server_args=", r"Init parallel begin"),
    "distributed_init": (r"Init parallel begin", r"Memory baseline taken"),
    "weights": (r"Load weight begin", r"Load weight end"),
    "warmup": (r"Uvicorn running on", r"fired up and ready to roll"),
}
SGLANG_FIRST_LINE = r"server_args="
SGLANG_WEIGHTS = r"Load weight end\. elapsed=([\d.]+) s"

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_STAMP = re.compile(r"(?:(?P<year>\d{4})-)?(?P<month>\d\d)-(?P<day>\d\d) (?P<clock>\d\d:\d\d:\d\d)")


@dataclass(frozen=True, slots=True)
class Line:
    """`at`: Unix time by the machine's own clock; None where the line bears no stamp in its first 60 characters."""

    at: float | None
    text: str


def lines(log: str, year: int) -> tuple[Line, ...]:
    """`year` for engines that leave it out."""
    return tuple(_line(raw, year) for raw in re.split(r"[\r\n]+", _COLOUR.sub("", log)) if raw)


def span(log: Sequence[Line], begin: str, end: str) -> float | None:
    """Seconds from the first stamped line of `begin` to the last of `end`; None where one is missing."""
    began = [line.at for line in log if line.at is not None and re.search(begin, line.text)]
    ended = [line.at for line in log if line.at is not None and re.search(end, line.text)]
    return ended[-1] - began[0] if began and ended else None


def first(log: Sequence[Line], pattern: str) -> float | None:
    return next((line.at for line in log if line.at is not None and re.search(pattern, line.text)), None)


def numbers(log: Sequence[Line], pattern: str) -> tuple[float, ...]:
    return tuple(float(found[1]) for line in log if (found := re.search(pattern, line.text)))


def agree(told: float, logged: float) -> bool:
    return abs(told - logged) <= max(2.0, 0.1 * logged)


def _line(raw: str, year: int) -> Line:
    stamp = _STAMP.search(raw[:60])
    if stamp is None:
        return Line(None, raw)
    text = f"{stamp['year'] or year}-{stamp['month']}-{stamp['day']} {stamp['clock']}"
    try:
        return Line(datetime.strptime(text, "%Y-%m-%d %H:%M:%S").timestamp(), raw)
    except ValueError:
        return Line(None, raw)
