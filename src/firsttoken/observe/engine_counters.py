"""An engine's own counters from its metrics page (Prometheus' text format): tokens made, requests running and waiting.

A metric has one line for each set of labels (engine, rank, mode): they are summed. Reading never raises; a page that is missing, refused
or not in time is told as such and never as zero.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace

from firsttoken.model.events import EngineCounters
from firsttoken.observe.http_target import Target
from firsttoken.observe.http_wire import exchange

DEADLINE = 5.0
NAMES = ("generation_tokens", "prompt_tokens", "running", "waiting", "steps")
_LINE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{[^\n]*\})?[ \t]+(\S+)")
_GONE = frozenset({401, 403, 404, 405, 501})
"""statuses that asking again does not change: no such page, or not for us"""


async def ask_counters(target: Target, names: Mapping[str, str], *, deadline: float = DEADLINE) -> EngineCounters:
    """One GET. `names`: metric names by `NAMES`, as in the engine's profile."""
    route = target.routes.metrics
    wanted = {ours: theirs for ours, theirs in names.items() if ours in NAMES}
    if route is None or not wanted:
        return EngineCounters(error="this engine's metrics are not known", available=False)
    got = await exchange(target, target.root_path.rstrip("/") + route, deadline=deadline)
    if got.status == 404 and target.root_path:  # behind a proxy that strips the root path the server itself may not know it
        got = await exchange(target, route, deadline=deadline)
    if got.status != 200 or got.error is not None:
        told = got.error or f"HTTP {got.status}"
        return EngineCounters(error=f"{route}: {told}", available=got.status not in _GONE)
    found = parse(got.body, wanted)
    return found if found != EngineCounters() else replace(found, error=f"{route} has none of {', '.join(wanted.values())}")


def parse(page: bytes, names: Mapping[str, str]) -> EngineCounters:
    """The sums of the named metrics. Never raises."""
    sums: dict[str, float] = {}
    wanted = set(names.values())
    for line in page.decode("utf8", "replace").splitlines():
        if line.startswith("#") or (found := _LINE.match(line)) is None or found[1] not in wanted:
            continue
        try:
            value = float(found[2])
        except ValueError:
            continue
        if math.isfinite(value):
            sums[found[1]] = sums.get(found[1], 0.0) + value
    told = {ours: sums.get(theirs) for ours, theirs in names.items()}
    return EngineCounters(
        generation_tokens=told.get("generation_tokens"),
        prompt_tokens=told.get("prompt_tokens"),
        running=told.get("running"),
        waiting=told.get("waiting"),
        steps=told.get("steps"),
    )
