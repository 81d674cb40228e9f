"""Reading /proc: fake ones for what is odd, the real one for what is true."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.hosts.procfs import Procfs, parse_stat

TAIL = "0 -1 4194304 100 7 3 1 11 12 13 14 20 0 5 0 70889 3133440 421 " + " ".join(["0"] * 26) + " 17 0 0 9"


def stat_line(pid: int, comm: str = "name", state: str = "S", ppid: int = 1, sid: int = 5) -> str:
    fields = TAIL.split()
    return f"{pid} ({comm}) {state} {ppid} 4 {sid} {' '.join(fields[:1])} {' '.join(fields[1:])}\n"


def process(root: Path, pid: int, **fields: object) -> Path:
    folder = root / str(pid)
    folder.mkdir()
    (folder / "stat").write_text(stat_line(pid, **fields))  # type: ignore[arg-type]  # fields by name
    return folder


@pytest.mark.parametrize("comm", ["sh", "a b", "(sd-pam)", "x) S 1 (y", "tab\tnew\nline", "é)"])
def test_a_name_with_anything_in_it_is_read_whole(comm: str) -> None:
    stat = parse_stat(stat_line(42, comm).encode())
    assert stat is not None
    assert (stat.pid, stat.comm, stat.state, stat.ppid, stat.pgid, stat.sid) == (42, comm, "S", 1, 4, 5)
    assert (stat.minor_faults, stat.major_faults, stat.utime, stat.stime) == (100, 3, 11, 12)
    assert (stat.threads, stat.start, stat.rss_pages) == (5, 70889, 421)


@given(st.binary(max_size=200))
def test_no_bytes_make_the_parser_raise(raw: bytes) -> None:
    parse_stat(raw)
    parse_stat(b"1 (x) " + raw)


@given(st.integers(0, 300))
def test_a_line_cut_anywhere_does_no_harm(at: int) -> None:
    parse_stat(stat_line(1).encode()[:at])


def test_what_is_gone_is_none_or_empty(tmp_path: Path) -> None:
    procfs = Procfs(tmp_path)
    assert procfs.stat(1) is None
    assert procfs.thread_stat(1, 1) is None
    assert procfs.cmdline(1) == ()
    assert procfs.environ_has(1, b"A=b") is False
    assert procfs.fds(1) == {}
    assert procfs.children(1) is None
    assert procfs.threads(1) == ()
    assert procfs.key("n", 1) is None
    assert procfs.boot_id() == ""
    assert Procfs(tmp_path / "none").pids() == ()


def test_descendants_are_found_by_their_parents(tmp_path: Path) -> None:
    for pid, ppid in ((10, 1), (11, 10), (12, 11), (13, 1), (14, 10)):
        process(tmp_path, pid, ppid=ppid)
    (tmp_path / "self").mkdir()
    (tmp_path / "15").mkdir()  # vanished between listing and reading
    assert set(Procfs(tmp_path).family([10])) == {11, 12, 14}
    assert set(Procfs(tmp_path).family([13])) == set()


def test_a_cycle_of_parents_ends(tmp_path: Path) -> None:
    process(tmp_path, 10, ppid=11)
    process(tmp_path, 11, ppid=10)
    assert set(Procfs(tmp_path).family([10])) == {11}


def test_a_mark_counts_only_as_a_whole_entry(tmp_path: Path) -> None:
    folder = process(tmp_path, 10)
    procfs = Procfs(tmp_path)
    for raw, there in ((b"A=b\0RUN=x\0", True), (b"RUN=x", True), (b"RUN=xy\0", False), (b"MYRUN=x\0", False), (b"", False)):
        (folder / "environ").write_bytes(raw)
        assert procfs.environ_has(10, b"RUN=x") is there


def test_children_come_from_all_threads(tmp_path: Path) -> None:
    folder = process(tmp_path, 10)
    for tid, text in ((10, "21 22 "), (11, ""), (12, "23 ")):
        (folder / "task" / str(tid)).mkdir(parents=True)
        (folder / "task" / str(tid) / "children").write_text(text)
    assert sorted(Procfs(tmp_path).children(10) or ()) == [21, 22, 23]


def test_a_process_whose_first_thread_alone_has_ended_lives(tmp_path: Path) -> None:
    process(tmp_path, 10, state="Z")
    stat = Procfs(tmp_path).stat(10)
    assert stat is not None
    assert stat.threads == 5
    assert not stat.dead


def test_the_real_proc_knows_this_process() -> None:
    procfs, pid = Procfs(), os.getpid()
    stat = procfs.stat(pid)
    assert stat is not None
    assert (stat.ppid, stat.pgid, stat.sid) == (os.getppid(), os.getpgrp(), os.getsid(0))
    assert procfs.alive(pid, stat.start)
    assert not procfs.alive(pid, stat.start + 1)
    assert pid in procfs.pids()
    assert pid in procfs.family([stat.ppid])
    assert len(procfs.boot_id()) == 36
    read, write = os.pipe()
    try:
        assert procfs.fds(pid)[read].startswith("pipe:[")
    finally:
        os.close(read)
        os.close(write)
