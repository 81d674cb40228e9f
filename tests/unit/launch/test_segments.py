"""Log segments and events on disk: bounded, named by the truth, continued after a death."""

from pathlib import Path

import pytest

from firsttoken.launch import segments as module
from firsttoken.launch.folder import Folder
from firsttoken.launch.segments import Writer, last_seq, segments


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setattr(module, "HEAD_BYTES", 100)
    monkeypatch.setattr(module, "SEGMENT_BYTES", 20)
    monkeypatch.setattr(module, "TAIL_BYTES", 60)
    place = Folder(tmp_path / "run")
    place.prepare()
    return place


def text(number: int, size: int) -> bytes:
    return bytes((number + index) % 251 for index in range(size))


def test_the_first_and_last_bytes_stay_and_what_is_dropped_is_counted(folder: Folder) -> None:
    writer, offset, dropped = Writer(folder), 0, 0
    for size in (70, 50, 1, 0, 90, 33, 100):
        dropped += writer.log(offset, 0.0, 0.0, text(offset, size))
        offset += size
    writer.close()
    parts = segments(folder)
    assert parts[0].size == 100
    assert parts[-1].end == offset == 344
    assert dropped == parts[1].offset - 100
    assert sum(part.size for part in parts[1:]) >= 60
    for part in parts:
        assert (folder.log / part.name).read_bytes() == text(part.offset, part.size)


def test_a_jump_in_offsets_begins_a_new_segment(folder: Folder) -> None:
    writer = Writer(folder)
    writer.log(0, 0.0, 0.0, b"abc")
    writer.log(10, 0.0, 0.0, b"xyz")
    writer.log(13, 0.0, 0.0, b"!")
    writer.close()
    assert [(part.offset, part.size) for part in segments(folder)] == [(0, 3), (10, 4)]


@pytest.mark.parametrize("first", [0, 3, 100, 107, 120, 199])
def test_a_second_writer_goes_on_where_the_first_was_cut_off(folder: Folder, first: int) -> None:
    writer = Writer(folder)
    writer.log(0, 0.0, 0.0, text(0, first))
    writer.close()
    writer = Writer(folder)
    assert writer.end == first
    writer.log(first, 1.0, 1.0, text(first, 30))
    writer.close()
    found = segments(folder)
    assert found[-1].end == first + 30
    for part in found:
        assert (folder.log / part.name).read_bytes() == text(part.offset, part.size)
    assert all(part.size <= 20 for part in found[1:])


def test_events_go_on_behind_a_torn_line(folder: Folder) -> None:
    folder.events.write_bytes(b'{"seq":1,"t":0}\n{"seq":2,"t":1}\n{"seq":3,"t"')
    assert last_seq(folder) == 2
    writer = Writer(folder)
    writer.event({"seq": 3, "t": 2})
    writer.event({"seq": 4, "t": 2})
    writer.close()
    assert folder.events.read_bytes().endswith(b'{"seq":3,"t"\n{"seq":3,"t":2}\n{"seq":4,"t":2}\n')
    assert last_seq(folder) == 4


def test_the_index_is_sparse(folder: Folder) -> None:
    writer = Writer(folder)
    for number in range(100):
        writer.log(number, number / 1000, 5.0, b"x")
    writer.close()
    assert (folder.log / "index").read_text() == "0 0.000 5.000\n50 0.050 5.000\n"
