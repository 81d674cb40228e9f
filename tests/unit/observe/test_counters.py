import os
import subprocess
import sys
from pathlib import Path

from fake_proc import NODE, FakeProc
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.hosts.procfs import Procfs
from firsttoken.model.process import ProcessKey
from firsttoken.observe.counters import _fields, parse_io, sample


def test_a_sample_says_what_proc_says(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    key = proc.process(10, start=77, comm="a) R 1 (b", utime=5, cutime=3, minflt=20, majflt=2, rss=1234, threads=4)
    proc.io(10, rchar=100, wchar=11, read_bytes=4096)
    counters = sample(proc.procfs, [key], 1.0)
    assert counters.interval == 1.0
    (row,) = counters.samples
    assert (row.pid, row.start, row.state, row.threads, row.rss_pages) == (10, 77, "S", 4, 1234)
    assert (row.main_ticks, row.ticks, row.child_ticks, row.faults, row.major_faults) == (5, 5, 3, 22, 2)
    assert (row.rw_bytes, row.read_bytes) == (111, 4096)


def test_io_that_may_not_be_read_is_minus_one(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    key = proc.process(10)
    (row,) = sample(proc.procfs, [key], 1.0).samples
    assert (row.rw_bytes, row.read_bytes) == (-1, -1)


def test_a_process_that_is_gone_or_replaced_is_left_out(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.process(10, start=5)
    keys = [ProcessKey(NODE, 10, 4), ProcessKey(NODE, 11, 4)]
    assert sample(proc.procfs, keys, 1.0).samples == ()


def test_a_real_process_is_counted_while_it_lives() -> None:
    procfs = Procfs()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        key = procfs.key(NODE, process.pid)
        assert key is not None
        (row,) = sample(procfs, [key], 1.0).samples
        assert row.start == key.start
        assert row.faults > 0
        process.kill()
        process.wait()
        assert sample(procfs, [key], 1.0).samples == ()


def test_our_own_reads_are_counted() -> None:
    procfs = Procfs()
    key = procfs.key(NODE, os.getpid())
    assert key is not None
    before = sample(procfs, [key], 1.0).samples[0]
    Path(__file__).read_bytes()
    after = sample(procfs, [key], 1.0).samples[0]
    assert after.rw_bytes >= before.rw_bytes + Path(__file__).stat().st_size


@given(st.binary(max_size=300) | st.builds(lambda n: b"rchar: " + n + b"\nwchar: 1\nread_bytes: 2\n", st.binary(max_size=30)))
def test_io_of_any_bytes_is_parsed_without_raising(raw: bytes) -> None:
    through, storage = parse_io(raw)
    assert through >= -1
    assert storage >= -1


@given(st.binary(max_size=400))
def test_stat_of_any_bytes_is_split_without_raising(raw: bytes) -> None:
    _fields(raw)


@given(st.binary(max_size=15))
def test_any_comm_leaves_the_fields_in_their_places(comm: bytes) -> None:
    raw = b"7 (" + comm + b") S 1 " + b" ".join(str(n).encode() for n in range(5, 53))
    fields = _fields(raw)
    assert fields is not None
    assert fields[0] == b"S"
    assert fields[19] == b"22"
