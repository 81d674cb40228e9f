"""Recorded starts made longer: the same events at other times, counters sampled anew, looks answered from what was seen then.

Key insight: a start on a slower machine, or of a larger model, does the same in the same order; only its pace differs. So a recording is
warped piece by piece (a factor for each phase), and the observer's part is played again: counters each second, and a close look whenever
the judge asks for one, which shows what the recording showed at that moment. Nothing here touches the world: same recording, same warp,
same verdicts.

`slower` keeps the amount of work, so that all rates fall; `longer` keeps the rates, so that there is more work. Both are starts that a real
machine can have, and neither is hung.
"""

import heapq
import itertools
import json
import lzma
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from firsttoken.judge.advance import advance, initial
from firsttoken.judge.wants import wants
from firsttoken.model import codec
from firsttoken.model.events import (
    Body,
    Counters,
    Event,
    HttpAnswer,
    HttpAsked,
    Judged,
    Listening,
    LogLine,
    MemberSeen,
    Places,
    Planned,
    Stacks,
)
from firsttoken.model.plan import Policy
from firsttoken.model.process import ProcessKey, Sample
from firsttoken.model.requests import LookClosely
from firsttoken.model.words import Edge

LOOK_TAKES = 0.5
"""seconds from the wish for a look to the look"""
NEAR = 5.0
"""recorded seconds: a look further away tells nothing of this moment"""
_CUMULATIVE = ("main_ticks", "ticks", "child_ticks", "rw_bytes", "read_bytes", "faults", "major_faults")
"""of a Sample; a negative one could not be read"""


@dataclass(frozen=True, slots=True)
class Warp:
    """Recorded seconds to stretched ones, piece by piece. `knots` rise in both; outside of them time runs as it did."""

    knots: tuple[tuple[float, float], ...] = ((0.0, 0.0),)

    def __call__(self, t: float) -> float:
        return _along(self.knots, t)

    def back(self, t: float) -> float:
        return _along(tuple((to, at) for at, to in self.knots), t)

    @classmethod
    def of(cls, pieces: Iterable[tuple[float, float]], start: float = 0.0) -> "Warp":
        """From (recorded length, factor) of one piece after the other."""
        knots = [(start, start)]
        for length, factor in pieces:
            if length > 0:
                knots.append((knots[-1][0] + length, knots[-1][1] + length * factor))
        return cls(tuple(knots))


def _along(knots: Sequence[tuple[float, float]], t: float) -> float:
    place = bisect_right([at for at, _ in knots], t)
    if place == 0 or place == len(knots):
        at, to = knots[0] if place == 0 else knots[-1]
        return to + (t - at)
    (a, x), (b, y) = knots[place - 1], knots[place]
    return x + (t - a) * (y - x) / (b - a)


@dataclass(frozen=True, slots=True)
class Recording:
    """`events` without counters, looks and verdicts; `rounds` of counters; `looks` at all processes, each with its time."""

    events: tuple[Event, ...]
    rounds: tuple[tuple[float, Counters], ...]
    looks: tuple[tuple[float, tuple[Places | Stacks, ...]], ...]
    phases: tuple[tuple[float, str], ...]
    """when each phase began on the first rank, and when it was ready"""
    marks: tuple[float, ...] = ()
    """when something began or ended that makes another picture: a phase of a rank, a request, a listening socket"""

    @property
    def seconds(self) -> float:
        return self.rounds[-1][0] if self.rounds else 0.0

    @classmethod
    def of(cls, events: Iterable[Event]) -> "Recording":
        kept: list[Event] = []
        rounds: list[tuple[float, Counters]] = []
        looks: dict[int, list[tuple[float, Places | Stacks]]] = {}
        phases: list[tuple[float, str]] = []
        for event in _told_in_time(events):
            match event.body:
                case Counters():
                    rounds.append((event.t, event.body))
                case Places() | Stacks():
                    looks.setdefault(event.body.round, []).append((event.t, event.body))
                case Planned():  # judged by today's thresholds
                    kept.append(replace(event, body=replace(event.body, policy=Policy())))
                case Judged():
                    if event.body.verdict == "ready":
                        phases.append((event.t, "ready"))
                case _:
                    name = _begins(event.body)
                    if name is not None and name not in {known for _, known in phases}:
                        phases.append((event.t, name))
                    kept.append(event)
        marks = tuple(event.t for event in kept if _is_mark(event.body))
        whole = sorted((found[0][0], tuple(body for _, body in found)) for found in looks.values())
        return cls(tuple(kept), tuple(rounds), tuple(whole), tuple(phases), marks)

    @classmethod
    def read(cls, path: Path) -> "Recording":
        """A compressed list of events (`.jsonl.xz`); looks stand in it at their times."""
        with lzma.open(path) as lines:
            found = [event for line in lines if (event := codec.decode(line)) is not None]
        return cls.of(sorted(found, key=lambda event: event.t))


@dataclass(frozen=True, slots=True)
class Verdict:
    """A change of verdict or phase. `t` in stretched seconds, `still` how long nothing had moved then."""

    t: float
    verdict: str
    phase: str
    reason: str


def play(recording: Recording, warp: Warp, *, longer: bool) -> list[Verdict]:
    """The verdicts of the stretched start, by the judge as it is now."""
    state, found = initial(), list[Verdict]()
    ahead: list[tuple[float, int, Body]] = []
    ties = itertools.count()
    asked = 0
    source = _merged(recording, warp, longer)
    upcoming = next(source, None)
    seq = 0
    while upcoming is not None or ahead:
        if ahead and (upcoming is None or ahead[0][0] <= upcoming[0]):
            t, _, body = heapq.heappop(ahead)
        else:
            assert upcoming is not None
            t, body = upcoming
            upcoming = next(source, None)
        seq += 1
        state = advance(state, Event(seq=seq, t=t, wall=1e9 + t, node=state.node or _node(recording), body=body))
        told = state.decision
        if not found or (found[-1].verdict, found[-1].phase) != (told.verdict, told.phase):
            found.append(Verdict(t, str(told.verdict), str(told.phase), told.reason))
        for request in wants(state, state.policy):
            if isinstance(request, LookClosely) and request.number > asked:
                asked = request.number
                for look in _look(recording, warp.back(t), asked, {m.process for m in state.members.values()}):
                    heapq.heappush(ahead, (t + LOOK_TAKES, next(ties), look))
    return found


def _node(recording: Recording) -> str:
    return recording.events[0].node if recording.events else ""


def _look(recording: Recording, at: float, number: int, members: set[ProcessKey]) -> list[Places | Stacks]:
    """The nearest look since the last mark and before the next, as far as its processes are members; none where there is none."""
    piece = bisect_right(recording.marks, at)
    looks = [look for look in recording.looks if abs(look[0] - at) <= NEAR and bisect_right(recording.marks, look[0]) == piece]
    if not looks:
        return []
    _, bodies = min(looks, key=lambda look: abs(look[0] - at))
    return [replace(body, round=number) for body in bodies if body.process in members]


def _told_in_time(events: Iterable[Event]) -> list[Event]:
    """Log lines at the time of their own stamps: that an observer on a busy machine read them late is no part of the start's pace."""

    def at(event: Event) -> float:
        stamp = event.body.stamp if isinstance(event.body, LogLine) else None
        return event.t if stamp is None else min(max(stamp - (event.wall - event.t), 0.0), event.t)

    return sorted((replace(event, t=at(event)) for event in events), key=lambda event: event.t)


def _begins(body: Body) -> str | None:
    if isinstance(body, LogLine) and body.phase is not None and body.edge is Edge.BEGIN:
        return str(body.phase)
    return "listening" if isinstance(body, Listening) else "first_token" if isinstance(body, HttpAsked) else None


def _is_mark(body: Body) -> bool:
    return isinstance(body, HttpAsked | HttpAnswer | Listening) or (isinstance(body, LogLine) and body.milestone is not None)


def _merged(recording: Recording, warp: Warp, longer: bool) -> Iterator[tuple[float, Body]]:
    """Counters last where times are equal: what the other watchers found counts for the same round."""
    events = ((warp(event.t), 0, event.body) for event in recording.events)
    counters = ((t, 1, body) for t, body in sampled(recording.rounds, warp, longer=longer))
    for t, _, body in heapq.merge(events, counters, key=lambda row: row[:2]):
        yield t, body


def sampled(rounds: Sequence[tuple[float, Counters]], warp: Warp, *, longer: bool) -> Iterator[tuple[float, Counters]]:
    """Counters at the sampling interval of the stretched start, between the recorded ones by straight lines."""
    if not rounds:
        return
    interval = rounds[0][1].interval
    meter = _Meter(rounds)
    t, end = warp(rounds[0][0]), warp(rounds[-1][0])
    before = rounds[0][0]
    while t <= end:
        at = warp.back(t)
        gain = interval / (at - before) if longer and at > before else 1.0
        yield t, Counters(interval=interval, samples=meter.step(before, at, gain))
        before, t = at, t + interval


@dataclass(slots=True)
class _Meter:
    """Follows each process through the recorded rounds and counts what it does, times a gain."""

    rounds: Sequence[tuple[float, Counters]]
    _points: dict[tuple[int, int], list[tuple[float, Sample]]] = field(default_factory=dict)
    _totals: dict[tuple[int, int], list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for t, body in self.rounds:
            for sample in body.samples:
                self._points.setdefault((sample.pid, sample.start), []).append((t, sample))

    def step(self, before: float, at: float, gain: float) -> tuple[Sample, ...]:
        return tuple(
            self._one(key, points, before, at, gain) for key, points in self._points.items() if points[0][0] <= at <= points[-1][0]
        )

    def _one(self, key: tuple[int, int], points: list[tuple[float, Sample]], before: float, at: float, gain: float) -> Sample:
        level, now = _between(points, at)
        totals = self._totals.get(key)
        if totals is None:
            totals = self._totals[key] = list(now)
        else:
            _, then = _between(points, max(before, points[0][0]))
            for place, (old, new) in enumerate(zip(then, now, strict=True)):
                totals[place] += max(new - old, 0.0) * gain
        counted = {name: -1 if getattr(level, name) < 0 else int(total) for name, total in zip(_CUMULATIVE, totals, strict=True)}
        return Sample(**{**level._asdict(), **counted})


def _between(points: list[tuple[float, Sample]], at: float) -> tuple[Sample, list[float]]:
    """The last sample at or before `at`, and the cumulative counters at `at`."""
    place = max(bisect_right([t for t, _ in points], at) - 1, 0)
    t, level = points[place]
    low = _counts(level)
    if place + 1 >= len(points):
        return level, low
    later, following = points[place + 1]
    share = min(max((at - t) / (later - t), 0.0), 1.0) if later > t else 0.0
    return level, [a + (b - a) * share for a, b in zip(low, _counts(following), strict=True)]


def _counts(sample: Sample) -> list[float]:
    return [float(getattr(sample, name)) for name in _CUMULATIVE]


def members(recording: Recording) -> int:
    return len({event.body.member.process for event in recording.events if isinstance(event.body, MemberSeen)})


def write(path: Path, events: Iterable[Event], hidden: Iterable[tuple[str, str]] = ()) -> None:
    """`hidden`: what stands in its place where a text of this machine would tell nothing to others (its paths)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(path, "wb", preset=9) as file:
        for event in events:
            line = codec.encode(event).decode()
            for text, other in hidden:
                line = line.replace(json.dumps(text)[1:-1], other)
            file.write(line.encode())
