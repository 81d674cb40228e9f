"""Whether there is code for a GPU in what an engine loads: over an environment of small libraries that nvcc built."""

import sys
from pathlib import Path
from typing import Any

import pytest
from gpu_fixtures import built, counted

from firsttoken.knowledge.load import profiles
from firsttoken.model.checks import Check, Outcome
from firsttoken.model.gpu_code import Capability
from firsttoken.model.plan import Plan
from firsttoken.plan.make import make_plan
from firsttoken.plan.world import World
from firsttoken.session.kernels import NothingFound, kernel_checks, named_libraries, used_gpus
from firsttoken.survey.gpus import Gpu, Gpus
from firsttoken.survey.library_cache import LibraryCache

_SGLANG = ("-m", "sglang.launch_server", "--model-path", "m")


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A virtual environment's site-packages."""
    folder = tmp_path / "venv/lib/python3.11/site-packages"
    folder.mkdir(parents=True)
    (tmp_path / "venv/bin").mkdir()
    (tmp_path / "venv/bin/python").symlink_to(sys.executable)
    return folder


def _put(packages: Path, **files: str) -> None:
    """Names with `__` for `/` and what they are copies of."""
    for name, build in files.items():
        path = packages / (name.replace("__", "/") + ".so")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(built(build))


def _checked(packages: Path, *argv: str, **more: Any) -> list[Check]:
    command = (str(packages.parents[2] / "bin/python"), *argv)
    world = World(env=more.pop("env", {}), cwd="/")
    wanted = tuple(Capability.parse(text) for text in more.pop("wanted", ()))
    plan = more.pop("plan", None) or make_plan(command, world, profiles())
    return list(kernel_checks(command, world, plan, wanted=wanted, cache=LibraryCache(None), **more))


def test_all_is_well_where_every_library_has_code(packages: Path) -> None:
    _put(packages, torch__lib__libtorch_cuda="several.o", **{"sgl_kernel__sm90__common_ops.abi3": "arch_specific.o"})
    (check,) = _checked(packages, *_SGLANG, wanted=["9.0"])
    assert (check.id, check.result) == ("kernel-missing-sm", Outcome.PASS)
    assert check.fact == "all 2 libraries that the engine loads have code for compute capability 9.0"


def test_a_library_that_no_start_works_without_fails_the_check(packages: Path) -> None:
    _put(packages, torch__lib__libtorch_cuda="several.o")
    (check,) = _checked(packages, *_SGLANG, wanted=["12.0"])
    assert check.result is Outcome.FAIL
    assert check.fact.startswith("torch/libtorch_cuda.so holds sm_75, sm_80, sm_86, sm_90: nothing that runs on compute capability 12.0")
    assert check.remedy is not None
    assert check.price is not None
    assert "no kernel image" in check.price


def test_what_the_command_asks_for_fails_and_what_it_may_use_warns(packages: Path) -> None:
    _put(packages, **{"sgl_kernel__flash_ops.abi3": "single.o"})
    assert [check.result for check in _checked(packages, *_SGLANG, wanted=["9.0"])] == [Outcome.WARN]
    asked = _checked(packages, *_SGLANG, "--attention-backend", "fa3", wanted=["9.0"])
    assert [check.result for check in asked] == [Outcome.FAIL]


def test_a_library_that_the_start_does_not_use_is_not_held_against_it(packages: Path) -> None:
    _put(packages, torch__lib__libtorch_cuda="several.o", **{"sgl_kernel__flash_ops.abi3": "arch_specific.o"})
    assert [check.result for check in _checked(packages, *_SGLANG, wanted=["8.6"])] == [Outcome.PASS]


def test_ptx_alone_is_a_warning_with_its_price(packages: Path) -> None:
    _put(packages, torch__lib__libtorch_cuda="ptx_only.o")
    (check,) = _checked(packages, *_SGLANG, wanted=["12.0"])
    assert check.result is Outcome.WARN
    assert "only PTX" in check.fact
    assert check.price is not None
    assert "MB of PTX, of which a start compiles what it uses" in check.price


def test_a_family_s_code_serves_its_later_gpus_and_arch_specific_code_its_own_alone(packages: Path) -> None:
    _put(packages, torch__lib__libtorch_cuda="family.o")
    assert [check.result for check in _checked(packages, *_SGLANG, wanted=["12.1", "10.3"])] == [Outcome.PASS]
    _put(packages, torch__lib__libtorch_cuda="arch_specific.o")
    assert [check.result for check in _checked(packages, *_SGLANG, wanted=["12.1", "10.3"])] == [Outcome.FAIL, Outcome.FAIL]


def test_a_damaged_library_is_told(packages: Path) -> None:
    _put(packages, torch__lib__libtorch_cuda="several.o")
    path = packages / "torch/lib/libtorch_cuda.so"
    path.write_bytes(path.read_bytes()[:12000])
    (check,) = _checked(packages, *_SGLANG, wanted=["9.0"])
    assert check.result in (Outcome.WARN, Outcome.NOT_CHECKED)


def test_what_cannot_be_looked_at_is_not_checked_with_the_reason(packages: Path) -> None:
    reasons = {
        "runs in a container": _checked(packages, *_SGLANG, wanted=["9.0"], plan=Plan(contained=True)),
        "no library with GPU code": _checked(packages, *_SGLANG, wanted=["9.0"]),
        "no NVIDIA GPU is seen": _checked(packages, *_SGLANG, gpus=Gpus(problem="no nvidia-smi")),
    }
    for reason, checks in reasons.items():
        assert [check.result for check in checks] == [Outcome.NOT_CHECKED]
        assert reason in checks[0].fact
    (binary,) = kernel_checks(("/bin/nothing",), World(), Plan(), wanted=[Capability.parse("9.0")], cache=LibraryCache(None))
    assert "no Python environment" in binary.fact


def _gpus(*capabilities: str) -> tuple[Gpu, ...]:
    return tuple(Gpu(index=index, uuid=f"GPU-{index}", name=f"Card {index}", capability=text) for index, text in enumerate(capabilities))


def test_different_gpus_in_one_machine_are_noticed_and_all_looked_at(packages: Path) -> None:
    _put(packages, torch__lib__libtorch_cuda="several.o")
    checks = _checked(packages, *_SGLANG, gpus=Gpus(found=_gpus("9.0", "12.0", "9.0")))
    assert [(check.id, check.result) for check in checks] == [("gpus-differ", Outcome.WARN), ("kernel-missing-sm", Outcome.FAIL)]
    assert checks[0].fact == "the GPUs are of different kinds: 0: Card 0 (9.0), 1: Card 1 (12.0), 2: Card 2 (9.0)"


def test_numbers_of_visible_devices_count_only_in_the_order_of_the_bus() -> None:
    gpus = _gpus("8.6", "12.0")
    assert used_gpus(gpus, {"CUDA_VISIBLE_DEVICES": "1"}) == gpus
    assert used_gpus(gpus, {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) == gpus[1:]
    assert used_gpus(_gpus("9.0", "9.0"), {"CUDA_VISIBLE_DEVICES": "1"}) == _gpus("9.0", "9.0")[1:]
    assert used_gpus(gpus, {"CUDA_VISIBLE_DEVICES": "GPU-1"}) == gpus[1:]


def test_a_file_a_folder_an_environment_and_a_package_are_found(packages: Path, tmp_path: Path) -> None:
    _put(packages, pack__a="single.o", pack__b="several.o")
    (packages / "pack/code.cubin").write_bytes(built("plain.cubin"))
    (packages / "pack/host.so").write_bytes(b"\x7fELF")
    venv = packages.parents[2]
    environ = {"VIRTUAL_ENV": str(venv), "PATH": ""}
    for what in (str(packages / "pack"), str(venv), "pack"):
        found = named_libraries(what, cwd=str(tmp_path), environ=environ)
        assert [Path(library.file).name for library in found.libraries if library.modules] == ["pack", "a.so", "b.so"]
    (one,) = named_libraries(str(packages / "pack/a.so")).libraries
    assert counted(one.counts()) == {"cubin sm_80": 1}
    with pytest.raises(NothingFound, match="'nothing' is no file or folder, and no package in"):
        named_libraries("nothing", cwd=str(tmp_path), environ=environ)
