import os
import stat
from pathlib import Path

import pytest

from firsttoken.model.plan import Plan, Sizes
from firsttoken.session.arming import arming


def test_everything_lies_in_the_runs_folder(tmp_path: Path) -> None:
    env = arming(tmp_path, Plan(), {})
    assert env["TORCH_FR_BUFFER_SIZE"] == env["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "2000"
    assert env["PYTHONFAULTHANDLER"] == env["CUDA_ENABLE_USER_TRIGGERED_COREDUMP"] == "1"
    for name in ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "CUDA_COREDUMP_PIPE", "CUDA_COREDUMP_FILE"):
        place = Path(env[name]).parent
        assert place.parent == tmp_path
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert list((tmp_path / "flight_recorder").iterdir()) == []


def test_a_dump_of_the_gpu_does_not_end_the_server(tmp_path: Path) -> None:
    env = arming(tmp_path, Plan(), {})
    assert "skip_abort" in env["CUDA_COREDUMP_GENERATION_FLAGS"].split(",")
    assert "CUDA_ENABLE_COREDUMP_ON_EXCEPTION" not in env


def test_what_the_user_set_stays(tmp_path: Path) -> None:
    env = arming(tmp_path, Plan(), {"TORCH_FR_BUFFER_SIZE": "50", "PYTHONFAULTHANDLER": "0"})
    assert not {"TORCH_FR_BUFFER_SIZE", "PYTHONFAULTHANDLER"} & env.keys()


def test_a_container_has_an_environment_of_its_own(tmp_path: Path) -> None:
    assert arming(tmp_path, Plan(contained=True), {}) == {}
    assert list(tmp_path.iterdir()) == []


def test_ranks_of_several_worlds_would_want_the_same_pipe(tmp_path: Path) -> None:
    assert "TORCH_NCCL_DEBUG_INFO_PIPE_FILE" not in arming(tmp_path, Plan(sizes=Sizes(dp=2, world=2)), {})


def test_where_no_pipe_can_be_made_torch_is_not_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: object, mode: int = 0o666) -> None:
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(os, "mkfifo", refused)
    assert "TORCH_NCCL_DEBUG_INFO_PIPE_FILE" not in arming(tmp_path, Plan(), {})
