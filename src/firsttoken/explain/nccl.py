"""What NCCL's own lines (NCCL_DEBUG=INFO) tell: which ranks began and which completed a communicator. Pure."""

import re
from dataclasses import dataclass

# before 2.21 the line does not name the call
_INIT = re.compile(
    r"NCCL INFO (?:ncclCommInitRank\w* )?comm \S+ rank (?P<rank>\d{1,6}) nranks (?P<of>\d{1,6})[^\n]*?(?P<state>Init START|Init COMPLETE)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicatorInit:
    """Of the first communicator in the log. `state`: all, some or none of its ranks that are known completed it; None: no such lines."""

    state: str | None = None
    unfinished: tuple[int, ...] = ()


def communicator_init(log: str) -> CommunicatorInit:
    begun: set[int] = set()
    done: set[int] = set()
    for match in _INIT.finditer(log):
        (begun if match["state"] == "Init START" else done).add(int(match["rank"]))
    if not begun and not done:
        return CommunicatorInit()
    left = tuple(sorted(begun - done))
    if not done:
        return CommunicatorInit(state="none", unfinished=left)
    return CommunicatorInit(state="some" if left else "all", unfinished=left)
