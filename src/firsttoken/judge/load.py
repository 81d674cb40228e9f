"""How the weights were loaded: at what rate, from where, and why not faster.

Key insight: whoever loads faster than the disk can give has loaded from memory, and his next cold start will not. What lay in memory before
the load tells the most; where that was not looked at in time, what the processes got from storage does. Reasons are told only for a load
that took seconds and stayed far below what it could have had.
"""

from collections.abc import Iterator
from dataclasses import replace

from firsttoken.judge import phases
from firsttoken.judge.phases import PhaseTime
from firsttoken.judge.state import State
from firsttoken.model.events import LoadSample, Prefetched, WeightStorage
from firsttoken.model.load import LoadCounts
from firsttoken.model.weights import Bound, Limit, LoadRow, Source
from firsttoken.model.words import Phase

_MOSTLY = 0.5
_CLEARLY = 0.1
_IN_TIME = 0.5
"""seconds after the load began at which a look at the page cache still tells what was there before"""
_FAR_BELOW = 0.7
_WORTH_A_REASON = 2.0
"""seconds that a load must take"""
_FAST = 2e9
"""bytes a second out of memory of which nobody asks why it is not more"""
_FAULTS_A_SECOND = 100.0
_TINY = 64 << 10
_ALONE = 1.3
_SWAPPING = 10e6
_BUSY = 0.8
_STARVED = 0.3


def noted(state: State, body: WeightStorage | LoadSample | Prefetched, t: float) -> State:
    """The state after one event about the load at `t`."""
    load = state.load
    match body:
        case WeightStorage():
            return replace(state, load=replace(load, storage=body, storage_at=t, storage_rate=body.bytes_per_s, network=body.network))
        case Prefetched():
            return replace(state, load=replace(load, prefetched=body))
        case LoadSample():
            row = _phase(state)
            going_on = (
                state.weights is not None and 0 < state.weights.bytes_done < state.weights.bytes if row is None else _meets(row, body, t)
            )
            return replace(state, load=load.plus(body)) if going_on else state


def load_row(state: State) -> LoadRow:
    """Of a load that has ended, as far as it can be told; before that only what lay in memory before it."""
    row, load = _phase(state), state.load
    told = state.weights.bytes if state.weights is not None and state.weights.bytes else None
    size = told or (load.storage.bytes if load.storage is not None else None)
    seconds = state.weights_told if state.weights_told is not None else row.seconds if row is not None else None
    ended = row is not None and row.seconds is not None
    prefetched = load.prefetched.read if load.prefetched is not None else 0
    storage = load.storage_rate
    share = _cached_share(load)
    if not ended or not size or not seconds:
        took = row.seconds if ended and row is not None and not size else None
        says = (f"loaded in {_span(took)}; of how many bytes is not known: no weight files were seen",) if took is not None else ()
        return LoadRow(bytes=size, seconds=took, cached_share=share, prefetched=prefetched, storage_bytes_per_s=storage, says=says)
    found = LoadRow(
        bytes=size,
        seconds=seconds,
        bytes_per_s=size / seconds,
        source=_source(load, size, row.began if row is not None else 0.0),
        cached_share=share,
        prefetched=prefetched,
        storage_bytes_per_s=storage,
    )
    found = replace(found, limit=_limit(found, load), next_cold_s=_next_cold(found))
    reasons = tuple(_reasons(found, load))
    return replace(found, reasons=tuple(name for name, _ in reasons), says=(_judgement(found), *(text for _, text in reasons)))


def is_over(state: State) -> bool:
    """Nobody reads the weights any longer."""
    row = _phase(state)
    return state.ready_at is not None or state.root_exit is not None or state.emptied or (row is not None and row.seconds is not None)


def _phase(state: State) -> PhaseTime | None:
    return next((row for row in phases.times(state.book, state.plan.sizes.ranks_here) if row.phase is Phase.WEIGHTS), None)


def _meets(row: PhaseTime, body: LoadSample, t: float) -> bool:
    return t > row.began and (row.seconds is None or row.began + row.seconds > t - body.seconds)


def _cached_share(load: LoadCounts) -> float | None:
    storage = load.storage
    return storage.cached / storage.bytes if storage is not None and storage.cached is not None and storage.bytes else None


def _source(load: LoadCounts, size: int, began: float) -> Source | None:
    far = Source.NETWORK if load.network else Source.STORAGE
    share = _cached_share(load)
    fetched = load.prefetched.read / size if load.prefetched is not None else 0.0
    from_storage = load.stored_bytes / size if load.stored_bytes >= 0 and load.seconds else None
    in_time = load.storage_at is not None and load.storage_at <= began + _IN_TIME
    if share is not None and (in_time or share < _CLEARLY):
        if share + fetched >= _MOSTLY:
            dropped = from_storage is not None and from_storage >= _MOSTLY and fetched < _CLEARLY  # pushed out before it was read
            return far if dropped else Source.PAGE_CACHE
        others = from_storage is not None and from_storage < _CLEARLY and far is Source.STORAGE  # somebody else has put it there
        return Source.PAGE_CACHE if others else far
    if from_storage is None:
        return None
    if from_storage >= _MOSTLY:
        return far
    return Source.PAGE_CACHE if from_storage < _CLEARLY and far is Source.STORAGE else None


def _limit(row: LoadRow, load: LoadCounts) -> Limit | None:
    if row.source is None or row.source is Source.PAGE_CACHE or row.storage_bytes_per_s is None or row.bytes_per_s is None:
        return None
    here = Bound.NETWORK if row.source is Source.NETWORK else Bound.STORAGE
    return Limit(what=here, bytes_per_s=max(row.storage_bytes_per_s, row.bytes_per_s))


def _next_cold(row: LoadRow) -> float | None:
    if row.source in (Source.STORAGE, Source.NETWORK):
        return row.seconds
    if row.storage_bytes_per_s is None or row.bytes is None or row.seconds is None:
        return None
    return max(row.bytes / row.storage_bytes_per_s, row.seconds)


def _judgement(row: LoadRow) -> str:
    assert row.bytes and row.seconds and row.bytes_per_s  # noqa: PT018  # a load that has ended
    text = f"{_span(row.seconds)} for {_size(row.bytes)} is {_size(row.bytes_per_s)}/s"
    gives = f", {'the network storage' if row.source is Source.NETWORK else 'your disk'} gives {_size(row.storage_bytes_per_s or 0)}/s"
    known = gives if row.storage_bytes_per_s else ""
    cold = f"; the next cold start takes {_span(row.next_cold_s)}" if row.next_cold_s is not None else ""
    match row.source:
        case Source.PAGE_CACHE if row.prefetched >= _MOSTLY * row.bytes:
            return f"{text}{known}: it came from memory, where the prefetch had put {_size(row.prefetched)}{cold} without one"
        case Source.PAGE_CACHE:
            return f"{text}{known}: it came from memory{cold or '; a cold start takes longer'}"
        case Source.STORAGE | Source.NETWORK:
            where = "over the network" if row.source is Source.NETWORK else "from the disk"
            if row.limit is None:
                return f"{text}: it came {where}"
            part = row.bytes_per_s / row.limit.bytes_per_s
            return f"{text}{known}: it came {where}, " + (
                f"at {part:.0%} of its rate" if part < _FAR_BELOW else "about as fast as that goes"
            )
        case None:
            return f"{text}{known}; whether it came from memory cannot be told"


def _reasons(row: LoadRow, load: LoadCounts) -> Iterator[tuple[str, str]]:
    """What held it up, the clearest first."""
    assert row.bytes and row.seconds and row.bytes_per_s  # noqa: PT018  # a load that has ended
    took = load.seconds
    if row.seconds < _WORTH_A_REASON or took < 1.0 or row.bytes_per_s > _FAST:
        return
    if row.limit is not None and row.bytes_per_s >= _FAR_BELOW * row.limit.bytes_per_s:
        return
    if load.swapped_bytes / took >= _SWAPPING:
        yield "swapping", f"the machine swapped {_size(load.swapped_bytes)} meanwhile: memory is too small for what runs here"
    if load.starved_s / took >= _STARVED:
        share = load.starved_s / took
        yield "starved", f"it was ready to run and waited for a processor {share:.0%} of the time: the cores are busy with others"
    kernel = load.system_s / (load.user_s + load.system_s) if load.user_s + load.system_s > 0 else 0.0
    stored = max(load.stored_bytes, 0)
    far = row.source is not Source.PAGE_CACHE
    if load.major_faults / took >= _FAULTS_A_SECOND:
        each = f", {stored / load.major_faults / 1024:.0f} KiB each" if stored else ""
        yield (
            "page_faults",
            f"{load.major_faults:,} page faults waited for it{each} ({load.major_faults / took:,.0f} a second): the files are mapped and "
            f"touched page by page; the kernel took {kernel:.0%} of the processor time",
        )
    elif kernel >= _MOSTLY and load.system_s / took >= _MOSTLY:
        yield "kernel", f"the kernel took {kernel:.0%} of the processor time: pages are mapped or copied one by one"
    if load.reads > 0 and load.read_bytes >= _MOSTLY * row.bytes and load.read_bytes / load.reads < _TINY:
        yield "tiny_reads", f"{load.reads:,} reads of {load.read_bytes / load.reads / 1024:.1f} KiB each"
    readers = load.reader_seconds / took
    if far and 0 < readers <= _ALONE:
        yield "one_reader", "one thread read at a time; storage gives more to several at once"
    if row.source is Source.NETWORK:
        yield "network", "each read waited for the network's round trip; larger reads, or several at a time, hide it"
    cores = load.user_s / took
    if cores >= _BUSY and kernel < _MOSTLY:
        yield "cpu", f"the processor was busy with the bytes ({cores:.1f} cores): converting, repacking or quantising, not reading"


def _size(size: float) -> str:
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if size >= unit:
            return f"{size / unit:.0f} {name}" if size >= 10 * unit else f"{size / unit:.1f} {name}"
    return f"{size / 1e3:.1f} kB"


def _span(seconds: float | None) -> str:
    seconds = seconds or 0.0
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"
