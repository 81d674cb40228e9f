"""The doctor on machines that do not let us do everything."""

from pathlib import Path

import pytest
from fake_proc import FakeProc

from firsttoken.hosts.procfs import Procfs
from firsttoken.session import doctor
from firsttoken.session.doctor import Found, examine


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTTOKEN_HOME", str(tmp_path / "home"))


def by_id(procfs: Procfs | None = None) -> dict[str, Found]:
    found = examine(procfs)
    assert len({item.id for item in found}) == len(found)
    return {item.id: item for item in found}


def test_here_everything_needed_is_there() -> None:
    found = by_id()
    assert [item for item in found.values() if item.result == "fail"] == []
    assert found["runs-folder"].fact.endswith("GB free")


def test_without_proc_nothing_can_be_followed(tmp_path: Path) -> None:
    found = by_id(Procfs(tmp_path / "nothing"))
    assert found["proc"].result == "fail"
    assert "mount -t proc" in (found["proc"].remedy or "")
    assert "proc-io" not in found


def test_what_is_hidden_is_told_with_what_that_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = FakeProc(tmp_path / "proc")
    monkeypatch.setattr(doctor.os, "getpid", lambda: 4242)
    proc.process(4242)
    proc.write("sys/kernel/yama/ptrace_scope", "3\n")
    found = by_id(proc.procfs)
    assert (found["proc"].result, found["proc"].fact) == ("warn", "1 processes visible, others' are hidden")
    assert found["proc-io"].result == "warn"
    assert found["proc-children"].result == "warn"
    assert (found["ptrace"].result, found["ptrace"].fact) == ("warn", "Yama 3: nobody")


def test_a_folder_that_cannot_be_used_says_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    found = by_id()["runs-folder"]
    assert (found.result, found.remedy) == ("fail", "set FIRSTTOKEN_HOME to a folder of yours")


def test_a_py_spy_that_is_missing_fails_or_hangs_is_only_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_program(text: str | None) -> Found:
        if text is not None:
            (tmp_path / "py-spy").write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / "py-spy").chmod(0o700)
        return by_id()["py-spy"]

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(doctor, "_beside", lambda _: None)
    monkeypatch.setattr(doctor, "_DEADLINE", 0.2)
    assert with_program(None).fact == "not found"
    failed = with_program("echo Permission Denied >&2; exit 1")
    assert (failed.result, failed.fact.split(": ")[1]) == ("warn", "Permission Denied")
    assert "SYS_PTRACE" in (failed.remedy or "")
    assert "timed out" in with_program("exec sleep 60").fact
    assert with_program("exit 0").result == "pass"


def test_gpus_are_told_with_what_they_do_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = "0, GPU-7, Old 10, 98, 3, 600, 16000, [N/A], [N/A]"
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\ncase \"$1\" in *compute*) exit 2 ;; esac\necho '{table}'\n")
    (tmp_path / "nvidia-smi").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("FIRSTTOKEN_NVML", "/nowhere/libnvidia-ml.so.1")
    (found,) = doctor._gpu()
    assert (found.id, found.result, found.fact) == ("gpu", "warn", "1 GPUs (Old 10) through nvidia-smi")
    assert "power, processes" in (found.remedy or "")


def test_without_a_gpu_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "gpus_present", lambda: False)
    (found,) = doctor._gpu()
    assert (found.result, found.fact) == ("not_checked", "no NVIDIA device here")
