"""A model's folder: which files count, and what is wrong with them."""

import json
from pathlib import Path

from model_folders import LLAMA, decoder, write_gguf, write_model, write_shard

from firsttoken.survey.checkpoint import read_checkpoint
from firsttoken.survey.safetensors import Fault


def test_a_whole_model_has_all_its_tensors_once(tmp_path: Path) -> None:
    found = read_checkpoint(str(write_model(tmp_path / "m")))
    assert found is not None
    assert found.kind == "safetensors"
    assert len(found.files) == 3
    assert {tensor.name for tensor in found.tensors} == set(decoder(LLAMA))
    assert found.tokenizer
    assert (found.broken, found.twice, found.lost, found.index_problem) == ((), (), (), None)


def test_a_shard_that_the_index_names_and_nobody_has_is_missing(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    (folder / "model-00002-of-00003.safetensors").unlink()
    found = read_checkpoint(str(folder))
    assert found is not None
    assert [(Path(one.path).name, one.fault) for one in found.broken] == [("model-00002-of-00003.safetensors", Fault.MISSING)]


def test_without_an_index_the_numbers_tell_what_is_missing(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    (folder / "model.safetensors.index.json").unlink()
    (folder / "model-00001-of-00003.safetensors").unlink()
    found = read_checkpoint(str(folder))
    assert found is not None
    assert [one.fault for one in found.broken] == [Fault.MISSING]


def test_tensors_that_the_index_promises_and_no_file_holds_are_lost(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    index["weight_map"]["model.layers.8.extra"] = "model-00001-of-00003.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    found = read_checkpoint(str(folder))
    assert found is not None
    assert found.lost == ("model.layers.8.extra",)


def test_two_versions_in_one_folder_hold_tensors_twice(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", shards=1)
    (folder / "model.safetensors.index.json").unlink()
    (folder / "model-00001-of-00001.safetensors").rename(folder / "model.safetensors")
    write_shard(folder / "old.safetensors", {"model.norm.weight": ("BF16", (256,))})
    found = read_checkpoint(str(folder))
    assert found is not None
    assert found.twice == ("model.norm.weight",)


def test_consolidated_twins_and_adapters_are_not_read(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", shards=1)
    (folder / "model.safetensors.index.json").unlink()
    write_shard(folder / "consolidated.safetensors", decoder(LLAMA))
    write_shard(folder / "adapter_model.safetensors", decoder(LLAMA))
    found = read_checkpoint(str(folder))
    assert found is not None
    assert len(found.files) == 1
    assert not found.twice


def test_an_unfinished_download_in_the_hubs_cache_is_told(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "models--a--b" / "snapshots" / "abc")
    blobs = tmp_path / "models--a--b" / "blobs"
    blobs.mkdir()
    (blobs / "1234.incomplete").touch()
    found = read_checkpoint(str(folder))
    assert found is not None
    assert len(found.unfinished) == 1


def test_a_split_gguf_is_all_its_parts(tmp_path: Path) -> None:
    one = write_gguf(tmp_path / "m-00001-of-00002.gguf", {"general.architecture": "llama"}, {"token_embd.weight": (1, (8, 8), 0)}, 128)
    found = read_checkpoint(str(one))
    assert found is not None
    assert found.kind == "gguf"
    assert [broken.fault for broken in found.broken] == [Fault.MISSING]
    write_gguf(tmp_path / "m-00002-of-00002.gguf", {}, {"output.weight": (1, (8, 8), 0)}, 128)
    again = read_checkpoint(str(one))
    assert again is not None
    assert [tensor.name for tensor in again.tensors] == ["token_embd.weight", "output.weight"]


def test_pickled_weights_are_found_and_their_pointers_too(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_text("version https://git-lfs.github.com/spec/v1\noid\n")
    found = read_checkpoint(str(tmp_path))
    assert found is not None
    assert found.kind == "pickle"
    assert [one.fault for one in found.broken] == [Fault.LFS_POINTER]


def test_a_config_that_cannot_be_read_is_told_and_nothing_raises(tmp_path: Path) -> None:
    for text in ("{", "[]", "version https://git-lfs.github.com/spec/v1\n", "[" * 100000):
        (tmp_path / "config.json").write_text(text)
        found = read_checkpoint(str(tmp_path))
        assert found is not None
        assert found.config is None
        assert found.config_problem
    assert read_checkpoint(str(tmp_path / "nothing")) is None
