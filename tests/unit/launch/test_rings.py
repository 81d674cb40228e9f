"""The rings keep the newest and say where they begin."""

from hypothesis import given
from hypothesis import strategies as st

from firsttoken.launch.rings import EventRing, LogRing


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(1, 64))
def test_a_log_ring_holds_the_last_bytes_in_order(chunks: list[bytes], capacity: int) -> None:
    ring = LogRing(capacity)
    for index, chunk in enumerate(chunks):
        ring.add(index * 0.5, chunk)
    whole = b"".join(chunks)
    assert ring.end == len(whole)
    assert ring.start == max(0, len(whole) - capacity)
    found, at, times = b"", ring.start, [0.0]
    while at < ring.end:
        t, data = ring.read(at, 7)
        assert 0 < len(data) <= 7
        times.append(t)
        found, at = found + data, at + len(data)
    assert found == whole[ring.start :]
    assert times == sorted(times)


def test_bytes_of_different_times_come_apart() -> None:
    ring = LogRing(100)
    ring.add(1.0, b"early")
    ring.add(2.0, b"late")
    assert ring.read(2, 50) == (1.0, b"rly")
    assert ring.read(5, 50) == (2.0, b"late")


@given(st.integers(0, 50), st.integers(1, 20), st.integers(20, 200))
def test_an_event_ring_is_bounded_by_count_and_by_bytes(count: int, most: int, most_bytes: int) -> None:
    ring = EventRing(most, most_bytes)
    for number in range(1, count + 1):
        ring.add(b"event %04d" % number, number)
    assert ring.next == count + 1
    kept = ring.read(ring.start, None, 1 << 20)
    assert kept == [b"event %04d" % number for number in range(ring.start, count + 1)]
    assert len(kept) <= most
    assert len(kept) <= max(1, most_bytes // 10)


def test_an_event_waits_for_the_log_before_it() -> None:
    ring = EventRing()
    ring.add(b"a", 0)
    ring.add(b"b", 10)
    assert ring.read(1, 9, 100) == [b"a"]
    assert ring.read(1, 10, 100) == [b"a", b"b"]
    assert ring.read(2, None, 100) == [b"b"]
