"""What the pages tell to type is typed, and where they point to there is something.

A block marked `console run` is a session: its commands run one after the other, RUN standing for the latest run, and end with status 0 or
with the one in a `# status N` behind them. Where the page shows a verdict, the command must give that verdict.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "src" / "firsttoken" / "rehearsal" / "README.md"])
SECONDS = 100.0
_VERDICT = re.compile(r"^[A-Z]{4,}(?=: )", re.M)


def _sessions(page: Path) -> list[tuple[str, int, set[str]]]:
    """(command, its status, the verdicts that the page shows below it)"""
    found = []
    for block in re.findall(r"^```console run\n(.*?)^```", page.read_text(encoding="utf8"), re.M | re.S):
        for piece in re.split(r"^\$ ", block, flags=re.M)[1:]:
            line, _, shown = piece.partition("\n")
            command, _, status = line.partition("   # status ")
            found.append((command.strip(), int(status or 0), set(_VERDICT.findall(shown))))
    return found


SESSIONS = {page: steps for page in PAGES if (steps := _sessions(page))}


@pytest.mark.parametrize("page", SESSIONS, ids=lambda page: page.stem)
def test_the_commands_of_a_page_do_what_it_says(page: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    environment = {**os.environ, "FIRSTTOKEN_HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    try:
        for command, status, verdicts in SESSIONS[page]:
            typed = re.sub(r"\bRUN\b", max((run.name for run in (home / "runs").glob("*")), default="none"), command)
            did = subprocess.run(
                ["bash", "-c", typed], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False
            )
            assert did.returncode == status, f"{typed}\n{did.stdout}\n{did.stderr}"
            assert verdicts <= set(_VERDICT.findall(did.stdout + did.stderr)), typed
    finally:
        stop = [sys.executable, "-m", "firsttoken", "stop", "--force"]
        subprocess.run(stop, env=environment, capture_output=True, timeout=SECONDS, check=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(encoding="utf8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page.name} points to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf8"), re.M)
            assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}, target


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf8")
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").glob("**/*.md")} - {"README.md"}
    assert {page for page in pages if f"({page})" not in index} == set()
