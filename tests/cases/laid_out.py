"""A case of a TOML file as the folder of files that somebody would attach."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILES = {"command": "command.txt", "log": "server.log", "processes": "processes.txt", "gpus": "gpus.csv", "probes": "probes.txt"}


def laid_out(case: Mapping[str, Any], folder: Path) -> Path:
    for name, file in FILES.items():
        if name in case:
            (folder / file).write_text(case[name], encoding="utf8")
    for pid, text in case.get("stacks", {}).items():
        (folder / "stacks").mkdir(exist_ok=True)
        (folder / "stacks" / f"{pid}.txt").write_text(text, encoding="utf8")
    return folder
