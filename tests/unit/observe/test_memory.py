import os
from pathlib import Path

import pytest
from fake_proc import FakeProc
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.hosts.procfs import Procfs
from firsttoken.observe.cgroups import memory_cgroup
from firsttoken.observe.memory import exact_memory, memory, parse_rollup, parse_statm

MIB = 1 << 20


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


def statm(proc: FakeProc, pid: int, resident: int, shared: int) -> None:
    proc.process(pid)
    proc.write(f"{pid}/statm", f"999999 {resident} {shared} 1 0 2 0\n")


def rollup(proc: FakeProc, pid: int, pss_kb: int, private_kb: int) -> None:
    proc.process(pid)
    text = f"0-1 ---p 0 00:00 0 [rollup]\nRss: 999 kB\nPss: {pss_kb} kB\nPrivate_Clean: 0 kB\nPrivate_Dirty: {private_kb} kB\n"
    proc.write(f"{pid}/smaps_rollup", text)


def cgroup_v2(proc: FakeProc, tmp_path: Path, pid: int, **files: str) -> Path:
    mount = tmp_path / "sys fs"
    folder = mount / "a/b"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text("max\n")
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    point = str(mount).replace(" ", "\\040")
    proc.write("self/mountinfo", f"30 20 0:26 / {point} rw,nosuid shared:1 - cgroup2 cgroup rw\n")
    proc.write(f"{pid}/cgroup", "0::/a/b\n")
    return folder


def test_pages_that_eight_ranks_share_count_once(proc: FakeProc) -> None:
    for pid in range(10, 18):
        statm(proc, pid, resident=1100, shared=1000)
    told = memory(proc.procfs, range(10, 18), page=4096)
    assert (told.unique, told.shared) == (8 * 100 * 4096, 1000 * 4096)
    assert (told.page_cache, told.limit) == (None, None)


def test_processes_that_are_gone_count_nothing(proc: FakeProc) -> None:
    statm(proc, 10, resident=10, shared=4)
    assert memory(proc.procfs, [9, 10], page=4096).unique == 6 * 4096
    assert memory(proc.procfs, []).unique == 0


def test_the_exact_way_takes_the_proportional_share(proc: FakeProc) -> None:
    rollup(proc, 10, pss_kb=3000, private_kb=2000)
    rollup(proc, 11, pss_kb=1500, private_kb=500)
    told = exact_memory(proc.procfs, [10, 11])
    assert told is not None
    assert (told.unique, told.shared) == (2500 << 10, 2000 << 10)


def test_the_exact_way_says_nothing_where_a_process_may_not_be_read(proc: FakeProc) -> None:
    rollup(proc, 10, pss_kb=3000, private_kb=2000)
    proc.process(11)
    assert exact_memory(proc.procfs, [10, 11]) is None
    assert exact_memory(proc.procfs, [10, 12]) is not None


def test_a_walk_that_hangs_is_left_behind(proc: FakeProc) -> None:
    proc.process(10)
    os.mkfifo(proc.root / "10/smaps_rollup")
    assert exact_memory(proc.procfs, [10], seconds=0.1) is None
    with open(proc.root / "10/smaps_rollup", "wb"):
        pass


def test_the_tightest_limit_of_a_version_2_cgroup_and_its_ancestors_holds(proc: FakeProc, tmp_path: Path) -> None:
    statm(proc, 10, 10, 5)
    folder = cgroup_v2(proc, tmp_path, 10, memory__max=f"{90 * MIB}\n", memory__stat="anon 5\nfile 12345\n")
    (folder.parent / "memory.max").write_text(f"{70 * MIB}\n")
    proc.write("meminfo", "MemTotal:         102400 kB\nMemFree: 1 kB\n")
    told = memory(proc.procfs, [10])
    assert (told.limit, told.page_cache) == (70 * MIB, 12345)
    (folder.parent / "memory.max").write_text("max\n")
    (folder / "memory.max").write_text("max\n")
    assert memory(proc.procfs, [10]).limit == 100 * MIB


def test_a_version_1_cgroup_is_read_through_what_is_mounted_of_it(proc: FakeProc, tmp_path: Path) -> None:
    statm(proc, 10, 10, 5)
    folder = tmp_path / "memory/inner"
    folder.mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text(f"{50 * MIB}\n")
    (folder.parent / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (folder / "memory.stat").write_text("cache 1\ntotal_cache 2\n")
    (folder / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    mount = f"36 35 0:30 /docker/abc {tmp_path / 'memory'} ro,nosuid - cgroup cgroup rw,memory\n"
    proc.write("self/mountinfo", "31 35 0:29 / /x rw - cgroup cgroup rw,cpu\n" + mount)
    proc.write("10/cgroup", "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc/inner\n0::/\n")
    told = memory(proc.procfs, [10])
    assert (told.limit, told.page_cache) == (50 * MIB, 2)
    group = memory_cgroup(proc.procfs, 10)
    assert group is not None
    assert (group.version, group.folder, group.oom_kills()) == (1, folder, 3)


def test_a_path_outside_the_namespace_leads_nowhere_else(proc: FakeProc, tmp_path: Path) -> None:
    cgroup_v2(proc, tmp_path, 10)
    proc.write("10/cgroup", "0::/../../etc\n")
    group = memory_cgroup(proc.procfs, 10)
    assert group is None or ".." not in group.folder.parts


def test_our_own_memory_agrees_both_ways() -> None:
    procfs = Procfs()
    block = bytearray(os.urandom(1 << 20)) * 32
    cheap, exact = memory(procfs, [os.getpid()]), exact_memory(procfs, [os.getpid()])
    assert exact is not None
    assert cheap.unique >= len(block)
    assert abs(cheap.unique - exact.unique) < 0.5 * exact.unique


@given(st.binary(max_size=300))
def test_any_bytes_are_parsed_without_raising(raw: bytes) -> None:
    parse_statm(raw)
    parse_rollup(raw + b"\nPss: 1 kB\n" + raw)
