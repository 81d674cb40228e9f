import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.observe.shards import may_be_weights, place_of, survey


def fill(folder: Path, *names: str, size: int = 2 << 20) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        with (folder / name).open("wb") as file:
            file.truncate(size)


def index(folder: Path, *names: str) -> None:
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": {f"t{n}": name for n, name in enumerate(names)}})
    )


def first(path: Path) -> list[str]:
    found = survey(str(path), given=True)
    return [os.path.basename(shard.path) for shard in found[0].shards] if found else []


def test_the_index_tells_which_shards_belong_together(tmp_path: Path) -> None:
    names = [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
    fill(tmp_path, *names, "model-00001-of-00002.safetensors", "consolidated.safetensors", "pytorch_model.bin", "tokenizer.json")
    index(tmp_path, *names)
    assert first(tmp_path) == names


def test_an_index_is_read_by_whoever_may(tmp_path: Path) -> None:
    fill(tmp_path, "model-1.safetensors", "model-2.safetensors", "old-1.safetensors", "old-2.safetensors", "old-3.safetensors")
    index(tmp_path, "nobody reads this")
    asked: list[str] = []

    def read(path: str, most: int) -> bytes:
        asked.append(path)
        return b'{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}'

    found = survey(str(tmp_path), given=True, read=read)
    assert [os.path.basename(shard.path) for shard in found[0].shards] == ["model-1.safetensors", "model-2.safetensors"]
    assert asked == [str(tmp_path / "model.safetensors.index.json")]


def test_without_an_index_safetensors_come_before_bin_and_the_larger_set_first(tmp_path: Path) -> None:
    fill(tmp_path, "pytorch_model.bin", "model-1.safetensors", "model-2.safetensors", "model-10.safetensors")
    fill(tmp_path, "adapter.safetensors", size=1 << 20)
    assert first(tmp_path) == ["model-1.safetensors", "model-2.safetensors", "model-10.safetensors"]
    assert [shards.given for shards in survey(str(tmp_path), given=True)] == [True, False, False]


def test_a_split_gguf_is_found_from_any_of_its_parts_and_other_quantisations_are_not_part_of_it(tmp_path: Path) -> None:
    fill(tmp_path, "m-Q4_K-00001-of-00002.gguf", "m-Q4_K-00002-of-00002.gguf", "m-Q8_K-00001-of-00002.gguf", "other.gguf")
    assert first(tmp_path / "m-Q4_K-00002-of-00002.gguf") == ["m-Q4_K-00001-of-00002.gguf", "m-Q4_K-00002-of-00002.gguf"]
    assert first(tmp_path / "other.gguf") == ["other.gguf"]


def test_a_blob_of_a_hub_cache_leads_to_its_snapshot(tmp_path: Path) -> None:
    repository = tmp_path / "models--org--name"
    blobs = [f"{n:064x}" for n in range(3)]
    fill(repository / "blobs", *blobs)
    snapshot = repository / "snapshots/abc"
    snapshot.mkdir(parents=True)
    for n, blob in enumerate(blobs):
        (snapshot / f"model-0000{n + 1}-of-00003.safetensors").symlink_to(f"../../blobs/{blob}")
    (found,) = survey(str(repository / "blobs" / blobs[1]), given=False)
    assert [os.path.basename(shard.real) for shard in found.shards] == blobs
    assert [os.path.basename(shard.path) for shard in found.shards] == [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
    assert not found.given
    assert may_be_weights(found.shards[0].real)


def test_an_opened_file_brings_its_own_set_only(tmp_path: Path) -> None:
    fill(tmp_path, "model-1.safetensors", "model-2.safetensors", "consolidated.safetensors")
    (found,) = survey(str(tmp_path / "consolidated.safetensors"), given=False)
    assert [shard.path for shard in found.shards] == [str(tmp_path / "consolidated.safetensors")]


def test_what_is_not_there_or_has_no_weights_gives_nothing(tmp_path: Path) -> None:
    fill(tmp_path, "tokenizer.json", "training_args.bin", size=100)
    assert survey(str(tmp_path), given=True) == ()
    assert survey("org/name", given=True) == ()
    assert survey(str(tmp_path / "models--a--b/blobs" / ("0" * 64)), given=False) == ()


def test_a_pipe_in_place_of_a_shard_counts_as_one(tmp_path: Path) -> None:
    fill(tmp_path, "model-1.safetensors")
    os.mkfifo(tmp_path / "model-2.safetensors")
    assert first(tmp_path) == ["model-1.safetensors", "model-2.safetensors"]


@pytest.mark.parametrize(
    ("path", "likely"),
    [
        ("/m/model.safetensors", True), ("/m/x.gguf", True), ("/m/pytorch_model-00001-of-00002.bin", True),
        ("/m/consolidated.00.pth", True),
        ("/usr/lib/locale/C.bin", False), ("/dev/shm/model.bin", False), ("/v/site-packages/x/model.pt", False), ("/m/libtorch.so", False),
        ("/h/models--a--b/blobs/" + "0" * 64, True), ("/h/models--a--b/blobs/" + "0" * 64 + ".incomplete", False),
    ],
)  # fmt: skip
def test_names_tell_what_may_be_weights(path: str, likely: bool) -> None:
    assert may_be_weights(path) is likely


@given(st.text(max_size=60))
def test_any_path_is_judged_without_raising(path: str) -> None:
    may_be_weights("/" + path)
    place_of("/" + path)


@given(st.binary(max_size=300))
def test_an_index_of_any_bytes_is_read_without_raising(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    folder = tmp_path_factory.mktemp("m")
    fill(folder, "model.safetensors", size=10)
    (folder / "model.safetensors.index.json").write_bytes(raw)
    assert first(folder) == ["model.safetensors"]
