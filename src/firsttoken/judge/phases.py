"""Milestones, rank by rank, into phases. The run's phase is the earliest in the profile's order that some rank has not left.

A line of scope `one` or `main` speaks for all ranks. A phase whose end the engine logs is left only there; any other ends where a later
one begins, so a phase that begins inside another does not replace it. Should an end line be missed (its wording changed), the phase is
taken as left when two phases beyond the next one have begun, or the server listens.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import TypeVar

from firsttoken.model.events import LogLine
from firsttoken.model.words import USUAL_ORDER, Edge, Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Seconds since launch. `end` None: not left yet, as far as was logged."""

    begin: float
    end: float | None = None


T = TypeVar("T")
Track = Mapping[Phase, Span]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseBook:
    """`shared` holds what was logged for all ranks, `ranks` what each rank logged of itself."""

    order: tuple[Phase, ...] = USUAL_ORDER
    ended_by_line: frozenset[Phase] = frozenset()
    shared: Track = field(default_factory=dict)
    ranks: Mapping[int, Track] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTime:
    """One phase of the run: `seconds` from its first begin to its last end, None while some rank is in it."""

    phase: Phase
    began: float
    seconds: float | None
    ranks_done: int


def _of_the_last_book(work: Callable[[PhaseBook, int], T]) -> Callable[[PhaseBook, int], T]:
    """Asked at every event, and a book changes with few of them: the last answer holds while the very same book is asked about."""
    last: list[tuple[PhaseBook, int, T]] = []

    @wraps(work)
    def remembered(book: PhaseBook, expected: int) -> T:
        if not last or last[0][0] is not book or last[0][1] != expected:
            last[:] = [(book, expected, work(book, expected))]
        return last[0][2]

    return remembered


def note(book: PhaseBook, line: LogLine, rank: int | None, t: float) -> PhaseBook:
    """The book after one milestone line at `t`."""
    if line.phase is None or line.edge is None:
        return book
    if rank is None or line.scope != "rank":
        return replace(book, shared=_mark(book.shared, line.phase, line.edge, t))
    track = book.ranks.get(rank, {})
    return replace(book, ranks={**book.ranks, rank: _mark(track, line.phase, line.edge, t)})


def enter(book: PhaseBook, phase: Phase, t: float) -> PhaseBook:
    """All ranks are in `phase`: for what is known without a log line (launch, a listening socket, our request)."""
    return replace(book, shared=_mark(book.shared, phase, Edge.BEGIN, t))


def leave(book: PhaseBook, phase: Phase, t: float) -> PhaseBook:
    return replace(book, shared=_mark(book.shared, phase, Edge.END, t))


@_of_the_last_book
def current(book: PhaseBook, expected: int) -> Phase:
    """The earliest phase that some of `expected` ranks has not left."""
    places = rank_phases(book, expected)
    position = {phase: i for i, phase in enumerate(book.order)}
    return min(places.values(), key=lambda phase: position.get(phase, 0))


def rank_phases(book: PhaseBook, expected: int) -> dict[int, Phase]:
    """Where each rank is. Ranks that never logged a line of their own are placed by the shared lines."""
    of_shared = _place(book, {})
    return {rank: _place(book, own) if (own := book.ranks.get(rank)) else of_shared for rank in _ranks(book, expected)}


def behind(book: PhaseBook, expected: int) -> tuple[int, ...]:
    """Ranks in an earlier phase than the furthest; empty where all are alike."""
    position = {phase: i for i, phase in enumerate(book.order)}
    places = {rank: position.get(phase, 0) for rank, phase in rank_phases(book, expected).items()}
    furthest = max(places.values())
    return tuple(rank for rank, place in places.items() if place < furthest)


def tracks(book: PhaseBook, expected: int) -> dict[int, dict[Phase, Span]]:
    """Each rank's phases in the profile's order, with the ends that are implied by what began later."""
    of_shared = _track(book, {})
    return {rank: _track(book, own) if (own := book.ranks.get(rank)) else of_shared for rank in _ranks(book, expected)}


@_of_the_last_book
def times(book: PhaseBook, expected: int) -> tuple[PhaseTime, ...]:
    """All phases that began, in the profile's order."""
    all_ranks = list(tracks(book, expected).values())
    found: list[PhaseTime] = []
    for phase in book.order:
        spans = [track[phase] for track in all_ranks if phase in track]
        if not spans:
            continue
        began = min(span.begin for span in spans)
        ends = [span.end for span in spans if span.end is not None]
        done = len(ends) == len(all_ranks)
        found.append(PhaseTime(phase=phase, began=began, seconds=max(ends) - began if done else None, ranks_done=len(ends)))
    return tuple(found)


def _ranks(book: PhaseBook, expected: int) -> list[int]:
    """Those that logged and those that are still to come. Nodes hold blocks of `expected` ranks: a follower's are not the first ones."""
    size = max(expected, 1)
    first = max(min(book.ranks, default=0), 0) // size * size
    return sorted({*book.ranks, *range(first, first + size)})


def _mark(track: Track, phase: Phase, edge: Edge, t: float) -> Track:
    """The first begin and the first end count. A line inside a phase that has ended reopens nothing."""
    span = track.get(phase)
    if edge is Edge.END:
        if span is not None and span.end is not None:
            return track
        return {**track, phase: Span(begin=span.begin if span else t, end=t)}
    return track if span is not None else {**track, phase: Span(begin=t)}


def _track(book: PhaseBook, own: Track) -> dict[Phase, Span]:
    merged = _merged(book, own)
    return {phase: span for phase in book.order if (span := _closed(book, merged, phase)) is not None}


def _merged(book: PhaseBook, own: Track) -> Track:
    """A rank's own lines with those that speak for all; of a phase in both, the earlier begin and the rank's own end if it has one."""
    merged = dict(book.shared)
    for phase, span in own.items():
        other = merged.get(phase)
        if other is None:
            merged[phase] = span
        else:
            merged[phase] = Span(begin=min(span.begin, other.begin), end=span.end if span.end is not None else other.end)
    return merged


def _closed(book: PhaseBook, track: Track, phase: Phase) -> Span | None:
    """The span of a phase with its end filled in where it is implied by what began later in the order."""
    span = track.get(phase)
    if span is None or span.end is not None:
        return span
    later = [p for p in book.order[book.order.index(phase) + 1 :] if p in track and track[p].begin >= span.begin]
    if phase in book.ended_by_line:
        beyond = [p for p in later if book.order.index(p) >= book.order.index(phase) + 2]
        later = beyond if len(beyond) > 1 or Phase.LISTENING in beyond or Phase.FIRST_TOKEN in beyond else []
    if not later:
        return span
    return Span(begin=span.begin, end=min(track[p].begin for p in later))


def _place(book: PhaseBook, own: Track) -> Phase:
    """The earliest open phase; where all are closed, the latest one (it counts until the next begins)."""
    track = _merged(book, own)
    begun = [phase for phase in book.order if phase in track]
    if not begun:
        return book.order[0]
    for phase in begun:
        span = _closed(book, track, phase)
        if span is not None and span.end is None:
            return phase
    return begun[-1]
