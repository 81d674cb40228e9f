"""What loading the weights of a model takes, before it (`Forecast`) and after it (`LoadRow`). Rates in bytes a second, times in seconds."""

from dataclasses import dataclass
from enum import StrEnum


class Source(StrEnum):
    """Where the bytes of a load came from, for the most part."""

    PAGE_CACHE = "page_cache"
    STORAGE = "storage"
    NETWORK = "network"


class Bound(StrEnum):
    """What sets the pace of a load."""

    STORAGE = "storage"
    NETWORK = "network"
    ENGINE = "engine"
    """what the engine does with the bytes: copy, repack, convert"""
    MEMORY = "memory"
    """copying out of the page cache"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    what: Bound
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """`how`: measured, remembered (from an earlier measurement, `age_s` ago) or runs (what earlier loads of the like achieved)."""

    bytes_per_s: float
    how: str
    age_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """`cached`: bytes in the page cache now, None where that is not told. `storage` and `warm`: how fast the storage gives them, and how
    fast the like was loaded out of memory; None: not known. `cold_s` nothing in memory, `warm_s` all of it, `now_s` as it is now.
    `room`: bytes of memory that the page cache may take."""

    path: str
    engine: str | None = None
    shards: int = 0
    bytes: int = 0
    cached: int | None = None
    place: str | None = None
    network: bool = False
    storage: Rate | None = None
    warm: Rate | None = None
    cold_s: float | None = None
    warm_s: float | None = None
    now_s: float | None = None
    limit: Limit | None = None
    room: int | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRow:
    """A load that was followed. `cached_share`: of the bytes, in the page cache before it. `prefetched`: bytes that were put there by a
    prefetch beside it. `limit`: what the bytes could have come at. `says`: sentences, the first the judgement, then the reasons."""

    bytes: int | None = None
    seconds: float | None = None
    bytes_per_s: float | None = None
    source: Source | None = None
    cached_share: float | None = None
    prefetched: int = 0
    storage_bytes_per_s: float | None = None
    limit: Limit | None = None
    next_cold_s: float | None = None
    reasons: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
