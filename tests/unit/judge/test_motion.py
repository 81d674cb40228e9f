"""What counts as progress between two samples, and how stillness and stops are counted in sampled seconds."""

import pytest

from firsttoken.judge.motion import BYTES_FLOOR, FAULTS_FLOOR, STORAGE_FLOOR, Motion, hint, sampled
from firsttoken.model.process import Sample

ZERO = Sample(100, 1, "S", 0, 0, 0, 0, 0, 0, 0, 1000, 4)


def after(*steps: Sample, interval: float = 1.0, gap: float = 1.0) -> Motion:
    """From a first sample of zeros, the others `gap` seconds apart."""
    motion, t = sampled(Motion(), (ZERO,), 0.0, interval), 0.0
    for step in steps:
        t += gap
        motion = sampled(motion, (step,), t, interval)
    return motion


def test_the_first_sample_is_only_a_beginning() -> None:
    motion = sampled(hint(Motion(), "births"), (ZERO._replace(rw_bytes=10**9),), 5.0, 1.0)
    assert (motion.still, motion.at, motion.moved_at, motion.signals, motion.pending) == (0.0, 5.0, 5.0, (), frozenset())


@pytest.mark.parametrize(
    ("change", "signal"),
    [
        ({"rw_bytes": BYTES_FLOOR}, "bytes"),
        ({"read_bytes": STORAGE_FLOOR}, "storage"),
        ({"faults": FAULTS_FLOOR}, "faults"),
        ({"child_ticks": 1}, "children"),
    ],
)
def test_strong_signals_end_stillness(change: dict[str, int], signal: str) -> None:
    motion = after(ZERO, ZERO, ZERO._replace(**change))  # type: ignore[arg-type]  # fields by name
    assert (motion.still, motion.signals, motion.moved_at) == (0.0, (signal,), 3.0)


@pytest.mark.parametrize(
    "change",
    [
        {"rw_bytes": BYTES_FLOOR - 1},
        {"read_bytes": STORAGE_FLOOR - 1},
        {"faults": FAULTS_FLOOR - 1},
        {"ticks": 100, "main_ticks": 100},
        {"threads": 50},
        {"rss_pages": 10**6},
        {"major_faults": 5},
    ],
)
def test_weak_signals_and_small_change_do_not(change: dict[str, int]) -> None:
    assert after(ZERO, ZERO, ZERO._replace(**change)).still == 3.0  # type: ignore[arg-type]  # fields by name


def test_small_changes_of_many_processes_add_up() -> None:
    many = [ZERO._replace(pid=pid) for pid in range(10)]
    motion = sampled(Motion(), many, 0.0, 1.0)
    assert sampled(motion, [one._replace(rw_bytes=BYTES_FLOOR // 8) for one in many], 1.0, 1.0).still == 0.0


def test_a_store_that_asks_itself_a_hundred_times_a_second_stands_still() -> None:
    """torch's, whose host waits for a node that never comes."""
    assert after(ZERO._replace(rw_bytes=4600), ZERO._replace(rw_bytes=9200)).still == 2.0


def test_the_floors_are_a_second_s_worth() -> None:
    """A gap of ten seconds must bring ten times as much."""
    assert after(ZERO._replace(rw_bytes=BYTES_FLOOR * 5), gap=10.0, interval=10.0).still == 10.0
    assert after(ZERO._replace(rw_bytes=BYTES_FLOOR * 10), gap=10.0, interval=10.0).still == 0.0


def test_a_gap_counts_at_most_twice_the_interval() -> None:
    assert after(ZERO, gap=600.0).still == 2.0
    assert after(ZERO, gap=600.0, interval=10.0).still == 20.0


def test_a_pid_that_was_taken_anew_is_another_process() -> None:
    assert after(ZERO._replace(start=2, rw_bytes=10**9)).still == 1.0


def test_counters_that_go_back_are_no_progress() -> None:
    motion = sampled(Motion(), (ZERO._replace(rw_bytes=10**9),), 0.0, 1.0)
    motion = sampled(motion, (ZERO,), 1.0, 1.0)
    assert (motion.still, motion.reading) == (1.0, 0.0)


def test_io_that_may_not_be_read_is_no_progress() -> None:
    assert after(ZERO._replace(rw_bytes=-1, read_bytes=-1), ZERO._replace(rw_bytes=-1, read_bytes=-1)).still == 2.0


def test_a_hint_counts_once() -> None:
    motion = hint(hint(after(ZERO, ZERO), "log"), "log")
    motion = sampled(motion, (ZERO,), 3.0, 1.0)
    assert (motion.still, motion.signals) == (0.0, ("log",))
    motion = sampled(motion, (ZERO,), 4.0, 1.0)
    assert (motion.still, motion.signals) == (1.0, ("log",)), "what moved last stays told"


def test_a_hint_ends_stillness_at_once() -> None:
    assert hint(after(ZERO, ZERO, ZERO), "log").still == 0.0


def test_a_process_that_gets_no_cpu_is_starved_and_stands_still_for_no_second() -> None:
    running = ZERO._replace(state="R")
    motion = after(running, running, running)
    assert motion.starved
    assert motion.still == 0.0


def test_a_process_that_runs_and_does_nothing_else_is_still() -> None:
    motion = after(*[ZERO._replace(state="R", ticks=100 * n) for n in range(1, 4)])
    assert not motion.starved
    assert (motion.still, motion.busy) == (3.0, 1.0)


def test_who_moves_is_not_starved() -> None:
    assert not after(ZERO._replace(state="R", rw_bytes=10**6)).starved


@pytest.mark.parametrize("state", ["T", "t"])
def test_a_stop_is_counted_from_the_first_sample_that_showed_it(state: str) -> None:
    halted = ZERO._replace(state=state)
    assert after(halted).stopped == {}
    assert after(halted, halted, halted).stopped == {100: 2.0}
    assert after(halted, halted, ZERO, halted, halted).stopped == {100: 1.0}, "what was continued begins anew"


def test_a_stop_is_counted_in_sampled_seconds_too() -> None:
    halted = ZERO._replace(state="T")
    assert after(halted, halted, gap=600.0).stopped == {100: 2.0}


def test_the_stop_of_a_process_is_not_that_of_its_successor() -> None:
    halted = ZERO._replace(state="T")
    assert after(halted, halted, halted._replace(start=2)).stopped == {}


def test_rates_are_a_second() -> None:
    motion = after(ZERO._replace(ticks=400, child_ticks=100, rw_bytes=8_000_000), gap=2.0)
    assert (motion.busy, motion.children, motion.reading) == (2.0, 0.5, 4_000_000)


def test_a_clock_that_goes_back_neither_raises_nor_counts() -> None:
    motion = sampled(after(ZERO, ZERO), (ZERO,), -5.0, 1.0)
    assert motion.still == pytest.approx(2.0, abs=0.01)
    assert motion.at == 2.0


@pytest.mark.parametrize(("faults", "written", "moves"), [
    (FAULTS_FLOOR * 4 - 1, 0, False), (FAULTS_FLOOR * 4, 0, True), (0, BYTES_FLOOR * 4 - 1, False), (0, BYTES_FLOOR * 4, True),
])  # fmt: skip
def test_what_a_hung_start_still_does_adds_up_over_a_longer_gap(faults: int, written: int, moves: bool) -> None:
    motion = after(ZERO._replace(faults=faults, rw_bytes=written), gap=4.0, interval=4.0)
    assert (motion.still == 0.0) is moves


def test_bytes_from_storage_count_however_few_come_in_however_long() -> None:
    assert after(ZERO._replace(read_bytes=STORAGE_FLOOR), gap=4.0, interval=4.0).signals == ("storage",)
