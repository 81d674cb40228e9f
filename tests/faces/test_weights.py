"""`firsttoken weights`: of a folder, of a run, and into memory."""

import os
import sys
from pathlib import Path

import pytest
from cli_runs import Cli
from model_folders import write_shard


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    path = write_shard(folder / "model.safetensors", {"w": ("BF16", (3 << 20,))})
    with path.open("r+b") as file:
        file.seek(200)
        file.write(os.urandom(6 << 20)[:-200])
        file.flush()
        os.fsync(file.fileno())
    return folder


def test_a_folder_is_told_and_then_prefetched(cli: Cli, model: Path) -> None:
    said = cli("weights", str(model))
    assert said.code == 0
    assert said.out.startswith(f"{model}: 6.29 MB in 1 file, ")
    assert "to load" in said.out
    done = cli("weights", "--prefetch", "--json", str(model))
    assert done.code == 0
    told = done.json
    assert {"bytes", "shards", "cached_share", "storage_bytes_per_s", "achieved_bytes_per_s", "predicted_cold_s"} <= told.keys()
    assert {"kind": told["kind"], "schema": told["schema"], "shards": told["shards"]} == {
        "kind": "weights",
        "schema": "firsttoken/1",
        "shards": 1,
    }
    assert told["prefetch"]["ended"] == "done"
    assert "are in memory" in done.err
    after = cli("weights", "--json", str(model)).json
    assert after["cached_share"] == 1.0
    assert after["predicted_now_s"] == after["predicted_warm_s"]


def test_what_has_no_weights_is_said(cli: Cli, tmp_path: Path) -> None:
    gone = cli("weights", str(tmp_path / "gone"))
    assert gone.code == 2
    assert "nothing is there" in gone.err
    empty = cli("weights", str(tmp_path))
    assert empty.code == 1
    assert "no weight files are there" in empty.err
    two = cli("weights", str(tmp_path), str(tmp_path))
    assert two.code == 2
    assert "give one PATH at a time" in two.err
    (tmp_path / "vllm").mkdir()
    hub = cli("weights", "--", "vllm", "serve", "nobody/no-such-model", cwd=tmp_path)
    assert hub.code == 2
    assert "nobody/no-such-model is not in the hub's cache" in hub.err
    assert cli("weights").code == 2, "there is no run yet"
    assert "nothing to prefetch is named" in cli("weights", "--prefetch").err


def test_a_shard_that_is_cut_off_is_told_by_the_status_too(cli: Cli, model: Path) -> None:
    os.truncate(model / "model.safetensors", 5_000_000)
    said = cli("weights", str(model))
    assert said.code == 1
    assert "problem: " in said.out


def test_a_run_is_told_by_its_load(cli: Cli) -> None:
    command = (sys.executable, "-m", "firsttoken", "rehearse", "--port", "0", "--pace", "weights=3")
    ran = cli("run", "--until", "ready", "--quiet", "--json", "--prefetch", "--", *command)
    assert ran.code == 0, ran.err
    weights = ran.json["weights"]
    assert {"source", "path", "prefetched", "says"} <= weights.keys()
    said = cli("weights")
    assert said.code == 0
    assert said.out.strip()
    if weights["says"]:  # an observer that a busy machine starts too late has seen nothing of the load
        assert said.out.startswith(weights["says"][0])
    told = cli("weights", "--json", ran.json["run"]).json
    assert (told["kind"], told["run"], told["seconds"]) == ("weights", ran.json["run"], weights["seconds"] or None)
