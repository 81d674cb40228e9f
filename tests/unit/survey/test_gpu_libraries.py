"""GPU code in files: what nvcc was told is what is read, and damage is told, not raised."""

import os
import random
import struct
from pathlib import Path

import pytest
from gpu_fixtures import TRUTH, built, counted, reading
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.survey.fatbin import MAGIC
from firsttoken.survey.gpu_libraries import files_with_code, read_library, together
from firsttoken.survey.window import Window


@pytest.mark.parametrize("name", TRUTH)
def test_targets_are_those_that_nvcc_was_told(name: str) -> None:
    library = reading(built(name))
    assert counted(library.counts()) == TRUTH[name]["linked"]
    assert counted(library.counts(unlinked=True)) == TRUTH[name]["unlinked"]
    assert library.problems == ()


@pytest.mark.parametrize("name", TRUTH)
def test_kernels_are_those_of_the_source(name: str) -> None:
    library = reading(built(name), names=True)
    names = {kernel for module in library.modules for item in module.kernels for kernel in item.names}
    assert sorted(names) == (TRUTH[name]["kernels"] if library.modules else [])
    assert library.problems == ()


def test_every_image_of_a_module_tells_its_kernels_also_when_packed_together() -> None:
    (module,) = reading(built("concatenated.o"), names=True).modules
    assert {item.names for item in module.kernels} == {("_Z4fillPff", "_Z5scalePff")}
    assert len(module.kernels) == 5


def test_modules_keep_apart_what_they_were_built_for() -> None:
    modules = {tuple(f"{t.kind} {t.name}" for t in module.targets): module.count for module in reading(built("differing.so")).modules}
    assert modules == {("cubin sm_80", "cubin sm_90a"): 1, ("cubin sm_80", "ptx sm_80"): 1}


def test_ptx_is_counted_in_bytes_of_its_text() -> None:
    text = len(built("bare.ptx"))
    assert reading(built("bare.ptx")).ptx_bytes == text
    assert reading(built("ptx_suffixes.o")).ptx_bytes == pytest.approx(2 * text, rel=0.3)


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"hello", b"\x7fELF\x01\x01" + bytes(60), MAGIC, b"!<arch>\n" + b"x" * 60])
def test_what_is_no_gpu_code_is_told(content: bytes) -> None:
    library = reading(content)
    assert library.modules == ()
    assert library.problems or content == MAGIC


def test_a_file_that_is_cut_off_is_told() -> None:
    whole = built("several.o")
    library = reading(whole[:9000])
    assert library.problems


def test_a_missing_file_and_one_that_is_no_file_are_told(tmp_path: Path) -> None:
    assert read_library(tmp_path / "gone.so").problems == ("cannot be read: No such file or directory",)
    os.mkfifo(tmp_path / "pipe.so")
    assert read_library(tmp_path / "pipe.so").problems
    assert read_library(tmp_path).problems


@pytest.mark.parametrize("name", TRUTH)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), names=st.booleans())
def test_no_damage_makes_it_raise(name: str, seed: int, names: bool) -> None:
    choose = random.Random(seed)
    content = bytearray(built(name))
    for _ in range(choose.choice((1, 1, 4, 40))):
        at = choose.randrange(len(content))
        content[at : at + 4] = choose.choice((b"\0" * 4, b"\xff" * 4, choose.randbytes(4), struct.pack("<I", len(content))))
    reading(bytes(content[: choose.choice((len(content), choose.randrange(len(content) + 1)))]), names=names)


@given(st.binary(max_size=400), st.booleans())
def test_no_bytes_after_a_container_s_magic_make_it_raise(data: bytes, whole: bool) -> None:
    header = struct.pack("<HHQ", 1, 16, len(data)) if whole else b""
    reading(MAGIC + header + data, names=True)


def test_a_container_is_found_again_after_damage() -> None:
    content = built("bare.fatbin")
    broken = bytearray(content + content)
    broken[8:16] = b"\xff" * 8
    library = reading(bytes(broken))
    assert counted(library.counts()) == TRUTH["bare.fatbin"]["linked"]
    assert "ends beyond its section" in library.problems[0]


def test_files_are_found_by_name_once_each_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("a.so", "sub/libb.so.12", "c.cubin", "d.ptx", "e.a", "f.fatbin", "g.py", "h.sox"):
        (tmp_path / name).touch()
    (tmp_path / "link.so").symlink_to("a.so")
    (tmp_path / "loop").symlink_to(tmp_path)
    found = [str(path.relative_to(tmp_path)) for path in files_with_code(tmp_path)]
    assert found == ["a.so", "c.cubin", "d.ptx", "e.a", "f.fatbin", "sub/libb.so.12"]


def test_loose_images_of_a_folder_are_one_library() -> None:
    library = together("folder", [reading(built("plain.cubin")), reading(built("family.cubin")), reading(b"x")])
    assert counted(library.counts()) == {"cubin sm_86": 1, "cubin sm_120f": 1}
    assert library.problems == ("file: neither ELF, archive, fat binary nor PTX",)


def test_a_window_gives_what_is_there_and_no_more() -> None:
    window = Window.of_bytes(b"0123456789").part(2, 5)
    assert (window.read(0, 99), window.read(4, 9), window.read(5, 1), window.read(-1, 4)) == (b"23456", b"6", b"", b"")
    assert window.part(3, 99).read(0, 9) == b"56"
