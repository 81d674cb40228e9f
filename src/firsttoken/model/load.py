"""What was counted while weights were loaded, summed over the samples that fell into the load."""

from dataclasses import dataclass, replace

from firsttoken.model.events import LoadSample, Prefetched, WeightStorage


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCounts:
    """Sums of `LoadSample`, -1 where never told; `reader_seconds`: threads that read, times seconds. `storage_at`: seconds since launch.

    `storage_rate` in bytes a second and `network` are of `storage`, or were found out later."""

    storage: WeightStorage | None = None
    storage_at: float | None = None
    storage_rate: float | None = None
    network: bool = False
    prefetched: Prefetched | None = None
    seconds: float = 0.0
    user_s: float = 0.0
    system_s: float = 0.0
    major_faults: int = 0
    reads: int = -1
    read_bytes: int = -1
    stored_bytes: int = -1
    starved_s: float = 0.0
    swapped_bytes: int = -1
    received_bytes: int = -1
    reader_seconds: float = 0.0

    def plus(self, sample: LoadSample) -> "LoadCounts":
        return replace(
            self,
            seconds=self.seconds + sample.seconds,
            user_s=self.user_s + sample.user_s,
            system_s=self.system_s + sample.system_s,
            major_faults=self.major_faults + sample.major_faults,
            reads=_sum(self.reads, sample.reads),
            read_bytes=_sum(self.read_bytes, sample.read_bytes),
            stored_bytes=_sum(self.stored_bytes, sample.stored_bytes),
            starved_s=self.starved_s + sample.starved_s,
            swapped_bytes=_sum(self.swapped_bytes, sample.swapped_bytes),
            received_bytes=_sum(self.received_bytes, sample.received_bytes),
            reader_seconds=self.reader_seconds + sample.readers * sample.seconds,
        )


def _sum(total: int, more: int) -> int:
    return total if more < 0 else max(total, 0) + more
