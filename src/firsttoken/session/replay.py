"""A recorded run, folded again: the same list of events through the same judge. What differs from the recorded verdicts is shown."""

from collections.abc import Iterable
from dataclasses import dataclass

from firsttoken.judge.advance import advance, initial
from firsttoken.judge.state import State
from firsttoken.model.events import Event, Judged, Planned, SecretsInLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A verdict that began at `t`, as judged now."""

    t: float
    verdict: str
    phase: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """`recorded`: the verdicts that the run's own observer came to; `version` the program that did. `secrets_in_log`: (offset, length)
    of what its observer knew as secrets in the raw log."""

    state: State
    changes: tuple[Change, ...]
    recorded: tuple[tuple[str, str], ...]
    version: str
    secrets_in_log: tuple[tuple[int, int], ...] = ()

    @property
    def same(self) -> bool:
        """Whether today's judge says what was said then. An observer that was killed may not have told the last changes."""
        now = tuple((change.verdict, change.phase) for change in self.changes)
        return now[: len(self.recorded)] == self.recorded


def replay(events: Iterable[Event]) -> Replayed:
    state, version = initial(), ""
    changes: list[Change] = []
    recorded: list[tuple[str, str]] = []
    ranges: list[tuple[int, int]] = []
    for event in events:
        state = advance(state, event)
        decision = state.decision
        if isinstance(event.body, Judged):
            recorded.append((event.body.verdict, event.body.phase))
        if isinstance(event.body, SecretsInLog):
            ranges += event.body.ranges
        if isinstance(event.body, Planned) and not version:
            version = event.body.firsttoken
        if not changes or (changes[-1].verdict, changes[-1].phase) != (decision.verdict, decision.phase):
            changes.append(Change(t=event.t, verdict=decision.verdict, phase=decision.phase, reason=decision.reason))
    return Replayed(state=state, changes=tuple(changes), recorded=tuple(recorded), version=version, secrets_in_log=tuple(ranges))
