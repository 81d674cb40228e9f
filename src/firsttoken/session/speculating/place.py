"""Whether the baseline can live beside the speculative server: only where neither takes from the other what it needs.

Seen, not guessed: whether the running server has GPUs open, what it takes while idle, and how much memory it has.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from firsttoken.hosts.procfs import Procfs
from firsttoken.plan.speculation import Speculating
from firsttoken.session.speculating.servers import MOST_IDLE, Serving

_CHOICE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """`env`: what the baseline needs in its environment to keep out of the other's way. `why` it is so."""

    together: bool
    why: str
    env: Mapping[str, str] = field(default_factory=dict)


async def beside(serving: Serving, speculating: Speculating | None, *, launches: bool, procfs: Procfs | None = None) -> Place:
    """`launches`: whether the baseline is ours to launch; somebody else's is there already."""
    procfs = procfs or Procfs()
    if not launches:
        return Place(together=True, why="the baseline was there already")
    if speculating is None or not speculating.movable:
        return Place(together=False, why="the server cannot be started on a second port from here")
    if serving.plan is not None and serving.plan.sizes.nodes > 1:
        return Place(together=False, why="the server spans several machines")
    share = await serving.idle_share()
    if share > MOST_IDLE:
        return Place(together=False, why=f"the idle server takes {share:.2f} of a core")
    taken, free = serving.memory(), _available(procfs)
    if free is not None and taken > 0.8 * free:
        return Place(
            together=False, why=f"a second server does not fit: {free / 1e9:.1f} GB are free, the first one takes {taken / 1e9:.1f} GB"
        )
    if not serving.uses_gpus():
        return Place(together=True, why="neither uses a GPU, and the idle one costs nothing")
    others = other_gpus(serving.plan.sizes.ranks_here if serving.plan is not None else 1, os.environ.get(_CHOICE), _gpus(procfs))
    if others is None:
        return Place(together=False, why="there is no second set of GPUs of the same kind")
    return Place(together=True, why=f"the baseline has GPUs of its own ({others})", env={_CHOICE: others})


def other_gpus(ranks: int, chosen: str | None, models: Mapping[str, str]) -> str | None:
    """As many GPUs as the server has ranks, behind those that it takes, and of the same kind. None where there are none.

    `chosen`: the user's own CUDA_VISIBLE_DEVICES; `models` by number.
    """
    visible = [item.strip() for item in chosen.split(",") if item.strip()] if chosen is not None else sorted(models, key=int)
    mine, others = visible[:ranks], visible[ranks : 2 * ranks]
    if len(others) < ranks:
        return None
    kinds = {models.get(item) for item in (*mine, *others)}
    return ",".join(others) if len(kinds) == 1 and None not in kinds else None


def _gpus(procfs: Procfs) -> dict[str, str]:
    """Number and model of each GPU, as NVIDIA's driver tells them."""
    found = {}
    for name in procfs.names("driver/nvidia/gpus"):
        text = (procfs.read(f"driver/nvidia/gpus/{name}/information") or b"").decode("utf8", "replace")
        told = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
        if told.get("Device Minor", "").isdecimal():
            found[told["Device Minor"]] = told.get("Model", "")
    return found


def _available(procfs: Procfs) -> int | None:
    """Bytes of memory that could be had."""
    for line in (procfs.read("meminfo") or b"").splitlines():
        if line.startswith(b"MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None
