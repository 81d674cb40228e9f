"""Counters over time: what processes hand on to their parents is counted once, peaks stay, silence is zero."""

from firsttoken.model.events import Body, Counters, Event, Gpus, LogActivity, Memory, WeightProgress
from firsttoken.model.gpu import GpuSample
from firsttoken.model.process import Sample
from firsttoken.report.curves import curves


def at(t: float, body: Body) -> Event:
    return Event(seq=int(t * 10), t=t, wall=t, node="n", body=body)


def sample(pid: int, ticks: int, child_ticks: int = 0, rw: int = 0, read: int = 0) -> Sample:
    return Sample(pid, 1, "S", 0, ticks, child_ticks, rw, read, 0, 0, 0, 1)


def counters(*rows: Sample) -> Counters:
    return Counters(interval=1.0, samples=rows)


def test_a_child_that_was_reaped_is_counted_once() -> None:
    events = [
        at(1, counters(sample(1, 0))),
        at(2, counters(sample(1, 0), sample(2, 100))),
        at(3, counters(sample(1, 0, child_ticks=200))),
    ]
    (cpu,) = curves(events, 10)
    assert (cpu.name, cpu.points) == ("CPU", ((2, 1.0), (3, 1.0)))


def test_what_went_without_being_reaped_gives_no_negative_value() -> None:
    events = [at(1, counters(sample(1, 0), sample(2, 900))), at(2, counters(sample(1, 50))), at(3, counters(sample(1, 150)))]
    (cpu,) = curves(events, 10)
    assert cpu.points == ((2, 0.0), (3, 1.0))


def test_bytes_that_may_not_be_read_are_no_bytes() -> None:
    events = [at(t, counters(sample(1, 0, rw=-1, read=-1), sample(2, 0, rw=t * 2_000_000, read=-1))) for t in (1, 2, 3)]
    assert [(one.name, one.points) for one in curves(events, 10)] == [("read and written", ((2, 2.0), (3, 2.0)))]


def test_samples_that_came_together_make_no_peak() -> None:
    events = [
        at(1, counters(sample(1, 0))),
        at(1.01, counters(sample(1, 50))),
        at(2, counters(sample(1, 100))),
        at(3, counters(sample(1, 200))),
    ]
    (cpu,) = curves(events, 10)
    assert cpu.points == ((2, 1.0), (3, 1.0))


def test_silence_between_lines_is_drawn_as_silence() -> None:
    events = [at(t, LogActivity(bytes=1, lines=4, fresh=0, offset=0)) for t in (1, 2, 10)]
    (log,) = curves(events, 20)
    assert log.points == ((1, 4.0), (2, 4.0), (3, 0.0), (9, 0.0), (10, 0.5), (11, 0.0), (20, 0.0))


def test_weights_and_memory_are_levels() -> None:
    events = [
        *(at(t, WeightProgress(shards=2, shards_done=0, bytes=4_000_000_000, bytes_done=t * 1_000_000_000)) for t in (1, 2)),
        *(at(t, Memory(unique=1_000_000_000, shared=500_000_000)) for t in (2, 3)),
    ]
    told = [(one.name, one.points) for one in curves(events, 10)]
    assert told == [("weights read", ((1, 1.0), (2, 2.0))), ("memory", ((2, 1.5), (3, 1.5)))]


def test_gpus_are_summed_and_what_they_do_not_tell_is_left_out() -> None:
    gpus = [(0.5, 2_000_000_000), (1.0, 1_000_000_000)]
    samples = tuple(GpuSample(index=number, busy=busy, memory_used=used) for number, (busy, used) in enumerate(gpus))
    told = {one.name: one.points for one in curves([at(t, Gpus(interval=1.0, samples=samples)) for t in (1, 2)], 10)}
    assert told == {"GPUs busy": ((1, 1.5), (2, 1.5)), "GPU memory": ((1, 3.0), (2, 3.0))}


def test_a_peak_survives_the_thinning() -> None:
    ticks = 0
    events = []
    for t in range(5000):
        ticks += 5000 if t == 3333 else 1
        events.append(at(t, counters(sample(1, ticks))))
    (cpu,) = curves(events, 5000)
    assert len(cpu.points) <= 240
    assert max(value for _, value in cpu.points) == 50.0


def test_what_comes_after_the_end_of_the_axis_is_not_drawn() -> None:
    events = [at(t, counters(sample(1, t * 100))) for t in (1, 2, 3, 4)]
    assert curves(events, 3)[0].points == ((2, 1.0), (3, 1.0))
    assert curves([], 10) == ()
