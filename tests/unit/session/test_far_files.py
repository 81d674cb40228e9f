"""Files of mounts that may not answer: asked by somebody who can be left behind, once, and told by their mount's name."""

import os
import threading
from pathlib import Path

import pytest

from firsttoken.session.far_child import asked
from firsttoken.session.far_files import FarFiles, Silence, by_child, by_thread, listed
from firsttoken.survey.mounts import Mount

NAS = Mount(point="/nas", kind="nfs4", source="filer:/models")


def far(folder: Path, **more: object) -> FarFiles:
    """`folder` is on a network, all else is not."""
    table = f"22 1 254:1 / / rw - ext4 /dev/vda1 rw\n30 22 0:44 / {folder} rw - nfs4 filer:/models rw\n"
    return FarFiles(table=lambda: table, **more)  # type: ignore[arg-type]  # as a test gives them


@pytest.mark.parametrize("ask", [by_child, by_thread])
def test_files_that_answer_are_read(tmp_path: Path, ask: object) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "odd").write_bytes(b"\xff")
    os.mkfifo(tmp_path / "pipe")
    files = far(tmp_path, ask=ask)
    assert files.far(str(tmp_path / "x"))
    assert files.any
    assert files.read_text(f"{tmp_path}/config.json") == "{}"
    assert sorted(files.list_folder(str(tmp_path)) or ()) == ["config.json", "odd", "pipe"]
    for path in ("odd", "pipe", "none", "", "config.json\0"):
        assert files.read_text(f"{tmp_path}/{path}") is None
    assert files.list_folder(f"{tmp_path}/config.json") is None
    assert files.silence(f"{tmp_path}/none") is None
    assert files.silent == ()


def test_what_is_of_this_machine_is_nobodys_question(tmp_path: Path) -> None:
    files = far(tmp_path / "nas", ask=lambda *_: pytest.fail("asked"))
    assert not files.far(str(tmp_path))
    assert files.silence(str(tmp_path)) is None


def test_a_mount_that_gives_no_answer_is_asked_once_and_named(tmp_path: Path) -> None:
    questions: list[str] = []

    def none(verb: str, path: str, seconds: float) -> None:
        questions.append(path)

    files = far(tmp_path, ask=none)
    assert files.read_text(f"{tmp_path}/a") is None
    told = files.silence(f"{tmp_path}/b")
    assert told is not None
    assert told.advice("it") == (
        f"it lies on {tmp_path} (nfs4 from filer:/models), which gave no answer within 5 s. Mount it again (umount -l, then mount), "
        "or wait for its server (`ls` on it does not come back either)"
    )
    assert "no signal" in told.price
    assert files.silent == (told,)
    assert questions == [f"{tmp_path}/a"]


def test_a_mount_without_a_server_is_told_by_its_error(tmp_path: Path) -> None:
    told = far(tmp_path, ask=lambda *_: b"!Stale file handle").silence(str(tmp_path))
    assert told is not None
    assert told.words("it").endswith("which says: Stale file handle")
    assert "`ls`" not in told.remedy


def test_a_thread_that_hangs_is_left_and_a_question_of_any_kind_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for_ever = threading.Event()
    monkeypatch.setattr("firsttoken.session.far_files.asked", lambda *_: for_ever.wait(60))
    assert by_thread("ask", "/nas", 0.1) is None
    for_ever.set()
    (tmp_path / "long").write_bytes(b"x" * 100)
    assert asked("text", f"{tmp_path}/long", 10) == b"-"
    assert asked("start", f"{tmp_path}/long", 10) == b"+" + b"x" * 10
    assert asked("ask", f"{tmp_path}/long", 10) == b"+" + b"x" * 10
    assert asked("ask", str(tmp_path), 10) == b"+long"


def test_of_many_the_first_few_are_listed() -> None:
    assert listed("a") == "a"
    assert listed("ab") == "a and b"
    assert listed("abcde") == "a, b, c and 2 more"
    assert Silence(mount=NAS, seconds=5).words("a", "b").startswith("a and b lie on /nas")
