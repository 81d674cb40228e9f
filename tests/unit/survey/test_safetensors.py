"""Headers of safetensors files: whole ones are read, every fault is named, no bytes raise."""

import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_folders import write_shard
from safetensors.numpy import save_file

from firsttoken.survey.safetensors import Broken, Fault, Shard, parse, read_shard


def test_a_file_of_the_library_itself_is_read_tensor_by_tensor(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"a": np.zeros((3, 5), np.float32), "b": np.zeros(7, np.int8)}, path, metadata={"format": "np"})
    found = read_shard(str(path))
    assert isinstance(found, Shard)
    assert {(one.name, one.dtype, one.shape, one.bytes) for one in found.tensors} == {("a", "F32", (3, 5), 60), ("b", "I8", (7,), 7)}
    assert found.size == path.stat().st_size
    assert found.metadata == {"format": "np"}


def test_a_header_longer_than_one_read_is_read_whole(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.safetensors", {f"model.layers.{n}.weight": ("BF16", (1,)) for n in range(3000)})
    found = read_shard(str(path))
    assert isinstance(found, Shard)
    assert len(found.tensors) == 3000
    assert found.data_begin > 1 << 16


def _fault(path: Path) -> Fault:
    found = read_shard(str(path))
    assert isinstance(found, Broken)
    assert found.detail
    return found.fault


def test_a_download_that_broke_off_is_truncated_wherever_it_broke(tmp_path: Path) -> None:
    whole = write_shard(tmp_path / "a.safetensors", {"a": ("F32", (100,))}).read_bytes()
    for size in (1, 7, 8, 20, len(whole) - 1):
        path = tmp_path / f"{size}.safetensors"
        path.write_bytes(whole[:size])
        assert _fault(path) is Fault.TRUNCATED


def test_what_is_no_weights_at_all_is_told_as_what_it_is(tmp_path: Path) -> None:
    pointer, empty, page, pipe = (tmp_path / name for name in ("pointer", "empty", "page", "pipe"))
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 4\n")
    empty.write_bytes(b"")
    page.write_text("<html>not found</html>")
    os.mkfifo(pipe)
    (tmp_path / "gone").symlink_to(tmp_path / "blob")
    assert _fault(pointer) is Fault.LFS_POINTER
    assert _fault(empty) is Fault.EMPTY
    assert _fault(page) is Fault.CORRUPT
    assert _fault(pipe) is Fault.NOT_A_FILE
    assert _fault(tmp_path) is Fault.NOT_A_FILE
    assert _fault(tmp_path / "nothing") is Fault.MISSING
    assert _fault(tmp_path / "gone") is Fault.MISSING


@pytest.mark.parametrize(
    "header",
    [
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "b": {"dtype": "F32", "shape": [1], "data_offsets": [8, 12]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "b": {"dtype": "F32", "shape": [1], "data_offsets": [2, 6]}},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}},
        {"a": {"dtype": "F32"}},
        ["a"],
    ],
    ids=["hole", "overlap", "shape", "negative", "backwards", "incomplete", "list"],
)
def test_a_header_that_contradicts_itself_is_corrupt(header: object) -> None:
    text = json.dumps(header).encode()
    found = parse("a", struct.pack("<Q", len(text)) + text, 8 + len(text) + 16)
    assert isinstance(found, Broken)
    assert found.fault is Fault.CORRUPT


def test_bytes_behind_the_last_tensor_are_a_fault(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.safetensors", {"a": ("F32", (100,))})
    with path.open("ab") as file:
        file.write(b"more")
    assert _fault(path) is Fault.CORRUPT


@settings(max_examples=50)
@given(st.binary(max_size=300), st.integers(0, 1 << 50))
def test_no_bytes_raise(head: bytes, size: int) -> None:
    assert isinstance(parse("a", head, size), Shard | Broken)


_ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F32", "BF16", "?"]) | st.none(),
        "shape": st.lists(st.integers(-1, 4), max_size=2) | st.text(max_size=2),
        "data_offsets": st.lists(st.integers(-1, 1 << 70), max_size=3) | st.integers(),
    },
)


@settings(max_examples=50)
@given(st.dictionaries(st.text(max_size=3), _ENTRY | st.none(), max_size=3) | st.lists(st.integers(), max_size=2))
def test_no_json_raises(header: object) -> None:
    text = json.dumps(header).encode()
    assert isinstance(parse("a", struct.pack("<Q", len(text)) + text, 8 + len(text)), Shard | Broken)
