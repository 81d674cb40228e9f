"""Builds the fake NVML library once, and drives it: a file says what its cards do."""

import atexit
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

SOURCE = Path(__file__).parents[2] / "targets" / "fake_nvml.c"


@cache
def _library() -> Path | None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    folder = mkdtemp(prefix="firsttoken-fake-nvml-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = Path(folder) / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE], check=True, timeout=60)
    return library


class Cards:
    """What the fake's cards do, from the next question on."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.does("healthy")

    def does(self, scene: str, **more: object) -> None:
        words = [f"scene={scene}", *(f"{name}={value}" for name, value in more.items())]
        new = self.file.with_suffix(".new")
        new.write_text(" ".join(words))
        os.replace(new, self.file)


@pytest.fixture
def cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cards:
    library = _library()
    if library is None:
        pytest.skip("no C compiler to build the fake NVML with")
    monkeypatch.setenv("FIRSTTOKEN_NVML", str(library))
    monkeypatch.setenv("FAKE_NVML", str(tmp_path / "cards"))
    return Cards(tmp_path / "cards")
