"""NVIDIA's rules for what runs where, case by case as its guides state them."""

import pytest

from firsttoken.model.gpu_code import Capability, CodeKind, Fit, Kernels, Library, Module, Target, chosen, coverage, fits


def _target(name: str) -> Target:
    kind = CodeKind.PTX if name.startswith("compute_") else CodeKind.LTO if name.startswith("lto_") else CodeKind.CUBIN
    number = name.partition("_")[2]
    suffix = number[-1] if number[-1] in "af" else ""
    return Target(sm=int(number.removesuffix(suffix)), suffix=suffix, kind=kind)


def _library(*modules: str) -> Library:
    return Library(file="l.so", modules=tuple(Module(targets=tuple(_target(name) for name in module.split())) for module in modules))


@pytest.mark.parametrize(
    ("code", "native", "jit", "none"),
    [
        ("sm_80", "8.0 8.6 8.9", "", "7.5 8.7 9.0 12.0"),
        ("sm_86", "8.6 8.9", "", "8.0 8.7 9.0"),
        ("sm_87", "8.7", "", "8.0 8.6 8.9"),
        ("sm_90", "9.0", "", "8.9 10.0"),
        ("sm_90a", "9.0", "", "8.9 10.0 12.0"),
        ("sm_100", "10.0 10.3", "", "9.0 11.0 12.0"),
        ("sm_100a", "10.0", "", "10.3 12.0"),
        ("sm_100f", "10.0 10.3", "", "11.0 12.0"),
        ("sm_103f", "10.3", "", "10.0"),
        ("sm_110", "11.0", "", "10.0 12.0"),
        ("sm_120", "12.0 12.1", "", "10.0"),
        ("sm_120a", "12.0", "", "12.1"),
        ("sm_120f", "12.0 12.1", "", "10.0"),
        ("sm_121", "12.1", "", "12.0"),
        ("compute_80", "", "8.0 8.6 8.7 8.9 9.0 10.0 11.0 12.1", "7.5"),
        ("compute_90a", "", "9.0", "10.0 12.0"),
        ("compute_100f", "", "10.0 10.3", "9.0 11.0 12.0"),
        ("lto_90", "", "", "8.9 9.0 10.0"),
    ],
)
def test_code_runs_where_the_rules_say(code: str, native: str, jit: str, none: str) -> None:
    for gpus, fit in ((native, Fit.NATIVE), (jit, Fit.JIT), (none, Fit.NONE)):
        for gpu in gpus.split():
            assert fits(_target(code), Capability.parse(gpu)) is fit, gpu


def test_machine_code_is_taken_before_ptx_and_the_nearest_before_the_older() -> None:
    targets = tuple(map(_target, ["sm_80", "sm_86", "compute_89", "sm_90", "sm_90a"]))
    assert chosen(targets, Capability.parse("8.9")) == _target("sm_86")
    assert chosen(targets, Capability.parse("9.0")) == _target("sm_90a")
    assert chosen(targets, Capability.parse("10.0")) == _target("compute_89")
    assert chosen(targets, Capability.parse("7.5")) is None


@pytest.mark.parametrize("text", ["12.0", "120", "sm_120", "SM120", "sm_120a", "compute_120f"])
def test_a_capability_is_read_in_every_common_spelling(text: str) -> None:
    assert str(Capability.parse(text)) == "12.0"


@pytest.mark.parametrize("text", ["", "x", "sm_", "9", "12.00", "sm_12x", "1.2.3"])
def test_what_is_no_capability_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"write it like sm_120 or 12\.0"):
        Capability.parse(text)


def test_coverage_counts_modules_by_how_they_fit() -> None:
    seen = coverage(_library("sm_80 sm_120f", "sm_80 compute_80", "sm_90a"), Capability.parse("12.1"))
    assert (seen.native, seen.jit, seen.none, seen.total) == (1, 1, 1, 3)
    assert seen.fit is Fit.NATIVE


def test_a_library_without_a_fitting_module_fits_not_at_all() -> None:
    assert coverage(_library("sm_80", "sm_90a"), Capability.parse("12.0")).fit is Fit.NONE
    assert coverage(_library("sm_80 compute_80"), Capability.parse("12.0")).fit is Fit.JIT


def test_a_kernel_that_is_in_other_images_only_is_missing() -> None:
    old, new = _target("sm_80"), _target("sm_90")
    kernels = (Kernels(target=old, names=("a", "b")), Kernels(target=new, names=("a",)))
    library = Library(file="l.so", modules=(Module(targets=(old, new), kernels=kernels),))
    seen = coverage(library, Capability.parse("9.0"))
    assert (seen.kernels_native, seen.kernels_none) == (("a",), ("b",))
