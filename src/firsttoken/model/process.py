"""Processes of a run. A bare pid is never an identity: pids are reused, so a key carries node and start time."""

from dataclasses import dataclass
from typing import NamedTuple


class ProcessKey(NamedTuple):
    """`start` is field 22 of /proc/PID/stat: clock ticks since boot."""

    node: str
    pid: int
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTag:
    """What a log prefix or a process title tells about a rank. `rank` is the world rank where it was said outright.

    `name` is the member's role word (Worker, scheduler, EngineCore, APIServer…), None where the tag has none.
    """

    rank: int | None = None
    dp: int | None = None
    pp: int | None = None
    tp: int | None = None
    ep: int | None = None
    name: str | None = None
    pid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Any process of the run. `parent` is a pid (0: unknown or outside the run); `tag` comes from the title."""

    process: ProcessKey
    parent: int
    title: str
    tag: RankTag | None = None


class Sample(NamedTuple):
    """One process's counters at one time, all cumulative but `state` and `rss_pages`.

    Ticks are USER_HZ; `main_ticks` is the main thread's CPU (/proc/PID/task/PID/stat utime+stime), `ticks` the whole
    process's, `child_ticks` that of reaped children; `rw_bytes` = rchar + wchar and `read_bytes` (from storage) of
    /proc/PID/io, -1 where io may not be read; `faults` minor + major; `threads` a level.
    """

    pid: int
    start: int
    state: str
    main_ticks: int
    ticks: int
    child_ticks: int
    rw_bytes: int
    read_bytes: int
    faults: int
    major_faults: int
    rss_pages: int
    threads: int


class ListenSocket(NamedTuple):
    """A listening socket held by a process of the run: TCP (`host`, `port`) or unix (`path`)."""

    pid: int
    host: str | None
    port: int | None
    path: str | None


class ShardFile(NamedTuple):
    """How far one weight file is from outside. `read` counts bytes: the furthest of offset and residency known."""

    path: str
    size: int
    read: int
