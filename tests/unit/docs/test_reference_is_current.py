"""The reference pages say what the program says."""

import dataclasses
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from firsttoken.faces.cli.main import COMMANDS
from firsttoken.model.exits import decision
from firsttoken.model.plan import Policy
from firsttoken.model.result import Result
from firsttoken.model.words import Phase, Verdict

DOCS = Path(__file__).resolve().parents[3] / "docs"


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES: dict[Path, str] = _generator().pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_generated_page_is_as_the_program_would_write_it_now(page: Path) -> None:
    assert page.read_text(encoding="utf8") == PAGES[page], "run: python docs/generate.py"


def test_every_command_of_the_program_is_in_the_readme() -> None:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf8")
    assert [name for name in COMMANDS if f"`{name}" not in readme] == []


def test_every_verdict_is_explained_with_the_status_that_the_program_gives() -> None:
    page = (DOCS / "reference" / "verdicts.md").read_text(encoding="utf8")
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (.*?) \|$", page, re.M))
    assert set(Verdict) <= rows.keys()
    for verdict in Verdict:
        code = decision(Result(verdict=verdict, still_s=1e9), Policy())
        assert rows[verdict].split()[0] == (str(code) if code is not None else "none:")


def test_every_key_of_the_result_document_and_every_phase_is_explained() -> None:
    page = (DOCS / "reference" / "result.md").read_text(encoding="utf8")
    words = set(re.findall(r"`([a-z_]+)`", page))
    assert {field.name for field in dataclasses.fields(Result)} - words == set()
    assert set(Phase) - words == set()
