"""Native frames of one process, for a person who asks for them: the only dump that stops its target.

Unwinding native code takes py-spy a second or two for a process of twenty threads, for about half of which the target is stopped; pystack
stops it for longer still. So nothing asks for it by itself: frames that Python code does not explain are explained by what it calls
(`op_calls`). A target that is stopped, traced or in uninterruptible sleep is left alone, since there a dump would hang. Afterwards the
target's state is looked at: one that was left stopped is continued.
"""

import contextlib
import os
import signal
import time
from dataclasses import dataclass, field

from firsttoken.hosts.procfs import Procfs
from firsttoken.knowledge.stacks import marked
from firsttoken.model.events import Stacks
from firsttoken.model.process import ProcessKey
from firsttoken.observe.expendable import Expendable
from firsttoken.observe.stacks import find_py_spy, parse_dump

DEADLINE = 20.0
"""seconds for one process"""
_SETTLES = 0.5
_HANDS_OFF = {"T": "is stopped", "t": "is traced", "D": "is in uninterruptible sleep"}


@dataclass(slots=True, kw_only=True)
class NativeTaker:
    """`py_spy` as in `StackTaker`."""

    procfs: Procfs = field(default_factory=Procfs)
    py_spy: str | None = field(default_factory=find_py_spy)
    _children: Expendable = field(default_factory=Expendable)

    async def take(self, key: ProcessKey, round: int, seconds: float = DEADLINE) -> Stacks:
        """All threads with Python and native frames; `error` says why not, and whether the target had to be continued."""
        stat = self.procfs.stat(key.pid)
        if stat is None or stat.start != key.start or stat.dead:
            return Stacks(process=key, round=round, error="has ended")
        states = [one.state for tid in self.procfs.threads(key.pid) if (one := self.procfs.thread_stat(key.pid, tid)) is not None]
        odd = next((state for state in states if state in _HANDS_OFF), None)
        if odd is not None:
            return Stacks(process=key, round=round, error=f"{_HANDS_OFF[odd]}: native frames would have to wait for it")
        if self.py_spy is None:
            return Stacks(process=key, round=round, error="py-spy is not installed (pip install py-spy)")
        try:
            answer = await self._children.run((self.py_spy, "dump", "--native", "--json", "--pid", str(key.pid)), seconds)
        finally:
            continued = self._repair(key)
        threads, error = parse_dump(answer.output, key.pid) if answer.error is None else ((), answer.error)
        if continued:
            error = "; ".join(part for part in (error, "it was left stopped, and has been continued") if part)
        return Stacks(process=key, round=round, threads=tuple(map(marked, threads)), tool="py-spy", error=error or None)

    def _repair(self, key: ProcessKey) -> bool:
        """Whether the dump had left the target stopped: it ran before, and a tracer that is gone lets go within moments."""
        until = time.monotonic() + _SETTLES
        while (stat := self.procfs.stat(key.pid)) is not None and stat.start == key.start and stat.state in "Tt":
            if time.monotonic() > until:
                if stat.state == "T":
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(key.pid, signal.SIGCONT)
                        return True
                return False
            time.sleep(0.01)
        return False
