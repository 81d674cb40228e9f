"""The table of GPU code, for people and scripts."""

from syrupy.assertion import SnapshotAssertion

from firsttoken.model.gpu_code import Capability, CodeKind, Kernels, Library, Module, Target
from firsttoken.report.document import to_json
from firsttoken.report.kernels import kernels_document, kernels_text

_OLD, _NEW = Target(sm=80), Target(sm=120, suffix="f")
_PTX = Target(sm=90, kind=CodeKind.PTX)
_LIBRARIES = (
    Library(
        file="/venv/pack/ops.so",
        size=12_761_648,
        modules=(Module(targets=(_OLD, _NEW), count=3), Module(targets=(_OLD, _PTX), count=2), Module(targets=(_OLD,))),
        unlinked=(Module(targets=(_OLD,)),),
        ptx_bytes=198_000_000,
    ),
    Library(file="/venv/pack/cpu.so", size=900, problems=("no ELF header",)),
    Library(
        file="/venv/pack/named.so",
        size=1_122_619_080,
        modules=(Module(targets=(_OLD, _NEW), kernels=(Kernels(target=_OLD, names=("a", "b")), Kernels(target=_NEW, names=("a",)))),),
    ),
)
_GPUS = tuple(map(Capability.parse, ("8.6", "12.1", "9.0")))


def test_the_table_for_people(snapshot: SnapshotAssertion) -> None:
    assert kernels_text(_LIBRARIES, _GPUS, root="/venv", names=True) == snapshot


def test_the_document_for_scripts(snapshot: SnapshotAssertion) -> None:
    assert to_json(kernels_document(_LIBRARIES, _GPUS[1:2], names=True)) == snapshot


def test_without_gpus_and_names_the_document_keeps_its_keys() -> None:
    doc = kernels_document(_LIBRARIES[:1], ())
    assert doc["kind"] == "kernels"
    assert doc["libraries"][0]["coverage"] == []
    assert doc["libraries"][0]["targets"][0] == {"kind": "cubin", "target": "sm_80", "count": 6}
