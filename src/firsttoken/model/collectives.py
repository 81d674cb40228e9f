"""What ranks told about their collectives: flight-recorder dumps and NCCL's own status, read and compared.

A witness, not the judge: collectives outside torch (pynccl, custom all-reduce, FlashInfer, replayed graphs) are in no recorder, and a rank
that is behind in a recorder may only be late.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One entry of a recorder. `seq` counts the collectives of its group (point-to-point operations share the last one's). `name` has no
    backend; `peers`: sender and receiver of a point-to-point operation, as ranks within the group. Sizes are shapes.
    """

    group: str
    seq: int
    name: str
    completed: bool = False
    started: bool = False
    peers: tuple[int, int] | None = None
    inputs: tuple[tuple[int, ...], ...] = ()
    outputs: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    created_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A process group as one rank knows it. `ranks`: world ranks, empty where it was not told. `enqueued`, `completed`: its last
    collectives."""

    name: str
    description: str = ""
    ranks: tuple[int, ...] = ()
    enqueued: int | None = None
    completed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightRecord:
    """One rank's dump. `rank` None: neither its name nor its content tell. `operations` in the order in which they were recorded."""

    rank: int | None = None
    version: str = ""
    library: str | None = None
    groups: Mapping[str, Group] = field(default_factory=dict)
    operations: tuple[Operation, ...] = ()


class Discord(StrEnum):
    """How ranks disagree about a collective."""

    MISSING = "missing"
    """others wait in it, these never entered it"""
    STUCK = "stuck"
    """others completed it, on these it does not end"""
    MISMATCH = "mismatch"
    """another operation than the others have at that place"""
    SIZES = "sizes"
    """the same operation with other sizes or types"""
    ORDER = "order"
    """ranks entered two collectives in opposite order: each waits for the other"""
    UNRESPONSIVE = "unresponsive"
    """the library's own monitor has no answer from them"""
    UNFINISHED = "unfinished"
    """all are in it, and it does not end: the path between them, or the device"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """`ranks` are the ones that differ, `others` those that wait for them, both world ranks. `text` is a sentence."""

    kind: Discord
    group: str
    seq: int | None
    ranks: tuple[int, ...]
    others: tuple[int, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`source`: flight_recorder or nccl_ras. `ranks` were heard; `behind` are the world ranks that the others wait for and that wait for
    nobody, sorted.
    """

    source: str
    ranks: tuple[int, ...]
    behind: tuple[int, ...] = ()
    disagreements: tuple[Disagreement, ...] = ()
