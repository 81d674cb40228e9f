"""How much of a file is in memory: both ways agree with what was done to the file."""

import os
from pathlib import Path

import pytest

from firsttoken.survey.page_cache import by_cachestat, by_mincore, cached_bytes

SIZE = 4 << 20


@pytest.fixture
def file(tmp_path: Path) -> int:
    path = tmp_path / "weights"
    path.write_bytes(os.urandom(SIZE) + b"tail")
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    yield fd  # type: ignore[misc]  # a generator fixture
    os.close(fd)


def test_what_was_read_is_told_and_the_rest_is_not(file: int) -> None:
    if cached_bytes(file, 0, SIZE) != 0:
        pytest.skip("this file system keeps pages that nobody wants")
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead
    os.pread(file, 1 << 20, 1 << 20)
    for way in (cached_bytes, by_mincore):
        assert way(file, 0, SIZE) == 1 << 20, way
        assert way(file, 1 << 20, 1 << 20) == 1 << 20, way
        assert way(file, 2 << 20, 1 << 20) == 0, way
    assert by_cachestat(file, 0, SIZE) in (1 << 20, None)


def test_no_more_than_the_file_is_told(file: int) -> None:
    os.pread(file, SIZE + 4, 0)
    assert cached_bytes(file, 0, SIZE + 4) == SIZE + 4
    assert by_mincore(file, 0, SIZE + 4) == SIZE + 4
    assert cached_bytes(file, 0, 0) == 0


def test_what_is_no_file_is_not_told() -> None:
    reading, writing = os.pipe()
    try:
        assert by_cachestat(reading, 0, 4096) in (0, None)
        assert by_mincore(reading, 0, 4096) is None
    finally:
        os.close(reading)
        os.close(writing)
