"""Whom a trial would disturb: a server on its port, or somebody else's work on its GPUs; and whether GPU memory came back after one."""

import asyncio
import os
import shutil
import time
from dataclasses import dataclass, field

from firsttoken.hosts.procfs import Procfs
from firsttoken.model.plan import Plan
from firsttoken.observe.expendable import Expendable
from firsttoken.session.checking import facts
from firsttoken.session.isolating.trial import StillThere, port_taken

_ANSWER_WITHIN = 10.0
_BACK_WITHIN = 60.0
_SLACK_MIB = 512
_APPS = ("nvidia-smi", "--query-compute-apps=pid,gpu_uuid,process_name", "--format=csv,noheader")
_MEMORY = ("nvidia-smi", "--query-gpu=index,uuid,memory.used", "--format=csv,noheader,nounits")


@dataclass(slots=True)
class Guard:
    """`used`: MiB of each GPU before the first trial; empty where there is none to ask about."""

    used: dict[str, int] = field(default_factory=dict)
    _children: Expendable = field(default_factory=Expendable)

    async def objection(self, plan: Plan, *, share: bool = False) -> tuple[str, tuple[str, ...]] | None:
        """Why no trial may be started now, in a sentence, and the ways out; None where nobody would be disturbed. `share`: others' GPUs
        may be."""
        taken = port_taken(plan)
        if taken is not None:
            port = plan.endpoint.port or 0
            holder = next((one.holder for one in facts.taken(Procfs(), [port]) if one.holder), "another server")
            why = f"{taken}: {holder} listens there, and isolate never touches a server that it did not start"
            return why, ("firsttoken status", "the same command with another port")
        others = None if share else await self._others_on_gpus()
        return (others, ("firsttoken status", "isolate --share -- …")) if others is not None else None

    async def _others_on_gpus(self) -> str | None:
        if shutil.which(_MEMORY[0]) is None:
            return None
        memory = await self._ask(_MEMORY)
        if memory is None:
            return f"nvidia-smi gave no answer within {_ANSWER_WITHIN:.0f} s: a GPU may be wedged"
        ours = _visible(memory)
        self.used = self.used or ours
        strangers = [row for row in await self._ask(_APPS) or () if len(row) > 2 and row[1] in ours]
        if strangers:
            named = ", ".join(f"pid {row[0]} ({row[2]})" for row in strangers[:4])
            return f"somebody else works on the same GPUs: {named}"
        return None

    async def memory_is_back(self) -> None:
        """After a trial. StillThere where it does not come back."""
        deadline = time.monotonic() + _BACK_WITHIN
        while self.used:
            memory = await self._ask(_MEMORY)
            now = _visible(memory or ())
            held = {uuid: now.get(uuid, 0) - before for uuid, before in self.used.items() if now.get(uuid, 0) - before > _SLACK_MIB}
            if memory is not None and not held:
                return
            if time.monotonic() > deadline:
                what = f"{sum(held.values())} MiB of GPU memory did not come back" if memory is not None else "nvidia-smi gives no answer"
                raise StillThere(f"{what} within {_BACK_WITHIN:.0f} s of a trial's end; a device may be wedged")
            await asyncio.sleep(1.0)

    async def _ask(self, command: tuple[str, ...]) -> list[list[str]] | None:
        outcome = await self._children.run(command, _ANSWER_WITHIN)
        if outcome.error is not None:
            return None
        lines = outcome.output.decode("utf8", "replace").splitlines()
        return [[word.strip() for word in line.split(",")] for line in lines if line.strip()]


def _visible(rows: "list[list[str]] | tuple[()]") -> dict[str, int]:
    """UUID and MiB in use of the GPUs that a server of ours would see."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    wanted = None if chosen is None else {word.strip() for word in chosen.split(",")}
    found = {}
    for row in rows:
        if len(row) == 3 and (wanted is None or row[0] in wanted or any(row[1].startswith(word) for word in wanted if word)):
            found[row[1]] = int(row[2]) if row[2].isdigit() else 0
    return found
