"""One round of counters for all processes of the run: what the judge tells moving from still by.

Three small reads a process (`io`, the main thread's `stat`, the process's `stat`), none of which can block or walks memory. The process's
own `stat` comes last and carries the start time: where it names the right process, the reads before it did too.
"""

from collections.abc import Iterable

from firsttoken.hosts.procfs import Procfs
from firsttoken.model.events import Counters
from firsttoken.model.process import ProcessKey, Sample

UNREADABLE = -1


def sample(procfs: Procfs, keys: Iterable[ProcessKey], interval: float) -> Counters:
    """`interval`: the sampling interval in force, seconds. Processes that are gone or were replaced are left out."""
    rows = (_row(procfs, key) for key in keys)
    return Counters(interval=interval, samples=tuple(row for row in rows if row is not None))


def parse_io(raw: bytes | None) -> tuple[int, int]:
    """/proc/PID/io → (rchar + wchar, read_bytes); -1 for what is missing."""
    if raw is None:
        return UNREADABLE, UNREADABLE
    told: dict[bytes, int] = {}
    for line in raw.split(b"\n"):
        name, _, value = line.partition(b":")
        value = value.strip()
        if value.isdigit() and len(value) <= 20:
            told[name] = int(value)
    through = told[b"rchar"] + told[b"wchar"] if b"rchar" in told and b"wchar" in told else UNREADABLE
    return through, told.get(b"read_bytes", UNREADABLE)


def _row(procfs: Procfs, key: ProcessKey) -> Sample | None:
    pid = key.pid
    through, storage = parse_io(procfs.read(f"{pid}/io", 1024))
    main = _fields(procfs.read(f"{pid}/task/{pid}/stat", 4096))
    whole = _fields(procfs.read(f"{pid}/stat", 4096))
    if main is None or whole is None:
        return None
    try:
        start = int(whole[19])
        if start != key.start:
            return None
        major = int(whole[9])
        return Sample(
            pid=pid,
            start=start,
            state=whole[0].decode("ascii", "replace"),
            main_ticks=int(main[11]) + int(main[12]),
            ticks=int(whole[11]) + int(whole[12]),
            child_ticks=int(whole[13]) + int(whole[14]),
            rw_bytes=through,
            read_bytes=storage,
            faults=int(whole[7]) + major,
            major_faults=major,
            rss_pages=int(whole[21]),
            threads=int(whole[17]),
        )
    except ValueError:
        return None


def _fields(raw: bytes | None) -> list[bytes] | None:
    """The fields behind the last `)`, the state first (field 3). Only as many are split off as are used."""
    if raw is None or b")" not in raw:
        return None
    fields = raw[raw.rfind(b")") + 1 :].split(None, 22)
    return fields if len(fields) >= 22 else None
