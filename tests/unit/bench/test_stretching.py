"""Stretching is a calculation: what it keeps, what it multiplies, and that the same recording gives the same verdicts."""

import itertools
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import false_alarms
from false_alarms import Live, Stretch
from firsttoken.model.events import Counters, Event, Judged, Launched, MemberSeen, Places, Planned, Stacks
from firsttoken.model.plan import Plan, Policy
from firsttoken.model.process import Member, ProcessKey, Sample
from firsttoken.model.stillness import Frame, ThreadPlace, ThreadStack
from firsttoken.model.words import Phase, Verdict
from stretching import Recording, Warp, play, sampled, write

KEY = ProcessKey("node", 7, 70)
PIECES = st.lists(st.tuples(st.floats(0.1, 50), st.floats(0.1, 20)), min_size=1, max_size=6)


def at(t: float, **counters: int) -> tuple[float, Counters]:
    row = Sample(7, 70, "S", 0, 0, 0, 0, 0, 0, 0, 1000, 4)._replace(**counters)  # type: ignore[arg-type]  # fields by name
    return t, Counters(interval=1.0, samples=(row,))


@given(PIECES, st.floats(-10, 500))
def test_a_warp_leads_there_and_back(pieces: list[tuple[float, float]], t: float) -> None:
    warp = Warp.of(pieces)
    assert math.isclose(warp.back(warp(t)), t, abs_tol=1e-6)
    assert warp(t) <= warp(t + 1.0)


def test_slower_keeps_the_work_and_longer_the_rate() -> None:
    rounds = [at(float(t), ticks=10 * t, rw_bytes=1000 * t) for t in range(11)]
    warp = Warp.of([(10.0, 3.0)])
    slower, longer = (list(sampled(rounds, warp, longer=how)) for how in (False, True))
    assert [t for t, _ in slower] == [float(t) for t in range(31)]
    assert slower[-1][1].samples[0].rw_bytes == pytest.approx(10_000, abs=1)
    assert longer[-1][1].samples[0].rw_bytes == pytest.approx(30_000, abs=1)
    steps = {b[1].samples[0].rw_bytes - a[1].samples[0].rw_bytes for a, b in itertools.pairwise(longer)}
    assert all(abs(step - 1000) <= 1 for step in steps)


def test_a_counter_that_could_not_be_read_stays_unreadable() -> None:
    rounds = [at(0.0, rw_bytes=-1), at(5.0, rw_bytes=-1)]
    assert {body.samples[0].rw_bytes for _, body in sampled(rounds, Warp.of([(5.0, 4.0)]), longer=True)} == {-1}


def story() -> list[Event]:
    """A start that moves for 5 s and then stands for 20, always in the same place, seen each second."""
    bodies: list[tuple[float, object]] = [
        (0.0, Planned(plan=Plan(), policy=Policy())),
        (0.0, Launched(process=KEY, argv=("serve",))),
        (0.1, MemberSeen(member=Member(process=KEY, parent=1, title="serve"))),
        (0.2, Judged(verdict=Verdict.STARTING, phase=Phase.CONFIG, reason="so")),
    ]
    for t in range(1, 26):
        bodies.append((float(t), at(0.0, rw_bytes=1_000_000 * min(t, 5))[1]))
        place = ThreadPlace(tid=7, main=True, state="S", wchan="futex_wait_queue", syscall="futex")
        stack = ThreadStack(tid=7, main=True, frames=(Frame("take", "lock.py", 3),))
        bodies += [(t + 0.3, Places(process=KEY, round=t, threads=(place,))), (t + 0.3, Stacks(process=KEY, round=t, threads=(stack,)))]
    return [Event(seq=n, t=t, wall=1e9 + t, node="node", body=body) for n, (t, body) in enumerate(bodies, 1)]  # type: ignore[arg-type]  # fields by name


def test_the_judge_is_shown_what_the_recording_showed_when_it_asks() -> None:
    """A real hang stays one when it is stretched: the looks reach the judge."""
    recording = Recording.of(story())
    for warp in (Warp(), Warp.of([(26.0, 2.0)])):
        assert "hung" in {one.verdict for one in play(recording, warp, longer=False)}
    blind = Recording(recording.events, recording.rounds, (), recording.phases)
    assert "hung" not in {one.verdict for one in play(blind, Warp(), longer=False)}


def test_a_recording_is_read_as_it_was_written_and_without_paths(tmp_path: Path) -> None:
    events = [*story(), Event(seq=99, t=30.0, wall=1e9, node="node", body=Launched(process=KEY, argv=("/home/me/x",)))]
    write(tmp_path / "a.jsonl.xz", events, [("/home/me", "/srv")])
    recording = Recording.read(tmp_path / "a.jsonl.xz")
    assert (len(recording.rounds), len(recording.looks)) == (25, 25)
    assert recording.events[-1].body == Launched(process=KEY, argv=("/srv/x",))
    assert play(recording, Warp(), longer=False) == play(Recording.of(events), Warp(), longer=False)


def test_the_same_seed_draws_the_same_cells() -> None:
    first, second = false_alarms.live_cells(3), false_alarms.live_cells(3)
    embedded = [name for name, cell in first.items() if cell.prepare is None]
    assert len(embedded) >= 40
    assert [first[name] for name in embedded] == [second[name] for name in embedded]
    stretched = false_alarms.stretched_cells(3, 40)
    assert stretched == false_alarms.stretched_cells(3, 40)


def test_a_sample_is_small_and_holds_all_sorts() -> None:
    found = false_alarms.cells(0, 240)
    chosen = false_alarms.sample(0, found, 24)
    assert len(chosen) == 24
    assert 1 <= sum(isinstance(found[name], Live) for name in chosen) <= 6
    assert any(isinstance(found[name], Stretch) for name in chosen)
