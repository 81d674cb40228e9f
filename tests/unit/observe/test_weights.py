import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from fake_proc import Clock, FakeProc
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from firsttoken.hosts.procfs import Procfs
from firsttoken.model.events import WeightProgress
from firsttoken.observe import weights as module
from firsttoken.observe.weights import WeightWatcher, mapped_files, parse_fdinfo

PAGE = 4096
MIB = 1 << 20


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for number in (1, 2, 3):
        with (folder / f"model-0000{number}-of-00003.safetensors").open("wb") as file:
            file.truncate(10 * MIB)
    return folder


def shard(model: Path, number: int) -> str:
    return str(model / f"model-0000{number}-of-00003.safetensors")


def statm(proc: FakeProc, pid: int, size: int, shared: int) -> None:
    proc.write(f"{pid}/statm", f"{size} {shared + 100} {shared} 1 0 2 0\n")


def maps(proc: FakeProc, pid: int, *paths: str) -> None:
    lines = [f"7f00-7f01 r--p 00000000 fe:00 12                       {path}\n" for path in ("/usr/lib/libc.so.6", *paths)]
    proc.write(f"{pid}/maps", "5000-6000 rw-p 00000000 00:00 0 [heap]\n" + "".join(lines))


def opened(proc: FakeProc, pid: int, fd: int, path: str, offset: int, flags: str = "0100000") -> None:
    proc.link(f"{pid}/fd/{fd}", path)
    proc.write(f"{pid}/fdinfo/{fd}", f"pos:\t{offset}\nflags:\t{flags}\nmnt_id:\t29\nino:\t8\n")


def wait_for(condition: Callable[[], object], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def watch(proc: FakeProc, *paths: Path) -> tuple[WeightWatcher, Clock]:
    clock = Clock()
    watcher = WeightWatcher(proc.procfs, map(str, paths), clock=clock, cost=lambda: 0.0, page=PAGE)
    wait_for(lambda: not watcher.surveying or all(errand.done for errand in watcher._surveys.values()))
    return watcher, clock


def test_the_size_of_the_weights_is_told_before_anything_is_read(proc: FakeProc, model: Path) -> None:
    watcher, _ = watch(proc, model)
    assert watcher.look([]) == WeightProgress(shards=3, shards_done=0, bytes=30 * MIB, bytes_done=0)
    assert watcher.look([]) is None


def test_a_plain_read_is_followed_by_its_offset(proc: FakeProc, model: Path) -> None:
    watcher, _ = watch(proc, model)
    proc.process(10)
    watcher.look([10])
    opened(proc, 10, 4, shard(model, 1), 4 * MIB)
    told = watcher.look([10])
    assert told is not None
    assert (told.bytes_done, told.how, told.files) == (4 * MIB, "offset", ((shard(model, 1), 10 * MIB, 4 * MIB),))
    opened(proc, 10, 4, shard(model, 2), 0)
    told = watcher.look([10])
    assert told is not None
    assert (told.shards_done, told.bytes_done) == (1, 10 * MIB)


def test_a_mapped_shard_is_followed_by_the_pages_that_its_process_touched(proc: FakeProc, model: Path) -> None:
    watcher, _ = watch(proc, model)
    proc.process(10)
    statm(proc, 10, 5000, 700)
    maps(proc, 10)
    watcher.look([10])
    statm(proc, 10, 7560, 700 + 5 * MIB // PAGE)
    maps(proc, 10, shard(model, 1))
    told = watcher.look([10])
    assert told is not None
    assert (told.bytes_done, told.shards_done, told.how) == (5 * MIB, 0, "mapped")
    statm(proc, 10, 5000, 700)
    maps(proc, 10)
    told = watcher.look([10])
    assert told is not None
    assert (told.bytes_done, told.shards_done, told.how) == (10 * MIB, 1, "closed")


def test_ranks_that_read_the_same_shard_do_not_add_up_and_the_slowest_ends_it(proc: FakeProc, model: Path) -> None:
    watcher, _ = watch(proc, model)
    for pid in (10, 11):
        proc.process(pid)
    watcher.look([10, 11])
    opened(proc, 10, 4, shard(model, 1), 8 * MIB)
    opened(proc, 11, 4, shard(model, 1), 3 * MIB)
    told = watcher.look([10, 11])
    assert told is not None
    assert told.bytes_done == 8 * MIB
    (proc.root / "10/fd/4").unlink()
    told = watcher.look([10, 11])
    assert told is None or told.shards_done == 0
    (proc.root / "11/fd/4").unlink()
    told = watcher.look([10, 11])
    assert told is not None
    assert told.shards_done == 1


def test_reads_that_move_no_offset_are_taken_from_the_counters(proc: FakeProc, model: Path) -> None:
    watcher, _ = watch(proc, model)
    proc.process(10)
    proc.io(10, rchar=500)
    watcher.look([10])
    opened(proc, 10, 4, shard(model, 1), 0)
    proc.io(10, rchar=500 + 6 * MIB)
    told = watcher.look([10])
    assert told is not None
    assert (told.bytes_done, told.how) == (6 * MIB, "counters")


def test_a_process_that_is_first_seen_in_the_middle_of_a_load_is_followed_from_its_next_shard_on(proc: FakeProc, model: Path) -> None:
    watcher, _ = watch(proc, model)
    proc.process(10)
    for number, touched in ((1, 8 * MIB), (2, 6 * MIB), (2, 9 * MIB)):
        statm(proc, 10, 7560, 700 + touched // PAGE)
        maps(proc, 10, shard(model, number))
        watcher.look([10])
    statm(proc, 10, 7560, 700)
    maps(proc, 10, shard(model, 3))
    watcher.look([10])
    statm(proc, 10, 7560, 700 + 4 * MIB // PAGE)
    told = watcher.look([10])
    assert told is not None
    assert (told.shards_done, told.bytes_done) == (2, 24 * MIB)


def test_a_file_that_is_written_is_not_being_loaded(proc: FakeProc, model: Path) -> None:
    watcher, _ = watch(proc, model)
    proc.process(10)
    watcher.look([10])
    opened(proc, 10, 4, shard(model, 1), 6 * MIB, flags="0100001")
    assert watcher.look([10]) is None


def test_weights_that_the_command_does_not_name_are_found_when_they_are_opened(proc: FakeProc, model: Path) -> None:
    watcher, clock = watch(proc)
    proc.process(10)
    opened(proc, 10, 4, shard(model, 2), 3 * MIB)
    assert watcher.look([10]) is None
    wait_for(lambda: all(errand.done for errand in watcher._surveys.values()))
    clock.now += 1
    told = watcher.look([10])
    assert told is not None
    assert (told.shards, told.bytes, told.shards_done, told.bytes_done) == (3, 30 * MIB, 1, 13 * MIB)


def test_a_file_system_that_does_not_answer_is_said_and_waited_for_by_nobody(
    proc: FakeProc, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    monkeypatch.setattr(module, "survey", lambda path, **_: os.read(reader, 1) and ())
    monkeypatch.setattr(module, "_SURVEY_DEADLINE", 0.02)
    watcher = WeightWatcher(proc.procfs, [str(model)])
    said: list[str] = []
    began = time.monotonic()
    wait_for(lambda: watcher.look([]) or said.extend(missed.reason for missed in watcher.missed()) or said)
    assert "not checked" in said[0]
    assert time.monotonic() - began < 5
    watcher.look([])
    assert watcher.missed() == []
    os.write(writer, b"x")
    wait_for(lambda: watcher.look([]) or not watcher.surveying)
    os.close(reader)
    os.close(writer)


def test_looks_are_spaced_by_what_they_cost(proc: FakeProc, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher, clock = watch(proc, model)
    proc.process(10)
    fds = Procfs.fds
    spent = 0.0

    def dear(self: Procfs, pid: int) -> dict[int, str]:
        nonlocal spent
        spent += 0.01
        return fds(self, pid)

    monkeypatch.setattr(Procfs, "fds", dear)
    monkeypatch.setattr(watcher, "_cost", lambda: spent)
    watcher.look([10])
    opened(proc, 10, 4, shard(model, 1), 4 * MIB)
    clock.now += 1.5
    assert watcher.look([10]) is None
    clock.now += 1.0
    assert watcher.look([10]) is not None


LOADER = """
import sys
from safetensors import safe_open
for path in sys.argv[1:]:
    with safe_open(path, framework="np") as file:
        names = sorted(file.keys())
        for name in names[: len(names) // 2]:
            file.get_tensor(name)
        print("half", flush=True)
        sys.stdin.readline()
print("end", flush=True)
sys.stdin.readline()
"""


@contextmanager
def loader(*paths: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", LOADER, *paths], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_real_safetensors_load_is_followed_in_a_warm_page_cache(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"model-0000{n}-of-00002.safetensors") for n in (1, 2)]
    for path in paths:
        save_file({f"t{n}": np.ones(MIB, dtype="f4") for n in range(8)}, path)
    watcher = WeightWatcher(Procfs(), [str(tmp_path)])
    last: list[WeightProgress] = []

    def looks(pid: int, until: Callable[[WeightProgress], bool]) -> None:
        def step() -> bool:
            watcher._next = watcher._maps_next = 0.0
            told = watcher.look([pid])
            last.extend([told] if told is not None else [])
            return bool(last) and until(last[-1])

        wait_for(step)

    with loader(*paths) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        looks(process.pid, lambda told: told.shards == 2)
        assert process.stdout.readline() == b"half\n"
        looks(process.pid, lambda told: len(told.files) == 1)
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"half\n"
        looks(process.pid, lambda told: told.shards_done == 1 and told.bytes_done >= told.bytes // 2)
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"end\n"
        looks(process.pid, lambda told: told.shards_done == 2 and told.bytes_done == told.bytes and not told.files)


@given(st.binary(max_size=200) | st.builds(lambda n: b"pos:\t" + n + b"\nflags:\t02", st.binary(max_size=30)))
def test_any_fdinfo_is_parsed_without_raising(raw: bytes) -> None:
    assert parse_fdinfo(raw)[0] >= 0


@given(st.binary(max_size=300))
def test_any_maps_are_parsed_without_raising(raw: bytes) -> None:
    assert all(path.startswith("/") for path in mapped_files(raw))


@given(st.text(st.characters(exclude_characters="\n\\", exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_any_path_in_maps_is_found(name: str) -> None:
    line = f"7f0000000000-7f0000001000 r--p 00000000 fe:00 2146329                    /m/{name}\n"
    assert mapped_files(line.encode()) == {f"/m/{name}"}
