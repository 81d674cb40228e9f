"""What was read once is not read again, unless the file changed."""

import os
from pathlib import Path

import pytest
from gpu_fixtures import built, counted

from firsttoken.survey import library_cache
from firsttoken.survey.library_cache import LibraryCache


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "l.so"
    path.write_bytes(built("linked.so"))
    return path


def test_a_second_reader_takes_it_from_the_cache(tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = LibraryCache(tmp_path / "cache" / "kept.json")
    first = cache.read(library)
    cache.keep()
    monkeypatch.setattr(library_cache, "read_library", lambda path: pytest.fail("read again"))
    assert LibraryCache(tmp_path / "cache" / "kept.json").read(library) == first


def test_a_changed_file_is_read_again(tmp_path: Path, library: Path) -> None:
    cache = LibraryCache(None)
    assert counted(cache.read(library).counts()) == {"cubin sm_80": 1, "cubin sm_90": 1}
    library.write_bytes(built("single.o"))
    os.utime(library, ns=(1, 1))
    assert counted(cache.read(library).counts()) == {"cubin sm_80": 1}


@pytest.mark.parametrize("content", [b"", b"{", b'{"format": 0, "rows": {}}', b'{"format": 1, "rows": {"x": 1}}', b"\xff"])
def test_a_damaged_cache_is_no_cache(tmp_path: Path, library: Path, content: bytes) -> None:
    kept = tmp_path / "kept.json"
    kept.write_bytes(content)
    assert LibraryCache(kept).read(library).modules


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path, library: Path) -> None:
    (tmp_path / "file").touch()
    cache = LibraryCache(tmp_path / "file" / "kept.json")
    assert cache.read(library).modules
    cache.keep()
    assert not cache.read(tmp_path / "gone.so").modules
