"""Streaming files into the page cache: all of it, in order, within memory, and stoppable."""

import os
import threading
from pathlib import Path

import pytest

from firsttoken.survey.page_cache import cached_bytes
from firsttoken.survey.prefetch import Prefetch, Progress

SIZE = 6 << 20


def cold(folder: Path, count: int) -> list[tuple[str, int]]:
    files = []
    for number in range(count):
        path = folder / f"{number}.safetensors"
        path.write_bytes(os.urandom(SIZE + number))
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        dropped = cached_bytes(fd, 0, SIZE) == 0
        os.close(fd)
        if not dropped:
            pytest.skip("this file system keeps pages that nobody wants")
        files.append((str(path), SIZE + number))
    return files


def cached(path: str) -> int | None:
    fd = os.open(path, os.O_RDONLY)
    try:
        return cached_bytes(fd, 0, os.fstat(fd).st_size)
    finally:
        os.close(fd)


@pytest.mark.parametrize("threads", [1, 3])
def test_all_of_it_is_in_memory_afterwards(tmp_path: Path, threads: int) -> None:
    files = cold(tmp_path, 3)
    told: list[Progress] = []
    last = Prefetch(files, read_ahead=1 << 20, threads=threads).run(told.append)
    assert (last.ended, last.done, last.bytes) == ("done", 3 * SIZE + 3, 3 * SIZE + 3)
    assert last.read == last.done
    assert [cached(path) for path, _ in files] == [size for _, size in files]
    assert [one.done for one in told] == sorted(one.done for one in told)
    assert Prefetch(files).run().read == 0, "what is there is not read again"


def test_no_more_is_read_than_memory_has_room_for_and_the_first_files_go_first(tmp_path: Path) -> None:
    files = cold(tmp_path, 3)
    last = Prefetch(files, read_ahead=1 << 20, room=lambda: SIZE + (2 << 20), threads=1).run()
    assert last.ended == "room"
    assert last.read <= SIZE + (2 << 20)
    first, _, third = (cached(path) for path, _ in files)
    assert first == SIZE
    assert third == 0


def test_it_stops_when_told(tmp_path: Path) -> None:
    files = cold(tmp_path, 3)
    work = Prefetch(files, read_ahead=128 << 10)
    work.stop()
    last = work.run()
    assert (last.ended, last.done) == ("stopped", 0)


def test_nothing_is_told_while_nothing_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that whoever listens can take the storage for dead."""
    files = cold(tmp_path, 1)
    dead = threading.Event()
    monkeypatch.setattr("firsttoken.survey.prefetch._wait", lambda fd, at: dead.wait(60))
    told: list[Progress] = []
    work = Prefetch(files, read_ahead=128 << 10, threads=1)
    running = threading.Thread(target=work.run, args=(told.append,))
    running.start()
    running.join(1.0)
    before = len(told)
    running.join(1.5)
    assert running.is_alive()
    assert len(told) == before
    dead.set()
    running.join(60)
    assert told[-1].ended == "done"


def test_a_file_that_is_gone_is_an_error_with_its_name(tmp_path: Path) -> None:
    last = Prefetch([(str(tmp_path / "gone"), 1 << 20)]).run()
    assert last.ended == "error"
    assert last.problem is not None
    assert "gone" in last.problem
