"""What earlier loads tell about the next: the same files first, the same engine after them."""

import json
from pathlib import Path

from firsttoken.history.loads import LoadRates, load_rates
from firsttoken.history.runs import RunFolder


def ran(
    root: Path, name: str, rate: float, source: str | None, *, engine: str = "engine", path: str | None = "/m", **more: object
) -> RunFolder:
    folder = root / name
    folder.mkdir()
    weights = {"source": source, "bytes_per_s": rate, "seconds": 2.0, "path": path, "prefetched": 0, **more}
    (folder / "result.json").write_text(json.dumps({"engine": {"name": engine}, "weights": weights}))
    return RunFolder(folder)


def test_loads_of_the_same_files_count_by_their_source(tmp_path: Path) -> None:
    folders = [
        ran(tmp_path, "a", 100.0, "page_cache"),
        ran(tmp_path, "b", 300.0, "page_cache"),
        ran(tmp_path, "c", 200.0, "page_cache"),
        ran(tmp_path, "d", 10.0, "storage"),
        ran(tmp_path, "other", 9000.0, "page_cache", path="/other"),
        ran(tmp_path, "unknown", 9000.0, None),
        ran(tmp_path, "fetched", 9000.0, "page_cache", prefetched=5),
        ran(tmp_path, "unfinished", 9000.0, "page_cache", seconds=None),
    ]
    assert load_rates("engine", "/m", folders) == LoadRates(warm=200.0, cold=10.0)
    assert load_rates(None, "/m", folders) == LoadRates(warm=200.0, cold=10.0)


def test_other_files_count_for_the_same_engine_only(tmp_path: Path) -> None:
    folders = [ran(tmp_path, "a", 100.0, "page_cache"), ran(tmp_path, "b", 7.0, "page_cache", engine="another")]
    assert load_rates("engine", "/new", folders) == LoadRates(warm=100.0)
    assert load_rates(None, "/new", folders) == LoadRates()


def test_damaged_results_teach_nothing(tmp_path: Path) -> None:
    for number, text in enumerate(
        ("", "[]", '{"engine": 3, "weights": {}}', '{"engine": {}, "weights": {"source": 3, "bytes_per_s": "x"}}')
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "result.json").write_text(text)
    assert load_rates("engine", "/m", [RunFolder(path) for path in sorted(tmp_path.iterdir())]) == LoadRates()
