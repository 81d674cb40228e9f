"""The Python behind a program, and where it imports from."""

import sys
from pathlib import Path

import pytest

from firsttoken.survey.installed import import_folders, interpreter


@pytest.mark.parametrize(
    "head",
    ["#!{python}\n", "#!/usr/bin/env python3\n", "#!/usr/bin/env -S python3 -s\n", "#!/bin/sh\n'''exec' '{python}' \"$0\" \"$@\"\n"],
)
def test_a_script_s_first_lines_name_its_python(tmp_path: Path, head: str) -> None:
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    script = tmp_path / "serve"
    script.write_text(head.format(python=python))
    assert interpreter(str(script), {"PATH": str(python.parent)}, "/") == python


def test_a_shell_script_is_no_python(tmp_path: Path) -> None:
    script = tmp_path / "serve"
    script.write_text("#!/bin/sh\nexec something\n")
    assert interpreter(str(script), {}, "/") is None


def test_imports_come_from_pythonpath_packages_and_what_they_link_to(tmp_path: Path) -> None:
    packages = tmp_path / "venv/lib/python3.11/site-packages"
    packages.mkdir(parents=True)
    (tmp_path / "venv/bin").mkdir()
    (tmp_path / "venv/bin/python").symlink_to(sys.executable)
    (tmp_path / "source").mkdir()
    (packages / "editable.pth").write_text(f"import something\n# no\n{tmp_path / 'source'}\n/nowhere\nrelative\n")
    found = import_folders(tmp_path / "venv/bin/python", {"PYTHONPATH": f"{tmp_path}:relative"})
    assert found == [str(tmp_path), str(packages), str(tmp_path / "source")]
