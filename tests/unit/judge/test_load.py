"""How a load went: from where, against what limit, and why not faster."""

from dataclasses import replace

import pytest
from story import Story

from firsttoken.judge.load import is_over, load_row
from firsttoken.judge.outcome import result
from firsttoken.model.events import Emptied, LoadSample, Prefetched, WeightProgress, WeightStorage
from firsttoken.model.weights import Bound, LoadRow, Source
from firsttoken.model.words import Edge, Phase

GB = 10**9


def loaded(
    *,
    size: int = 300 * GB,
    cached: int | None = None,
    rate: float | None = 3e9,
    seconds: int = 22,
    network: bool = False,
    samples: LoadSample | tuple[LoadSample, ...] | None = None,
    prefetched: int | None = None,
    seen_late: bool = False,
) -> Story:
    """A load of so many seconds; `samples` each second, several in turn."""
    story = Story().launch()
    seen = WeightStorage(shards=64, bytes=size, cached=cached, path="/m", place="/ (ext4 on vda)", network=network, bytes_per_s=rate)
    if not seen_late:
        story.tell(seen)
    story.t = 5.0
    story.line(Phase.WEIGHTS).tell(WeightProgress(shards=64, shards_done=0, bytes=size, bytes_done=0))
    if prefetched is not None:
        story.tell(Prefetched(bytes=size, done=prefetched, read=prefetched, seconds=3.0, ended="done"))
    for number in range(seconds):
        story.t += 1
        if seen_late and number == 3:
            story.tell(seen)
        if samples is not None:
            story.tell(samples[number % len(samples)] if isinstance(samples, tuple) else samples)
    return story.line(Phase.WEIGHTS, Edge.END)


def row(**changes: object) -> LoadRow:
    return load_row(loaded(**changes).state)  # type: ignore[arg-type]  # tests name the fields


def test_what_is_faster_than_the_disk_came_from_memory_and_the_next_cold_start_is_foretold() -> None:
    found = row(cached=300 * GB)
    assert found.source is Source.PAGE_CACHE
    assert found.says == ("22 s for 300 GB is 14 GB/s, your disk gives 3.0 GB/s: it came from memory; the next cold start takes 100 s",)
    assert found.next_cold_s == 100.0


def test_a_cold_load_is_held_against_the_disk() -> None:
    good = row(cached=0, seconds=110)
    assert good.source is Source.STORAGE
    assert good.says[0].endswith("it came from the disk, about as fast as that goes")
    slow = row(cached=0, seconds=500)
    assert slow.limit is not None
    assert slow.limit.bytes_per_s == 3e9
    assert slow.says[0].endswith("it came from the disk, at 20% of its rate")


@pytest.mark.parametrize(
    ("sample", "reason"),
    [
        (
            LoadSample(seconds=1.0, major_faults=3000, system_s=0.9, user_s=0.1, stored_bytes=100_000_000, reads=5, read_bytes=0),
            "page_faults",
        ),
        (LoadSample(seconds=1.0, reads=100_000, read_bytes=600_000_000, stored_bytes=600_000_000, readers=4), "tiny_reads"),
        (LoadSample(seconds=1.0, reads=600, read_bytes=600_000_000, stored_bytes=600_000_000, readers=1), "one_reader"),
        (LoadSample(seconds=1.0, swapped_bytes=50_000_000, stored_bytes=600_000_000, readers=4), "swapping"),
        (LoadSample(seconds=1.0, user_s=3.0, stored_bytes=600_000_000, readers=4), "cpu"),
        (LoadSample(seconds=1.0, starved_s=0.7, stored_bytes=600_000_000, readers=4), "starved"),
        (LoadSample(seconds=1.0, system_s=1.5, user_s=0.2, stored_bytes=600_000_000, readers=4), "kernel"),
    ],
)
def test_a_load_far_below_its_limit_comes_with_the_reason(sample: LoadSample, reason: str) -> None:
    found = row(cached=0, seconds=500, samples=sample)
    assert found.reasons == (reason,)
    assert len(found.says) == 2
    assert row(cached=0, seconds=110, samples=sample).reasons == (), "near its limit nobody asks why"


def test_a_slow_load_over_the_network_names_its_round_trips() -> None:
    found = row(cached=0, seconds=1500, network=True, samples=LoadSample(seconds=1.0, stored_bytes=0, readers=1))
    assert found.source is Source.NETWORK
    assert found.reasons == ("one_reader", "network")
    assert "the network storage gives 3.0 GB/s" in found.says[0]


def test_repacking_out_of_memory_is_told_as_such() -> None:
    found = row(cached=300 * GB, seconds=1500, samples=LoadSample(seconds=1.0, user_s=1.0, stored_bytes=0))
    assert found.source is Source.PAGE_CACHE
    assert found.reasons == ("cpu",)


def test_a_prefetch_is_given_its_due() -> None:
    found = row(cached=0, prefetched=290 * GB)
    assert found.source is Source.PAGE_CACHE
    assert "where the prefetch had put 290 GB" in found.says[0]


def test_where_nothing_tells_nothing_is_claimed() -> None:
    unknown = row(cached=None, rate=None)
    assert unknown.source is None
    assert unknown.says == ("22 s for 300 GB is 14 GB/s; whether it came from memory cannot be told",)
    by_counters = row(cached=None, rate=None, seconds=100, samples=LoadSample(seconds=1.0, stored_bytes=3 * GB))
    assert by_counters.source is Source.STORAGE
    from_memory = row(cached=None, seconds=100, samples=LoadSample(seconds=1.0, stored_bytes=0))
    assert from_memory.source is Source.PAGE_CACHE


def test_a_look_that_came_late_proves_only_that_it_was_cold() -> None:
    assert row(cached=150 * GB, seen_late=True).source is None
    assert row(cached=3 * GB, seen_late=True).source is Source.STORAGE


def test_what_somebody_else_put_into_memory_meanwhile_did_not_come_from_the_disk() -> None:
    assert row(cached=0, seconds=100, samples=LoadSample(seconds=1.0, stored_bytes=0)).source is Source.PAGE_CACHE


def test_before_the_end_nothing_is_judged_and_then_the_result_tells() -> None:
    story = Story().launch().tell(WeightStorage(shards=2, bytes=GB, cached=GB))
    assert load_row(story.state).source is None
    assert not is_over(story.state)
    done = loaded(cached=300 * GB)
    assert is_over(done.state)
    told = result(done.state).weights
    assert (told.source, told.path) == ("page_cache", "/m")
    assert told.says[0].startswith("22 s for 300 GB")


def sample(**told: float) -> LoadSample:
    """Of a second in which a cold load got a fifth of what the disk gives, with several readers."""
    return replace(LoadSample(seconds=1.0, stored_bytes=600_000_000, readers=4), **told)  # type: ignore[arg-type]  # fields by name


def reasons(each: LoadSample | tuple[LoadSample, ...], **changes: object) -> tuple[str, ...]:
    return row(**{"size": 30 * GB, "cached": 0, "seconds": 50, "samples": each, **changes}).reasons


@pytest.mark.parametrize(("cached", "stored", "prefetched", "source"), [
    (150, None, None, Source.PAGE_CACHE),
    (149, None, None, Source.STORAGE),
    (100, None, 50, Source.PAGE_CACHE),
    (100, None, 49, Source.STORAGE),
    (300, 150, None, Source.STORAGE),
    (300, 149, None, Source.PAGE_CACHE),
    (300, 150, 30, Source.PAGE_CACHE),
    (300, 150, 29, Source.STORAGE),
    (0, 29, None, Source.PAGE_CACHE),
    (0, 31, None, Source.STORAGE),
    (None, 150, None, Source.STORAGE),
    (None, 149, None, None),
    (None, 31, None, None),
    (None, 29, None, Source.PAGE_CACHE),
])  # fmt: skip
def test_what_lay_in_memory_and_what_came_from_the_disk_tell_the_source(
    cached: int | None, stored: int | None, prefetched: int | None, source: Source | None
) -> None:
    """In GB, of 300."""
    each = LoadSample(seconds=1.0, stored_bytes=stored * GB // 100) if stored is not None else None
    found = row(
        cached=cached * GB if cached is not None else None,
        seconds=100,
        samples=each,
        prefetched=prefetched * GB if prefetched is not None else None,
    )
    assert found.source is source


def test_what_the_disk_of_this_machine_did_not_give_may_have_come_over_the_network() -> None:
    little = LoadSample(seconds=1.0, stored_bytes=0)
    assert row(cached=0, seconds=100, network=True, samples=little).source is Source.NETWORK
    assert row(cached=None, seconds=100, network=True, samples=little).source is None
    assert row(cached=300 * GB, seconds=100, network=True, samples=little).source is Source.PAGE_CACHE
    found = row(cached=0, seconds=100, network=True, rate=None)
    assert found.says == ("100 s for 300 GB is 3.0 GB/s: it came over the network",)


@pytest.mark.parametrize(("late", "source"), [(0.5, Source.PAGE_CACHE), (0.6, None)])
def test_a_look_at_the_page_cache_tells_what_was_there_before_for_half_a_second(late: float, source: Source | None) -> None:
    story = Story().launch()
    story.t = 5.0
    story.line(Phase.WEIGHTS)
    story.t += late
    story.tell(WeightStorage(shards=1, bytes=GB, cached=GB, bytes_per_s=1e9))
    story.t += 9
    assert load_row(story.line(Phase.WEIGHTS, Edge.END).state).source is source


def test_a_look_that_came_late_tells_a_cold_load_only_where_next_to_nothing_was_there() -> None:
    assert row(cached=29 * GB, seen_late=True).source is Source.STORAGE
    assert row(cached=30 * GB, seen_late=True).source is None


def test_a_load_faster_than_its_disk_was_measured_is_its_own_limit() -> None:
    found = row(cached=0, seconds=50)
    assert found.limit is not None
    assert (found.limit.what, found.limit.bytes_per_s) == (Bound.STORAGE, 6e9)
    far = row(cached=0, seconds=110, network=True).limit
    assert far is not None
    assert (far.what, far.bytes_per_s) == (Bound.NETWORK, 3e9)
    assert found.says[0].endswith("about as fast as that goes")


def test_the_next_cold_start_takes_as_long_as_a_cold_one_did_and_never_less_than_a_warm_one() -> None:
    assert row(cached=0, seconds=110).next_cold_s == 110
    assert row(cached=300 * GB, seconds=150).next_cold_s == 150, "the disk would take 100 s, the engine takes longer"
    unknown = row(cached=300 * GB, rate=None)
    assert unknown.next_cold_s is None
    assert unknown.says[0].endswith("it came from memory; a cold start takes longer")


def test_a_cold_load_from_a_disk_that_was_never_measured_is_held_against_nothing() -> None:
    found = row(cached=0, rate=None, seconds=100)
    assert (found.limit, found.says) == (None, ("100 s for 300 GB is 3.0 GB/s: it came from the disk",))


def test_a_prefetch_is_named_where_it_brought_half_of_it() -> None:
    assert "the prefetch had put 150 GB" in row(cached=100 * GB, prefetched=150 * GB).says[0]
    assert "prefetch" not in row(cached=100 * GB, prefetched=149 * GB).says[0]
    assert row(cached=0, prefetched=300 * GB).says[0].endswith("; the next cold start takes 100 s without one")


def test_seven_tenths_of_the_disk_are_about_as_fast_as_that_goes() -> None:
    busy = sample(user_s=3.0, stored_bytes=1_400_000_000)
    near = row(size=140 * GB, cached=0, rate=2e9, seconds=100, samples=busy)
    assert near.says == ("100 s for 140 GB is 1.4 GB/s, your disk gives 2.0 GB/s: it came from the disk, about as fast as that goes",)
    below = row(size=140 * GB, cached=0, rate=2e9, seconds=101, samples=busy)
    assert "at 69% of its rate" in below.says[0]
    assert below.reasons == ("cpu",)


def test_a_reason_is_told_only_for_a_load_that_took_seconds_and_was_slow() -> None:
    cpu = sample(user_s=3.0, stored_bytes=0)
    assert row(size=2 * GB, cached=2 * GB, seconds=2, samples=cpu).reasons == ("cpu",)
    assert row(size=GB, cached=GB, seconds=1, samples=cpu).reasons == ()
    assert row(cached=300 * GB, seconds=150, samples=cpu).reasons == ("cpu",), "two gigabytes a second"
    assert row(cached=300 * GB, seconds=149, samples=cpu).reasons == ()
    assert row(cached=300 * GB, seconds=150).reasons == (), "nothing was counted"


@pytest.mark.parametrize(("each", "told"), [
    (sample(swapped_bytes=10_000_000), ("swapping",)),
    (sample(swapped_bytes=9_900_000), ()),
    (sample(starved_s=0.31), ("starved",)),
    (sample(starved_s=0.29), ()),
    (sample(major_faults=100), ("page_faults",)),
    (sample(major_faults=99), ()),
    (sample(system_s=0.5, user_s=0.5), ("kernel",)),
    (sample(system_s=0.4), ()),
    (sample(system_s=0.6, user_s=0.7), ()),
    (sample(system_s=0.9, major_faults=100), ("page_faults",)),
    (sample(reads=10_000, read_bytes=655_350_000), ("tiny_reads",)),
    (sample(reads=10_000, read_bytes=655_360_000), ()),
    (sample(reads=10_000, read_bytes=290_000_000), ()),
    (sample(reads=10_000, read_bytes=300_000_000), ("tiny_reads",)),
    (sample(readers=1), ("one_reader",)),
    (sample(readers=2), ()),
    (sample(readers=0), ()),
    (sample(user_s=0.81), ("cpu",)),
    (sample(user_s=0.79), ()),
    (sample(user_s=0.9, system_s=1.0), ("kernel",)),
    (sample(user_s=1.1, system_s=1.0), ("cpu",)),
    (sample(swapped_bytes=50_000_000, starved_s=0.5, readers=1), ("swapping", "starved", "one_reader")),
    (sample(), ()),
])  # fmt: skip
def test_each_reason_has_a_bar_below_which_it_is_not_told(each: LoadSample, told: tuple[str, ...]) -> None:
    assert reasons(each) == told


def test_now_and_then_a_second_reader_is_still_one_at_a_time() -> None:
    assert reasons((*[sample(readers=1)] * 7, *[sample(readers=2)] * 3)) == ("one_reader",)
    assert reasons((*[sample(readers=1)] * 6, *[sample(readers=2)] * 4)) == ()


def test_who_reads_out_of_memory_need_not_read_with_several_threads() -> None:
    assert reasons(sample(readers=1, stored_bytes=0), cached=30 * GB) == ()


def test_a_reason_comes_with_its_figures() -> None:
    def said(**told: float) -> str:
        return row(size=30 * GB, cached=0, seconds=50, samples=sample(**told)).says[1]

    assert said(swapped_bytes=50_000_000).startswith("the machine swapped 2.5 GB meanwhile")
    assert "waited for a processor 50% of the time" in said(starved_s=0.5)
    faults = said(major_faults=3000, system_s=0.75, user_s=0.25)
    assert faults.startswith("150,000 page faults waited for it, 195 KiB each (3,000 a second)")
    assert faults.endswith("the kernel took 75% of the processor time")
    assert said(major_faults=3000, stored_bytes=-1).startswith("150,000 page faults waited for it (3,000 a second)")
    assert said(reads=100_000, read_bytes=614_400_000) == "5,000,000 reads of 6.0 KiB each"
    assert "(2.5 cores)" in said(user_s=2.5)
    assert said(system_s=1.5, user_s=0.5).startswith("the kernel took 75% of the processor time")


@pytest.mark.parametrize(("size", "seconds", "told"), [
    (15 * 10**11, 300, "300 s for 1.5 TB is 5.0 GB/s"),
    (10**13, 600, "10 min for 10 TB is 17 GB/s"),
    (99 * GB // 10, 599, "599 s for 9.9 GB is 17 MB/s"),
    (10 * GB, 9, "9.0 s for 10 GB is 1.1 GB/s"),
    (5_000_000, 10, "10 s for 5.0 MB is 500.0 kB/s"),
])  # fmt: skip
def test_sizes_and_times_are_told_as_people_say_them(size: int, seconds: int, told: str) -> None:
    assert row(size=size, cached=size, seconds=seconds, rate=None).says[0].startswith(told + ":")


def test_only_what_is_counted_during_the_load_tells_of_it() -> None:
    story = Story().launch().tell(sample())
    assert story.state.load.seconds == 0
    story.t = 5.0
    story.line(Phase.WEIGHTS).tell(sample())
    assert story.state.load.seconds == 0, "it tells of the second before"
    story.t = 6.0
    story.tell(sample())
    story.t = 6.5
    story.line(Phase.WEIGHTS, Edge.END)
    story.t = 7.0
    story.tell(sample())
    assert story.state.load.seconds == 2
    story.t = 7.5
    story.tell(sample())
    assert story.state.load.seconds == 2, "it began when all was over"


def test_where_no_line_tells_the_load_bytes_on_their_way_do() -> None:
    story = Story().launch()
    for done, counted in ((0, 0), (1, 1), (GB - 1, 2), (GB, 2)):
        story.tell(WeightProgress(shards=1, shards_done=0, bytes=GB, bytes_done=done), sample())
        assert story.state.load.seconds == counted


def test_a_load_is_over_with_its_last_line_a_token_or_the_end_of_the_server() -> None:
    assert not is_over(Story().launch().line(Phase.WEIGHTS).state)
    assert is_over(Story().launch().line(Phase.WEIGHTS).line(Phase.WEIGHTS, Edge.END).state)
    assert is_over(Story().launch().listen().ready_line().ask().answer().ask().answer().state)
    assert is_over(Story().launch().exit(code=1).state)
    assert is_over(Story().launch().tell(Emptied()).state)


def test_the_engines_own_seconds_come_before_those_between_its_lines() -> None:
    story = Story().launch().tell(WeightStorage(shards=1, bytes=GB, cached=GB)).line(Phase.WEIGHTS)
    assert (load_row(story.state).bytes, load_row(story.state).seconds, load_row(story.state).cached_share) == (GB, None, 1.0)
    story.t = 30.0
    found = load_row(story.line(Phase.WEIGHTS, Edge.END, seconds=20.0).state)
    assert (found.seconds, found.bytes_per_s) == (20.0, GB / 20)


def test_a_load_of_unknown_size_is_told_by_its_time_and_not_judged() -> None:
    story = Story().launch().line(Phase.WEIGHTS)
    story.t = 30.0
    found = load_row(story.line(Phase.WEIGHTS, Edge.END).state)
    assert (found.bytes, found.source, found.seconds) == (None, None, 30.0)
    assert found.says == ("loaded in 30 s; of how many bytes is not known: no weight files were seen",)
