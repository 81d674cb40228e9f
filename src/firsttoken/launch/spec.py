"""What the keeper is asked to do: one JSON object on its stdin, never in a file, because the real arguments may hold secrets."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

KEEP, STOP = "keep", "stop"


class SpecError(ValueError):
    """The launch specification cannot be used; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderWaits:
    """Seconds to wait after each rung of the stop ladder. `interrupt` 0: no SIGINT rung.

    `leftovers`: between SIGTERM and SIGKILL for what a launched process that ended has left; `drained`: the same after a forwarded stop,
    where a wrapper may have ended first and the engine behind it still drains.
    """

    interrupt: float = 0.0
    terminate: float = 10.0
    leftovers: float = 5.0
    drained: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """`argv` is executed as it is; `shown_argv` (secrets masked) is what events and files show.

    `env`: additions that the user asked for. `cwd` None: the caller's. `stdin_fd`: an inherited descriptor that becomes the server's
    stdin, None: /dev/null. `life_fd`: read end of a pipe whose other end the face holds; its end without a `bye` is the face's death.
    `terminates`: how many SIGTERMs come before SIGKILL. `observer_argv` empty: no observer. `secrets`: values that the observer masks in
    what it reports; they go to it through a pipe and are never written. `observer_silence`: seconds without a word after which an observer
    is taken for hung (it tells counters every ten seconds at least).
    """

    run: str
    node: str
    argv: tuple[str, ...]
    shown_argv: tuple[str, ...]
    attempt: int = 1
    env: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    mark: bool = True
    pipe: bool = False
    stdin_fd: int | None = None
    life_fd: int | None = None
    cgroup: bool = True
    on_observer_death: str = KEEP
    observer_argv: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    terminates: int = 1
    rows: int = 50
    columns: int = 200
    waits: LadderWaits = field(default_factory=LadderWaits)
    observer_silence: float = 90.0

    def to_json(self) -> bytes:
        """Arguments that are not UTF-8 travel as surrogate escapes."""
        return json.dumps(asdict(self)).encode("ascii")


def from_json(raw: bytes) -> LaunchSpec:
    """SpecError where something is missing or of a wrong kind."""
    try:
        value = json.loads(raw)
    except ValueError as cause:
        raise SpecError("the launch specification is not JSON") from cause
    if not isinstance(value, dict):
        raise SpecError("the launch specification is not a JSON object")
    unknown = value.keys() - LaunchSpec.__dataclass_fields__.keys()
    if unknown:
        raise SpecError(f"the launch specification has unknown fields: {', '.join(sorted(unknown))}")
    checked: dict[str, Any] = {}
    for name, item in value.items():
        wanted = _KINDS[name]
        if not isinstance(item, wanted) or (isinstance(item, bool) and bool not in wanted):
            raise SpecError(f"{name} of the launch specification has the wrong kind: {type(item).__name__}")
        checked[name] = _strings(name, item) if isinstance(item, list) else item
    for name in ("run", "node", "argv", "shown_argv"):
        if not checked.get(name):
            raise SpecError(f"the launch specification has no {name}")
    if not all(isinstance(item, str) for item in checked.get("env", {}).values()):
        raise SpecError("env of the launch specification has a value that is not a string")
    if checked.get("on_observer_death", KEEP) not in (KEEP, STOP):
        raise SpecError("on_observer_death is neither keep nor stop")
    if "waits" in checked:
        checked["waits"] = _waits(checked["waits"])
    return LaunchSpec(**checked)


def _strings(name: str, items: list[Any]) -> tuple[str, ...]:
    if not all(isinstance(item, str) and "\0" not in item for item in items):
        raise SpecError(f"{name} of the launch specification has an item that is no string, or one with a NUL byte")
    return tuple(items)


def _waits(value: dict[str, Any]) -> LadderWaits:
    if value.keys() - LadderWaits.__dataclass_fields__.keys() or not all(isinstance(item, int | float) for item in value.values()):
        raise SpecError("waits of the launch specification has an unknown field, or one that is not a number")
    return LadderWaits(**{name: float(item) for name, item in value.items()})


_NUMBER_OR_NONE = (int, type(None))
_KINDS: dict[str, tuple[type, ...]] = {
    "run": (str,),
    "node": (str,),
    "argv": (list,),
    "shown_argv": (list,),
    "attempt": (int,),
    "env": (dict,),
    "cwd": (str, type(None)),
    "mark": (bool,),
    "pipe": (bool,),
    "stdin_fd": _NUMBER_OR_NONE,
    "life_fd": _NUMBER_OR_NONE,
    "cgroup": (bool,),
    "on_observer_death": (str,),
    "observer_argv": (list,),
    "secrets": (list,),
    "terminates": (int,),
    "rows": (int,),
    "columns": (int,),
    "waits": (dict,),
    "observer_silence": (int, float),
}
