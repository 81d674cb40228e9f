"""The file that a loader would take, and whether the command needs it."""

from pathlib import Path

import pytest

from firsttoken.knowledge.libraries import Choice, EngineLibrary
from firsttoken.model.gpu_code import Capability
from firsttoken.survey.engine_libraries import Need, loaded, torch_cuda

_OPS = EngineLibrary(
    id="ops",
    package="ops",
    what="operators",
    engines=("some",),
    choices=(Choice(on=("9.0",), files=("near/ops.*.so", "ops.*.so")), Choice(files=("far/ops.*.so", "ops.*.so"))),
    sources=(),
    used_on=("9.x", "12.0"),
    used_with=(r"--fast\b",),
)
_BY_VERSION = EngineLibrary(
    id="q",
    package="q",
    what="q",
    choices=(Choice(files=("libq_cuda*.so",), by_cuda_version=True),),
    sources=(),
    used_on=("*",),
    certain=True,
)


def _files(folder: Path, *names: str) -> list[str]:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return [str(folder)]


def _taken(folders: list[str], gpu: str, *, engine: str | None = "some", command: str = "serve") -> list[tuple[str, Need]]:
    found = loaded((_OPS, _BY_VERSION), engine, command, folders, Capability.parse(gpu))
    return [(f"{item.path.parent.name}/{item.path.name}", item.need) for item in found]


def test_the_loader_s_choice_follows_the_gpu_and_not_the_folder_s_name(tmp_path: Path) -> None:
    folders = _files(tmp_path, "ops/near/ops.abi3.so", "ops/far/ops.abi3.so")
    assert _taken(folders, "9.0") == [("near/ops.abi3.so", Need.USUAL)]
    assert _taken(folders, "12.0") == [("far/ops.abi3.so", Need.USUAL)]
    assert _taken(folders, "8.6") == [("far/ops.abi3.so", Need.SELDOM)]


def test_the_loader_s_second_place_is_looked_at_where_the_first_is_empty(tmp_path: Path) -> None:
    assert _taken(_files(tmp_path, "ops/ops.cpython-311.so"), "9.0") == [("ops/ops.cpython-311.so", Need.USUAL)]


def test_a_setting_that_asks_for_it_makes_it_certain(tmp_path: Path) -> None:
    assert _taken(_files(tmp_path, "ops/ops.x.so"), "8.6", command="serve --fast") == [("ops/ops.x.so", Need.CERTAIN)]


def test_another_engine_s_libraries_and_missing_packages_are_left_out(tmp_path: Path) -> None:
    folders = _files(tmp_path, "ops/ops.x.so")
    assert _taken(folders, "9.0", engine="other") == []
    assert _taken(folders, "9.0", engine=None) == []
    assert _taken([str(tmp_path / "nowhere")], "9.0") == []


@pytest.mark.parametrize(
    ("cuda", "taken"), [("12.6", "126"), ("12.7", "126"), ("12.9", "128"), ("12.1", "124"), ("13.0", "130"), ("11.8", None)]
)
def test_the_library_nearest_to_torch_s_cuda_version_is_taken(tmp_path: Path, cuda: str, taken: str | None) -> None:
    folders = _files(tmp_path, *(f"q/libq_cuda{number}.so" for number in (124, 126, 128, 130)), "q/libq_cpu.so")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "version.py").write_text(f"__version__ = '2'\ncuda: Optional[str] = '{cuda}'\nhip: Optional[str] = None\n")
    assert [name for name, _ in _taken(folders, "9.0")] == ([f"q/libq_cuda{taken}.so"] if taken else [])


def test_a_torch_without_cuda_has_no_version_of_it(tmp_path: Path) -> None:
    assert torch_cuda([str(tmp_path)]) is None
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "version.py").write_text("cuda: Optional[str] = None\n")
    assert torch_cuda([str(tmp_path)]) is None
