"""Small files that nvcc built, and what it was told to put into them (`gpu_code/build.py` made both)."""

import json
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

from firsttoken.survey.gpu_libraries import read_window
from firsttoken.survey.window import Window

_FOLDER = Path(__file__).parent / "gpu_code"
TRUTH: dict[str, dict[str, Any]] = json.loads((_FOLDER / "truth.json").read_text())


@cache
def built(name: str) -> bytes:
    with zipfile.ZipFile(_FOLDER / "builds.zip") as archive:
        return archive.read(name)


def reading(content: bytes, *, names: bool = False) -> Any:
    return read_window(Window.of_bytes(content), "file", names=names)


def counted(counts: Any) -> dict[str, int]:
    return {f"{target.kind} {target.name}": count for target, count in counts}
