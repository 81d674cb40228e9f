"""Small bug reports with their right answers: one TOML file each, holding the files that somebody would attach and what must be said."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from firsttoken.session.explain import explain_path

_FILES = {"command": "command.txt", "log": "server.log", "processes": "processes.txt", "gpus": "gpus.csv", "probes": "probes.txt"}
_REPORTS = sorted((Path(__file__).parent / "reports").glob("*.toml"))


def _laid_out(report: dict[str, Any], folder: Path) -> Path:
    for name, file in _FILES.items():
        if name in report:
            (folder / file).write_text(report[name], encoding="utf8")
    for pid, text in report.get("stacks", {}).items():
        (folder / "stacks").mkdir(exist_ok=True)
        (folder / "stacks" / f"{pid}.txt").write_text(text, encoding="utf8")
    return folder


@pytest.mark.parametrize("file", _REPORTS, ids=lambda file: file.stem)
def test_a_report_is_told_right(file: Path, tmp_path: Path) -> None:
    report = tomllib.loads(file.read_text(encoding="utf8"))
    right = report["right"]
    result = explain_path(_laid_out(report, tmp_path))
    sure = [row["cause"] for row in result.findings if row["confidence"] >= 0.5]
    top = result.findings[0]["cause"] if result.findings else "unknown"
    assert result.engine.name == (right["engine"] or None)
    assert str(result.verdict) in right["verdict"]
    assert str(result.phase) in right["phase"]
    assert list(result.ranks.behind) == right.get("behind", [])
    if right["cause"] in ("none", "unknown"):
        assert not sure, f"nothing is decided here, and {sure} was said"
    else:
        assert top == right["cause"], [(row["cause"], row["confidence"]) for row in result.findings]
    assert not set(sure[:1]) & set(right.get("never", []))
    for name, seconds in right.get("seconds", {}).items():
        row = next(row for row in result.phases if row.name == name)
        assert row.seconds == pytest.approx(seconds, abs=1.5), name
