"""Forecasts, prefetches as children, and mounts that give no answer."""

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from model_folders import LLAMA, write_shard
from story import Story

from firsttoken.judge.state import State
from firsttoken.model.events import Body, Exited, Missed, Prefetched, WeightProgress, WeightStorage
from firsttoken.model.process import ProcessKey, ShardFile
from firsttoken.model.weights import Bound, Forecast, Limit, Rate
from firsttoken.session.loading.beside import WeightsBeside
from firsttoken.session.loading.prefetch import PrefetchProcess
from firsttoken.session.loading.weights import Found, WeightsUnknown, find, forecast, timed

SILENT = (sys.executable, "-S", "-c", "import sys; sys.stdin.read() if 'prefetch' in sys.argv else __import__('signal').pause()")
"""a child whose file system gives no answer"""
GB = 10**9
KNOWN = Forecast(path="/m", shards=3, bytes=30 * GB, cached=0, storage=Rate(bytes_per_s=3e9, how="measured"))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FIRSTTOKEN_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for number in (1, 2):
        path = write_shard(folder / f"model-0000{number}-of-00002.safetensors", {f"w{number}": ("BF16", (1 << 20,))})
        with path.open("r+b") as file:
            file.seek(200)
            file.write(os.urandom(1 << 20))
            file.flush()
            os.fsync(file.fileno())
    (folder / "config.json").write_text(json.dumps(LLAMA))
    return folder


def test_storage_and_memory_come_one_after_the_other_where_nothing_was_learned() -> None:
    told = timed(replace(KNOWN, warm=Rate(bytes_per_s=10e9, how="measured")))
    assert (told.cold_s, told.warm_s, told.now_s) == (13.0, 3.0, 13.0)
    assert told.limit == Limit(what=Bound.STORAGE, bytes_per_s=3e9)


def test_what_the_like_took_before_is_believed() -> None:
    told = timed(replace(KNOWN, cached=15 * GB, warm=Rate(bytes_per_s=6e9, how="runs")), cold=1e9)
    assert (told.cold_s, told.warm_s, told.now_s) == (30.0, 5.0, 17.5)
    assert told.limit == Limit(what=Bound.ENGINE, bytes_per_s=30 * GB / 17.5)


def test_a_warm_load_is_bound_by_memory_or_the_engine_and_needs_no_storage() -> None:
    told = timed(replace(KNOWN, cached=30 * GB, storage=None, warm=Rate(bytes_per_s=10e9, how="measured")))
    assert (told.cold_s, told.warm_s, told.now_s) == (None, 3.0, 3.0)
    assert told.limit == Limit(what=Bound.MEMORY, bytes_per_s=10e9)
    unknown = timed(replace(KNOWN, cached=None, warm=None))
    assert (unknown.cold_s, unknown.now_s, unknown.limit) == (None, None, None)


def test_a_folder_is_looked_at_by_a_child_and_its_storage_measured(model: Path, home: Path) -> None:
    found, told = asyncio.run(forecast({"path": str(model)}))
    assert [Path(path).name for path, _ in found.files] == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert told.bytes == found.bytes > 4 << 20
    assert told.cached is not None
    assert told.warm is not None
    if told.storage is None:
        assert any("not measured" in text for text in told.problems)
    else:
        assert (home / "storage-rates.json").exists()
        assert found.words


def test_what_is_not_there_and_what_gives_no_answer_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(WeightsUnknown, match="nothing is there") as gone:
        asyncio.run(find({"path": str(tmp_path / "gone")}))
    assert not gone.value.silent
    with pytest.raises(WeightsUnknown, match=r"gave no answer within 0 s. Is a mount dead\?") as silent:
        asyncio.run(find({"path": "/mnt/models/m"}, within=0.3, child=SILENT))
    assert silent.value.silent


def test_a_command_without_weights_here_says_so() -> None:
    with pytest.raises(WeightsUnknown, match="nothing is known of its weights"):
        asyncio.run(find({"argv": ["sleep", "1"]}))


def test_a_mount_that_nobody_serves_ends_in_a_sentence(tmp_path: Path) -> None:
    """In a mount namespace of its own; the kernel then waits for ever."""
    script = tmp_path / "dead.py"
    script.write_text(
        "import asyncio, ctypes, os, sys\n"
        "from firsttoken.session.loading.weights import WeightsUnknown, find\n"
        "point = sys.argv[1]\n"
        "fuse = os.open('/dev/fuse', os.O_RDWR)\n"
        "options = f'fd={fuse},rootmode=40000,user_id=0,group_id=0'.encode()\n"
        "assert ctypes.CDLL(None).mount(b'filer:/models', point.encode(), b'fuse.sshfs', 0, options) == 0, 'no mount'\n"
        "try:\n    asyncio.run(find({'path': point + '/m'}, within=3.0))\n"
        "except WeightsUnknown as error:\n    print(error)\n"
        "os._exit(0)\n"
    )
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("needs root and /dev/fuse")
    point = tmp_path / "mnt"
    point.mkdir()
    done = subprocess.run(["unshare", "-m", sys.executable, str(script), str(point)], capture_output=True, text=True, timeout=60)
    if "no mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip("mounts are not allowed here")
    assert f"{point} (fuse.sshfs from filer:/models), which gave no answer within 3 s" in done.stdout, done.stderr


def of(model: Path) -> Found:
    return asyncio.run(find({"path": str(model)}))


def test_a_prefetch_is_told_as_it_goes_and_leaves_the_files_in_memory(model: Path) -> None:
    with PrefetchProcess(of(model)) as process:
        last = list(process.updates())[-1]
    assert (last.ended, last.done) == ("done", last.bytes)
    assert of(model).cached_bytes == last.bytes


def test_a_prefetch_that_hears_nothing_gives_up_and_one_that_is_stopped_ends(model: Path) -> None:
    found = replace(of(model), place={"words": "/mnt (nfs from filer:/m)"})
    with PrefetchProcess(found, child=SILENT, silent_after=0.5) as process:
        last = list(process.updates())[-1]
    assert last.ended == "error"
    assert last.problem == "/mnt (nfs from filer:/m) gave nothing for 0 s: is the mount dead?"
    with PrefetchProcess(found, child=SILENT) as process:
        process.stop()
        assert list(process.updates())[-1].ended == "stopped"


def beside(paths: tuple[str, ...], state: State, *, prefetch: bool = False, child: tuple[str, ...] | None = None) -> list[Body]:
    posted: list[Body] = []
    work = WeightsBeside(paths, prefetch=prefetch) if child is None else WeightsBeside(paths, prefetch=prefetch, child=child)
    asyncio.run(asyncio.wait_for(work(posted.append, lambda: state), 60))
    return posted


def test_beside_a_start_the_page_cache_is_told_and_nothing_is_measured(model: Path, home: Path) -> None:
    (seen,) = beside((str(model),), Story().launch().state)
    assert isinstance(seen, WeightStorage)
    assert (seen.shards, seen.path, seen.bytes_per_s) == (2, str(model), None)
    assert not (home / "storage-rates.json").exists()
    again = Story().launch().tell(seen).state
    assert beside((str(model),), again) == [], "an observer that was started again does not look again"


def test_weights_that_the_command_does_not_name_are_found_when_they_are_opened(model: Path) -> None:
    opened = ShardFile(str(model / "model-00001-of-00002.safetensors"), 1, 0)
    state = Story().launch().tell(WeightProgress(shards=2, shards_done=0, bytes=9, bytes_done=0, files=(opened,))).state
    assert isinstance(beside((), state)[0], WeightStorage)


def test_weights_that_are_still_to_come_are_no_complaint(tmp_path: Path) -> None:
    assert beside((str(tmp_path / "to-come"),), Story().launch().state) == []
    (missed,) = beside((str(tmp_path / "to-come"),), Story().launch().state, prefetch=True)
    assert isinstance(missed, Missed)


def test_a_prefetch_beside_a_start_is_told_and_ends_with_the_server(model: Path) -> None:
    seen, *told = beside((str(model),), Story().launch().state, prefetch=True)
    assert isinstance(seen, WeightStorage)
    last = told[-1]
    assert isinstance(last, Prefetched)
    assert (last.ended, last.done) == ("done", last.bytes)
    ended = Story().launch().tell(Exited(process=ProcessKey("node", 100, 1), code=0, root=True)).state
    (missed,) = beside((), ended, prefetch=True)
    assert isinstance(missed, Missed)
    assert "none were seen open" in missed.reason
