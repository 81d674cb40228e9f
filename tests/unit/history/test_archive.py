"""Archives from strangers: what is known is taken, nothing gets out of its folder, and no archive costs more than its bounds."""

import contextlib
import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firsttoken.history import archive
from firsttoken.history.archive import BadArchive, is_archive, unpack

FILES = {"case/command.txt": b"engine serve", "case/server.log": b"hello\n", "case/stacks/12.txt": b"Thread 12", "case/notes.doc": b"x"}


def tar(path: Path, files: dict[str, bytes], *more: tarfile.TarInfo, mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode, format=tarfile.PAX_FORMAT) as out:  # type: ignore[call-overload]  # a mode from a variable
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            out.addfile(entry, io.BytesIO(data))
        for entry in more:
            out.addfile(entry)
    return path


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in files.items():
            out.writestr(name, data)
    return path


def held(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def into(tmp_path: Path) -> Path:
    folder = tmp_path / "into"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("kind", ["tar.gz", "tar", "zip"])
def test_the_known_files_are_taken_and_the_others_told(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    made = zipped(path, FILES) if kind == "zip" else tar(path, FILES, mode="w:gz" if kind == "tar.gz" else "w")
    assert is_archive(made)
    found = unpack(made, into(tmp_path))
    assert held(found.folder) == {"command.txt": b"engine serve", "server.log": b"hello\n", "stacks/12.txt": b"Thread 12"}
    assert found.left_out == ("case/notes.doc: nothing that is known by this name",)


def test_names_that_are_too_long_for_a_header_are_read(tmp_path: Path) -> None:
    long = {"/".join(["deep" * 12] * 4) + "/server.log": b"x"}
    assert held(unpack(tar(tmp_path / "a.tar.gz", long), into(tmp_path)).folder) == {"server.log": b"x"}
    gnu = tmp_path / "gnu.tar"
    with tarfile.open(gnu, "w", format=tarfile.GNU_FORMAT) as out:
        entry = tarfile.TarInfo(next(iter(long)))
        entry.size = 1
        out.addfile(entry, io.BytesIO(b"x"))
    (tmp_path / "again").mkdir()
    assert held(unpack(gnu, tmp_path / "again").folder) == {"server.log": b"x"}


@pytest.mark.parametrize(
    "name", ["../server.log", "a/../../server.log", "/etc/server.log", "C:\\server.log", "..\\..\\server.log", "x/stacks/../../9.txt"]
)
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_a_name_that_leads_out_is_left_out(tmp_path: Path, name: str, kind: str) -> None:
    files = {name: b"evil", "server.log": b"good"}
    made = zipped(tmp_path / "a.zip", files) if kind == "zip" else tar(tmp_path / "a.tar", files, mode="w")
    target = into(tmp_path)
    found = unpack(made, target)
    assert held(found.folder) == {"server.log": b"good"}
    assert len(found.left_out) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([made.name, "into"])


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_what_is_no_plain_file_is_left_out(tmp_path: Path, kind: bytes) -> None:
    entry = tarfile.TarInfo("server.log")
    entry.type, entry.linkname = kind, "/etc/passwd"
    found = unpack(tar(tmp_path / "a.tar", {"command.txt": b"x"}, entry, mode="w"), into(tmp_path))
    assert held(found.folder) == {"command.txt": b"x"}
    assert found.left_out == ("server.log: no plain file",)


def test_a_link_in_a_zip_is_left_out(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as out:
        link = zipfile.ZipInfo("server.log")
        link.external_attr = 0o120777 << 16
        out.writestr(link, "/etc/passwd")
        out.writestr("command.txt", "x")
    assert held(unpack(tmp_path / "a.zip", into(tmp_path)).folder) == {"command.txt": b"x"}


def test_of_several_folders_the_one_with_a_run_is_read(tmp_path: Path) -> None:
    files = {"a/server.log": b"1", "a/command.txt": b"2", "b/run/events.jsonl": b"{}"}
    found = unpack(tar(tmp_path / "a.tar", files, mode="w"), into(tmp_path))
    assert held(found.folder) == {"events.jsonl": b"{}"}
    assert found.left_out == ("a: another folder than the one that was read (b/run)",)


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_a_bomb_is_stopped_at_the_bound_and_not_later(tmp_path: Path, kind: str) -> None:
    files = {"server.log": bytes(3 << 20), "other.bin": bytes(3 << 20)}
    path = tmp_path / f"a.{kind}"
    made = zipped(path, files) if kind == "zip" else tar(path, files)
    assert made.stat().st_size < 50_000
    target = into(tmp_path)
    with pytest.raises(BadArchive, match="unpacks to more than"):
        unpack(made, target, most_bytes=2 << 20)
    assert sum(len(data) for data in held(target).values()) <= 2 << 20


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    files = {f"stacks/{number}.txt": b"" for number in range(50)}
    with pytest.raises(BadArchive, match="more than"):
        unpack(tar(tmp_path / "a.tar", files, mode="w"), into(tmp_path), most_files=20)
    many = zipped(tmp_path / "b.zip", {f"{number}": b"" for number in range(archive.MOST_FILES + 1)})
    with pytest.raises(BadArchive, match="more than"):
        unpack(many, tmp_path / "into")


def test_an_extended_header_of_any_length_is_not_read_whole(tmp_path: Path) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 8 << 30
    path = tmp_path / "a.tar"
    path.write_bytes(header.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with pytest.raises(BadArchive, match="far too long"):
        unpack(path, into(tmp_path))


def test_a_zip_that_wants_a_password_says_what_to_do(tmp_path: Path) -> None:
    data = bytearray(zipped(tmp_path / "a.zip", {"server.log": b"x"}).read_bytes())
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + at] |= 1
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(BadArchive, match="pack it again"):
        unpack(tmp_path / "a.zip", into(tmp_path))


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_an_archive_that_is_cut_off_anywhere_says_so(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    whole = (zipped(path, FILES) if kind == "zip" else tar(path, FILES)).read_bytes()
    for number, size in enumerate(range(4, len(whole) - 9, 7)):
        path.write_bytes(whole[:size])
        (tmp_path / str(number)).mkdir()
        with pytest.raises(BadArchive, match=r"a.(zip|tar.gz) "):
            unpack(path, tmp_path / str(number))


def test_an_archive_of_something_else_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(BadArchive, match=r"neither a run nor files of a bug report"):
        unpack(tar(tmp_path / "a.tar", {"photo.jpg": b"x"}, mode="w"), into(tmp_path))
    (tmp_path / "log").write_bytes(b"plain text")
    assert not is_archive(tmp_path / "log")


_WHOLE: dict[str, bytes] = {}


def _bytes(kind: str, folder: Path) -> bytes:
    if kind not in _WHOLE:
        path = folder / "whole"
        _WHOLE[kind] = (zipped(path, FILES) if kind == "zip" else tar(path, FILES, mode="w")).read_bytes()
    return _WHOLE[kind]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["zip", "tar", "gz"]),
    st.lists(st.tuples(st.integers(0, 20_000), st.binary(min_size=1, max_size=8)), max_size=6),
    st.binary(max_size=40),
)
def test_no_bytes_do_anything_but_unpack_or_refuse(
    tmp_path_factory: pytest.TempPathFactory, kind: str, changes: list[tuple[int, bytes]], end: bytes
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    data = bytearray(_bytes("zip" if kind == "zip" else "tar", folder))
    for at, patch in changes:
        at %= len(data)
        data[at : at + len(patch)] = patch
    raw = bytes(data) + end
    path = folder / "a"
    path.write_bytes(gzip.compress(raw, 1) if kind == "gz" else raw)
    target = folder / "into"
    target.mkdir()
    with contextlib.suppress(BadArchive):
        unpack(path, target, most_bytes=1 << 20)
    assert {file.name for file in folder.iterdir()} <= {"a", "into", "whole"}
    assert sum(len(data) for data in held(target).values()) <= 1 << 20


@given(st.binary(max_size=600))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_at_all_are_refused_in_words(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("any")
    for head in (b"", b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b\x08\x00"):
        (folder / "a").write_bytes(head + data)
        with pytest.raises(BadArchive):
            unpack(folder / "a", folder)
