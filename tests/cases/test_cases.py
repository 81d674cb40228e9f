"""Small bug reports with their right answers: one TOML file each, holding the files that somebody would attach and what must be said."""

import tomllib
from pathlib import Path

import pytest
from laid_out import laid_out

from firsttoken.session.explain import explain_path

_REPORTS = sorted((Path(__file__).parent / "reports").glob("*.toml"))


@pytest.mark.parametrize("file", _REPORTS, ids=lambda file: file.stem)
def test_a_report_is_told_right(file: Path, tmp_path: Path) -> None:
    report = tomllib.loads(file.read_text(encoding="utf8"))
    right = report["right"]
    result = explain_path(laid_out(report, tmp_path))
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
