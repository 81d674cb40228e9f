"""The attempt before this one, post mortem: what ended it, where it could not say so itself.

A supervisor (a pod's restart policy, systemd) starts the same command again after it killed it: a start-up probe lost patience, the
OOM killer came, the whole container went. The killed attempt had no last word; the next one finds its record and says what it shows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firsttoken.history.runs import RunFolder
from firsttoken.model.codec import decode
from firsttoken.model.events import Body, Emptied, Exited, LaunchFailed, OomKill, StopAsked

RECENT = 900.0
"""seconds from its last event: a supervisor waits at most some minutes between two attempts"""
_LOOKED_AT = 20
_TAIL = 1 << 18
_KILLED = (9, 137)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What its folder tells. `attempt` is its number. `seconds`: since its launch, at its last event. `served`: its first token came.
    `stop_by`: who asked for its end. `exit`: signal or status. `ended`: an end was recorded."""

    run: str
    attempt: int
    seconds: float
    phase: str | None
    served: bool
    stop_by: str | None
    exit: int | None
    oom: bool
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PostMortem:
    """`attempt`: the number of the next attempt. `text`: one sentence."""

    run: str
    attempt: int
    text: str


def latest(folders: Iterable[RunFolder], command: Sequence[str], node: str, now: float) -> tuple[RunFolder, Attempt] | None:
    """The latest run of the same command on this node, where it is recent. `now`: Unix time. `folders` oldest first."""
    for folder in list(folders)[: -_LOOKED_AT - 1 : -1]:
        spec = folder.spec()
        if spec.get("command") != list(command) or folder.attached():
            continue
        bodies, last_t, last_wall, last_node = _tail(folder)
        if last_node != node or now - last_wall > RECENT:
            return None
        return folder, _attempt(folder.name, folder.result(), spec, bodies, last_t)
    return None


def post_mortem(before: Attempt) -> PostMortem | None:
    """None where it ended by itself, or because somebody who sat there wanted it to."""
    where = "after its first token" if before.served else f"in {before.phase}" if before.phase else "before its first token"
    when = f"after {before.seconds:.0f} s {where}"
    if before.oom:
        how = f"was killed by the kernel's OOM killer {when}"
    elif before.stop_by is None and before.exit in _KILLED:
        probe = "liveness" if before.served else "start-up"
        how = f"was killed by SIGKILL {when}: looks like an OOM kill or a {probe} probe"
    elif before.stop_by == "signal SIGTERM" and not before.served:
        how = f"was told to end by SIGTERM {when}: looks like a start-up probe or a time limit that is shorter than this start"
    elif not before.ended and before.stop_by is None:
        how = f"broke off without a last word {when}: killed together with firsttoken, as by a probe, an OOM kill or a restart"
    else:
        return None
    return PostMortem(run=before.run, attempt=before.attempt + 1, text=f"the previous attempt ({before.run}) {how}")


def _attempt(run: str, result: Mapping[str, Any], spec: Mapping[str, Any], bodies: Sequence[Body], last_t: float) -> Attempt:
    number = spec.get("attempt")
    exits = [body for body in bodies if isinstance(body, Exited) and body.root]
    rows = result.get("phases")
    done = [row.get("name") for row in rows if isinstance(row, dict) and row.get("seconds") is not None] if isinstance(rows, list) else []
    phase = result.get("phase")
    return Attempt(
        run=run,
        attempt=number if isinstance(number, int) else 1,
        seconds=last_t,
        phase=phase if isinstance(phase, str) else None,
        served="first_token" in done or result.get("verdict") in ("ready", "unserving"),
        stop_by=next((body.by for body in bodies if isinstance(body, StopAsked)), None),
        exit=(exits[-1].signal if exits[-1].signal is not None else exits[-1].code) if exits else None,
        oom=any(isinstance(body, OomKill) for body in bodies),
        ended=bool(exits) or any(isinstance(body, Emptied | LaunchFailed) for body in bodies),
    )


def _tail(folder: RunFolder) -> tuple[list[Body], float, float, str]:
    """The last events: bodies, and the last one's time, wall clock and node. Empty and 0 where there are none."""
    try:
        with folder.events_file.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - _TAIL, 0))
            lines = file.read().splitlines()
    except OSError:
        return [], 0.0, 0.0, ""
    events = [event for line in lines if (event := decode(line)) is not None]
    last = events[-1] if events else None
    return [event.body for event in events], last.t if last else 0.0, last.wall if last else 0.0, last.node if last else ""
