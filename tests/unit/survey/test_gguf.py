"""GGUF headers: notes and tensors are read, a file that is too short is told, no bytes raise."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from model_folders import write_gguf

from firsttoken.survey.gguf import Gguf, parse, read_gguf
from firsttoken.survey.safetensors import Broken, Fault

NOTES = {"general.architecture": "llama", "llama.block_count": 2, "tokenizer.ggml.tokens": ["a"] * 5000}
TENSORS = {"token_embd.weight": (1, (256, 100), 0), "blk.0.ffn_up.weight": (12, (256, 64), 51200)}


def test_notes_and_tensors_are_read_and_long_arrays_counted(tmp_path: Path) -> None:
    found = read_gguf(str(write_gguf(tmp_path / "a.gguf", NOTES, TENSORS, 51200 + 64 * 144)))
    assert isinstance(found, Gguf)
    assert found.notes["general.architecture"] == "llama"
    assert found.notes["llama.block_count"] == 2
    assert found.counts["tokenizer.ggml.tokens"] == 5000
    embedding, up = found.tensors
    assert (embedding.dtype, embedding.shape, embedding.bytes) == ("F16", (100, 256), 51200)
    assert (up.dtype, up.shape, up.bytes) == ("Q4_K", (64, 256), 64 * 144)


def test_a_file_shorter_than_its_tensors_is_truncated(tmp_path: Path) -> None:
    found = read_gguf(str(write_gguf(tmp_path / "a.gguf", NOTES, TENSORS, 51200)))
    assert isinstance(found, Broken)
    assert found.fault is Fault.TRUNCATED


def test_a_file_cut_inside_its_header_is_truncated_wherever_it_is_cut(tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "a.gguf", {"general.architecture": "llama"}, TENSORS, 0).read_bytes()
    for size in range(4, len(whole) - 32):
        found = parse("a", whole[:size], size)
        assert isinstance(found, Broken)
        assert found.fault is Fault.TRUNCATED


def test_what_is_no_gguf_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_text("version https://git-lfs.github.com/spec/v1\noid\n")
    (tmp_path / "b.gguf").write_text("<html>")
    pointer, page = read_gguf(str(tmp_path / "a.gguf")), read_gguf(str(tmp_path / "b.gguf"))
    assert isinstance(pointer, Broken)
    assert pointer.fault is Fault.LFS_POINTER
    assert isinstance(page, Broken)
    assert page.fault is Fault.CORRUPT


@settings(max_examples=50)
@given(st.binary(max_size=400))
def test_no_bytes_raise(data: bytes) -> None:
    assert isinstance(parse("a", b"GGUF\x03\x00\x00\x00" + data, 8 + len(data)), Gguf | Broken)
