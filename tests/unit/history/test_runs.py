"""Folders of runs: making, naming, finding and reading them, however they look."""

import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firsttoken.history.runs import RunFolder, RunNotFound, create, find, home, remove, runs
from firsttoken.model.codec import encode
from firsttoken.model.events import Event, Tick

NOW = datetime(2026, 11, 29, 18, 11, 45, tzinfo=UTC)


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FIRSTTOKEN_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def ticks(*numbers: int) -> bytes:
    return b"".join(encode(Event(seq=number, t=float(number), wall=1e9, node="a", body=Tick())) for number in numbers)


def test_a_run_is_named_by_time_and_command_and_is_its_owners_alone(at_home: Path) -> None:
    folder = create("/opt/My Engine.sh", NOW)
    assert folder.name.startswith("20261129-181145-opt-my-engine-sh-")
    assert folder.path.parent == at_home / "runs"
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert stat.S_IMODE((at_home / "runs").stat().st_mode) == 0o700
    assert create("模型", NOW).name.startswith("20261129-181145-run-")


def test_runs_of_the_same_second_get_names_of_their_own() -> None:
    assert len({create("vllm", NOW).name for _ in range(50)}) == 50


def test_the_home_may_be_written_with_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTTOKEN_HOME", "~/some/place")
    assert home() == Path.home() / "some/place"
    monkeypatch.setenv("FIRSTTOKEN_HOME", "")
    assert home().name == "firsttoken"


def test_a_run_is_found_by_name_by_a_part_by_folder_and_as_the_latest(at_home: Path) -> None:
    first, second = create("vllm", NOW), create("sglang", NOW.replace(hour=19))
    assert [run.name for run in runs()] == [first.name, second.name]
    assert find(None) == second
    assert find(first.name) == first
    assert find("vllm") == first
    first.events_file.write_bytes(b"")
    assert find(str(first.path)) == first


def test_a_whole_name_is_found_also_where_it_is_part_of_another(at_home: Path) -> None:
    for name in ("a-run", "a-run-again"):
        (at_home / "runs" / name).mkdir(parents=True)
    assert find("a-run").name == "a-run"


def test_what_is_not_found_lists_what_there_is(at_home: Path) -> None:
    with pytest.raises(RunNotFound, match=r"there is no run yet under .*firsttoken run -- COMMAND"):
        find(None)
    names = [create("vllm", NOW).name, create("vllm", NOW).name]
    with pytest.raises(RunNotFound, match="no run is called 'llama'.*" + ".*".join(sorted(names))):
        find("llama")
    with pytest.raises(RunNotFound, match="2 runs answer to 'vllm'"):
        find("vllm")


def test_files_among_the_runs_are_no_runs(at_home: Path) -> None:
    create("vllm", NOW)
    (at_home / "runs" / "notes.txt").write_text("x")
    assert len(runs()) == 1


def test_a_json_file_is_replaced_whole_and_comes_back_as_it_was() -> None:
    folder = create("vllm", NOW)
    for content in ({"text": "größer … \udcff"}, {"argv": ["a"], "n": 1.5}):
        folder.write_json("result.json", content)
        assert folder.result() == content
    assert stat.S_IMODE((folder.path / "result.json").stat().st_mode) == 0o600
    assert os.listdir(folder.path) == ["result.json"]


@pytest.mark.parametrize("raw", [b"", b"{", b"[1]", b"\xff\xfe", b"null", b"[" * 99_999])
def test_a_json_file_that_is_none_reads_as_empty(raw: bytes) -> None:
    folder = create("vllm", NOW)
    (folder.path / "keeper.json").write_bytes(raw)
    (folder.path / "result.json").mkdir()
    assert folder.keeper() == folder.result() == folder.spec() == {}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(), cut=st.integers(0, 300))
def test_any_bytes_of_an_events_file_read_without_an_error(raw: bytes, cut: int, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    kept = ticks(1, 2, 3)[:cut]
    folder.events_file.write_bytes(kept + raw)
    whole = kept.count(b"\n")
    assert [event.seq for event in folder.events()][:whole] == [1, 2, 3][:whole]


def test_a_run_without_events_has_none(tmp_path: Path) -> None:
    assert list(RunFolder(tmp_path).events()) == []
    assert list(RunFolder(tmp_path).log()) == []


def test_the_log_is_read_from_any_byte_and_a_dropped_middle_is_a_jump(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "head.raw").write_bytes(b"0123456789")
    (tmp_path / "log" / f"tail-{10:020}.raw").write_bytes(b"abcde")
    (tmp_path / "log" / f"tail-{30:020}.raw").write_bytes(b"vwxyz")
    (tmp_path / "log" / "tail-odd.raw").write_bytes(b"?")
    assert list(folder.log()) == [(0, b"0123456789"), (10, b"abcde"), (30, b"vwxyz")]
    assert list(folder.log(12)) == [(12, b"cde"), (30, b"vwxyz")]
    assert list(folder.log(40)) == []


def test_removing_tells_how_much_room_was_made() -> None:
    folder = create("vllm", NOW)
    (folder.path / "log").mkdir()
    (folder.path / "log" / "head.raw").write_bytes(b"x" * 1000)
    assert remove(folder) == 1000
    assert not folder.path.exists()
