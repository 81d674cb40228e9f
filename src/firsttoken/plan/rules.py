"""A profile's conditions on a command: role, task, parallel sizes, and the timers and budgets that follow from them."""

import json
from collections.abc import Mapping, Sequence

from firsttoken.knowledge.profile import Profile, TimerRule, When, compiled
from firsttoken.model.plan import Budget, Sizes, Timer
from firsttoken.model.words import Phase, Role
from firsttoken.plan.options import Read
from firsttoken.plan.recognise import Start

WEIGHT_RATE = 250e6
"""bytes a second; a healthy load from shared storage is rarely slower for long"""
POST_LOAD_RATE = 1e9
"""bytes a second of repacking and quantising, of one node"""
HISTORY_FACTOR = 3.0
"""a phase is slow when it takes this many times its mean on this machine"""


def mentioned(profile: Profile) -> tuple[str, ...]:
    """Flags that conditions and timers ask for, beside those of options."""
    conditions = [rule.when for rule in profile.roles] + [rule.when for rule in profile.tasks]
    conditions += [when for timer in profile.timers for when in timer.when]
    flags = [when.flag for when in conditions if when.flag is not None]
    return (*flags, *(flag for timer in profile.timers for flag in timer.flags))


def role(profile: Profile, read: Read, start: Start | None) -> Role:
    return next((rule.role for rule in profile.roles if holds(rule.when, read, start)), Role.SERVES)


def task(profile: Profile, read: Read, start: Start | None) -> str:
    return next((rule.task for rule in profile.tasks if holds(rule.when, read, start)), profile.task)


def holds(when: When, read: Read, start: Start | None) -> bool:
    """Everything that is set must hold; what is not known does not."""
    if when.module is not None and (start is None or start.module != when.module):
        return False
    if when.program and (start is None or start.program != when.program):
        return False
    if when.env is not None and not _fits(when, (read.env[when.env],) if when.env in read.env else None):
        return False
    if when.flag is not None and not _fits(when, read.flags.get(when.flag)):
        return False
    return when.field is None or _field_holds(when, read)


def sizes(read: Read) -> Sizes:
    """Fields `tp pp pcp dp` multiply to the world, but for `dp_attention`, whose data parallel ranks are the tensor parallel ones.
    `dp_local` and `dp_rank` say how many of the data parallel ranks this command starts; else they are spread evenly over `nodes`."""
    tp, pp, pcp, dp, nodes = (max(1, read.number(name) or 1) for name in ("tp", "pp", "pcp", "dp", "nodes"))
    shared = read.values.get("dp_attention") is True
    replica = tp * pp * pcp
    world = replica * (1 if shared else dp)
    local = 1 if read.number("dp_rank") is not None else read.number("dp_local")
    here = replica * local if local and not shared else world // nodes
    expert = tp * (1 if shared else dp) if read.values.get("expert_parallel") is True else read.number("ep") or 1
    return Sizes(
        tp=tp,
        pp=pp,
        dp=dp,
        ep=max(1, expert),
        nodes=nodes,
        node_rank=max(0, read.number("node_rank") or 0),
        world=world,
        ranks_here=max(1, min(here, world)),
    )


def timers(profile: Profile, read: Read, start: Start | None) -> tuple[Timer, ...]:
    """The timers that run, with the seconds that the command or the environment gives them; one that is set to 0 or less is off."""
    found = []
    for rule in profile.timers:
        if rule.when and not any(holds(when, read, start) for when in rule.when):
            continue
        given = _given(rule, read)
        if given is None and rule.only_if_set:
            continue
        seconds = rule.seconds if given is None else given
        if seconds > 0:
            found.append(Timer(name=rule.name, seconds=seconds, phases=rule.phases, note=rule.note))
    return tuple(found)


def budgets(profile: Profile, history: Mapping[Phase, float] | None = None, weight_bytes: int | None = None) -> tuple[Budget, ...]:
    """Seconds a phase may take before a moving start is slow: the profile's, raised by the size of the weights (bytes) and by this
    machine's mean for the like (seconds)."""
    of_size = {Phase.WEIGHTS: (weight_bytes or 0) / WEIGHT_RATE, Phase.POST_LOAD: (weight_bytes or 0) / POST_LOAD_RATE}
    found = []
    for phase in profile.order:
        choices = [
            (profile.budgets.get(phase, 0.0), "profile"),
            (of_size.get(phase, 0.0), "size"),
            ((history or {}).get(phase, 0.0) * HISTORY_FACTOR, "history"),
        ]
        seconds, source = max(choices, key=lambda choice: choice[0])
        if seconds > 0:
            found.append(Budget(phase=phase, seconds=round(seconds, 3), source=source))
    return tuple(found)


def _fits(when: When, values: Sequence[str] | None) -> bool:
    if values is None:
        return False
    parts = {part.strip() for value in values for part in (value, *value.split(","))}
    if when.values and not parts & set(when.values):
        return False
    return when.matches is None or any(compiled(when.matches).search(value) for value in values)


def _field_holds(when: When, read: Read) -> bool:
    value = read.values.get(when.field or "")
    if value is None:
        return False
    if when.at_least is not None:
        return isinstance(value, int | float) and value >= when.at_least
    if when.matches is None and not when.values:
        return bool(value)
    if isinstance(value, Mapping):
        return _fits(when, (json.dumps(value),))
    return _fits(when, value if isinstance(value, tuple) else (_plain(value),))


def _plain(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _given(rule: TimerRule, read: Read) -> float | None:
    texts = [read.flags[flag][-1] for flag in rule.flags if read.flags.get(flag)]
    texts += [read.env[name] for name in rule.env if read.env.get(name)]
    for text in texts:
        try:
            seconds = float(text) / (1000 if rule.unit == "ms" else 1)
        except ValueError:
            continue
        return seconds if seconds < 1e9 else None
    return None
