"""How a load went: from where, against what limit, and why not faster."""

import pytest
from story import Story

from firsttoken.judge.load import is_over, load_row
from firsttoken.judge.outcome import result
from firsttoken.model.events import LoadSample, Prefetched, WeightProgress, WeightStorage
from firsttoken.model.weights import LoadRow, Source
from firsttoken.model.words import Edge, Phase

GB = 10**9


def loaded(
    *,
    size: int = 300 * GB,
    cached: int | None = None,
    rate: float | None = 3e9,
    seconds: int = 22,
    network: bool = False,
    samples: LoadSample | None = None,
    prefetched: int | None = None,
    seen_late: bool = False,
) -> Story:
    """A load of so many seconds; `samples` each second."""
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
            story.tell(samples)
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
