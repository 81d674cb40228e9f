"""Every cause has a case that it fits and one that only looks like it: in its rule (samples and negatives), here, or among the reports."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from laid_out import laid_out

from firsttoken.knowledge.causes import causes
from firsttoken.session.explain import explain_path

HERE = Path(__file__).parent
CASES = tomllib.loads((HERE / "causes.toml").read_text(encoding="utf8"))["case"]
RECORDED = {"lock-cycle", "address-unreachable"}
"""only the record of a run shows these: tests of recorded facts have their cases"""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"].replace(" ", "_"))
def test_a_cause_is_told_where_it_is_and_not_where_it_only_looks_so(case: dict[str, Any], tmp_path: Path) -> None:
    said = {row["cause"]: row["confidence"] for row in explain_path(laid_out(case, tmp_path)).findings}
    if "is" in case:
        assert said.get(case["is"], 0.0) >= case.get("least", 0.5), said
    else:
        assert said.get(case["not"], 0.0) < 0.5, said


def test_every_cause_has_a_positive_and_a_negative_case() -> None:
    reports = [tomllib.loads(file.read_text(encoding="utf8"))["right"] for file in (HERE / "reports").glob("*.toml")]
    positive = {report["cause"] for report in reports} | {case.get("is") for case in CASES} | RECORDED
    negative = {cause for report in reports for cause in report.get("never", ())} | {case.get("not") for case in CASES} | RECORDED
    assert [cause.id for cause in causes() if not cause.samples and cause.id not in positive] == []
    assert [cause.id for cause in causes() if not cause.negatives and cause.id not in negative] == []
