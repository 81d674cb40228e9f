"""GPUs, driver and fabric: nvidia-smi's words read, every fault shown once on a made machine."""

import stat
from pathlib import Path
from typing import Any

from check_lists import asked, results

from firsttoken.model.checks import Outcome
from firsttoken.survey.gpu_checks import gpu_checks
from firsttoken.survey.gpus import Gpu, Gpus, GpuUser, parse_fabric, parse_gpus, parse_topology, parse_users, read_gpus, visible

PASS, WARN, FAIL = Outcome.PASS, Outcome.WARN, Outcome.FAIL
GIB = 1 << 30
CSV = """\
0, GPU-aa, NVIDIA H200, 143771, 4, 143157, 570.133.20, 9.0, Disabled, 00000000:3B:00.0
1, GPU-bb, NVIDIA H200, 143771, 1200, 141961, 570.133.20, 9.0, [N/A], 00000000:5D:00.0
garbage
"""
TOPOLOGY = """\
\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV18\tSYS\tPXB\t0-55\t0
GPU1\tNV18\t X \tPHB\tSYS\t0-55\t0
GPU2\tSYS\tPHB\t X \tSYS\t56-111\t1
NIC0\tPXB\tSYS\tSYS\t X
"""
FABRIC = """\
GPU 00000000:3B:00.0
    Fabric
        State                             : In Progress
        Status                            : N/A
    Processes                             : None
GPU 00000000:5D:00.0
    Fabric
        State                             : Completed
        Status                            : Success
"""


def test_what_nvidia_smi_prints_is_read() -> None:
    first, second = parse_gpus(CSV)
    assert (first.index, first.uuid, first.name, first.capability, first.bus) == (0, "GPU-aa", "NVIDIA H200", "9.0", "0000:3b:00.0")
    assert (second.total, second.used, second.mig) == (143771 << 20, 1200 << 20, False)
    assert parse_users("123, GPU-aa, 512\n124, GPU-bb, [N/A]\nNo running\n") == (
        GpuUser(pid=123, uuid="GPU-aa", used=512 << 20),
        GpuUser(pid=124, uuid="GPU-bb"),
    )
    assert parse_topology(TOPOLOGY) == ("NV18", "SYS", "PHB")
    assert parse_fabric(FABRIC) == ("In Progress", "Completed")


def test_cuda_visible_devices_chooses_by_number_and_by_name() -> None:
    gpus = parse_gpus(CSV)
    assert [gpu.index for gpu in visible(gpus, {})] == [0, 1]
    assert [gpu.index for gpu in visible(gpus, {"CUDA_VISIBLE_DEVICES": "1"})] == [1]
    assert [gpu.index for gpu in visible(gpus, {"CUDA_VISIBLE_DEVICES": "GPU-bb,0"})] == [1, 0]
    assert [gpu.index for gpu in visible(gpus, {"CUDA_VISIBLE_DEVICES": "0,7,1"})] == [0]
    assert visible(gpus, {"CUDA_VISIBLE_DEVICES": ""}) == ()


def program(folder: Path, text: str) -> str:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_nvidia_smi_is_asked_and_its_failures_are_told(tmp_path: Path) -> None:
    (tmp_path / "gpus").write_text(CSV)
    said = program(tmp_path, f'case "$1" in --query-gpu=*) cat {tmp_path}/gpus;; --query-compute*) echo "9, GPU-aa, 100";; esac')
    found = read_gpus(root=str(tmp_path), program=said)
    assert len(found.found) == 2
    assert found.driver == "570.133.20"
    assert found.users == (GpuUser(pid=9, uuid="GPU-aa", used=100 << 20),)
    broken = read_gpus(root=str(tmp_path), program=program(tmp_path, "echo 'Driver/library version mismatch'; exit 18"))
    assert broken.problem is not None
    assert "version mismatch" in broken.problem
    assert (read_gpus(root=str(tmp_path), program=str(tmp_path / "none")).problem or "").startswith("nvidia-smi is not installed")


H200 = tuple(Gpu(index=n, uuid=f"GPU-{n}", name="H200", total=140 * GIB, used=0, free=140 * GIB, capability="9.0") for n in range(4))


def found(gpus: Gpus, root: Path | str = "/nowhere", cuda: str | None = None, cpu: bool = False, **wanted: Any) -> dict[str, Outcome]:
    titles = {7: "python left (pid 7)"}
    return results(gpu_checks(asked(**wanted), gpus, cpu=cpu, root=str(root), titles=titles, cuda=cuda))


def test_enough_gpus_of_the_right_driver_pass() -> None:
    told = found(Gpus(found=H200, driver="570.133.20"), cuda="12.8", tp=4)
    assert told == {"gpu-not-visible": PASS, "driver-cuda-mismatch": PASS, "pcie-p2p-broken": PASS, "leftover-process-vram": PASS}


def test_fewer_visible_gpus_than_ranks_and_a_driver_that_does_not_answer_fail() -> None:
    assert found(Gpus(found=H200), tp=8)["gpu-not-visible"] is FAIL
    assert found(Gpus(found=H200), tp=4, env={"CUDA_VISIBLE_DEVICES": "0,1"})["gpu-not-visible"] is FAIL
    assert found(Gpus(devices=4, problem="nvidia-smi gave no answer within 8 s"), tp=4)["gpu-not-visible"] is FAIL
    assert found(Gpus(problem="nvidia-smi is not installed here"))["gpu-not-visible"] is Outcome.NOT_CHECKED
    parted = tuple(Gpu(index=n, uuid=f"GPU-{n}", mig=True) for n in range(2))
    assert found(Gpus(found=parted), tp=2)["gpu-not-visible"] is FAIL


def test_a_driver_older_than_the_cuda_runtime_needs_fails() -> None:
    assert found(Gpus(found=H200, driver="550.54.15"), cuda="13.0")["driver-cuda-mismatch"] is FAIL
    assert found(Gpus(found=H200, driver="550.54.15"), cuda="12.8")["driver-cuda-mismatch"] is PASS
    assert found(Gpus(found=H200, driver="515.1.1"), cuda="12.1")["driver-cuda-mismatch"] is FAIL
    compat = {"LD_LIBRARY_PATH": "/usr/local/cuda/compat:/usr/lib"}
    assert found(Gpus(found=H200, driver="570.1.1"), cuda="12.8", env=compat)["driver-cuda-mismatch"] is WARN


def test_a_module_and_libraries_of_different_versions_fail(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True)
    (folder / "libnvidia-ml.so.570.144").touch()
    assert found(Gpus(found=H200, driver="570.133.20"), tmp_path, cuda="12.8")["driver-cuda-mismatch"] is FAIL


def test_switches_without_a_fabric_manager_are_told(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia-nvswitchctl").touch()
    assert found(Gpus(found=H200), tmp_path)["fabric-manager-missing"] is WARN
    assert found(Gpus(found=H200, fabric=("In Progress",)), tmp_path)["fabric-manager-missing"] is FAIL
    assert found(Gpus(found=H200, fabric=("Completed", "Completed")), tmp_path)["fabric-manager-missing"] is PASS
    (tmp_path / "proc/44").mkdir(parents=True)
    (tmp_path / "proc/44/comm").write_text("nv-fabricmanage\n")
    assert found(Gpus(found=H200), tmp_path)["fabric-manager-missing"] is PASS


def pci(root: Path, *, iommu: str, acs: int = 0) -> Path:
    gpu, bridge = root / "sys/bus/pci/devices/0000:01:00.0", root / "sys/bus/pci/devices/0000:00:01.0"
    for folder in (gpu / "iommu_group", bridge, root / "sys/class/iommu/dmar0", root / "proc"):
        folder.mkdir(parents=True, exist_ok=True)
    (gpu / "vendor").write_text("0x10de\n")
    (gpu / "class").write_text("0x030200\n")
    (gpu / "iommu_group/type").write_text(f"{iommu}\n")
    (bridge / "class").write_text("0x060400\n")
    capability = (0x0D | 1 << 16).to_bytes(4, "little") + b"\0\0" + acs.to_bytes(2, "little")
    (bridge / "config").write_bytes(bytes(0x100) + capability)
    (root / "proc/cmdline").write_text("ro quiet\n")
    return root


def test_an_iommu_or_acs_between_gpus_on_pcie_warns(tmp_path: Path) -> None:
    pcie, linked = Gpus(found=H200, links=("SYS", "PHB")), Gpus(found=H200, links=("NV18",))
    translated, redirected, clear = (
        pci(tmp_path / "a", iommu="DMA"),
        pci(tmp_path / "b", iommu="identity", acs=0x1D),
        pci(tmp_path / "c", iommu="identity"),
    )
    assert found(pcie, translated, tp=2)["pcie-p2p-broken"] is WARN
    assert found(pcie, redirected, tp=2)["pcie-p2p-broken"] is WARN
    assert found(pcie, clear, tp=2)["pcie-p2p-broken"] is PASS
    assert found(linked, translated, tp=2)["pcie-p2p-broken"] is PASS
    assert found(pcie, translated, tp=2, env={"NCCL_P2P_DISABLE": "1"})["pcie-p2p-broken"] is PASS
    assert "pcie-p2p-broken" not in found(pcie, translated, tp=1)


def test_memory_that_somebody_holds_on_our_gpus_warns() -> None:
    mine, other = GpuUser(pid=7, uuid="GPU-0", used=GIB), GpuUser(pid=7, uuid="GPU-3", used=GIB)
    assert found(Gpus(found=H200, users=(mine,)))["leftover-process-vram"] is WARN
    assert found(Gpus(found=H200, users=(other,)))["leftover-process-vram"] is PASS
    unseen = (Gpu(index=0, uuid="GPU-0", total=80 * GIB, used=10 * GIB, free=70 * GIB),)
    assert found(Gpus(found=unseen))["leftover-process-vram"] is WARN


def test_a_shim_before_the_driver_warns_and_a_cpu_needs_no_gpu() -> None:
    assert found(Gpus(), env={"LD_PRELOAD": "/usr/local/vgpu/libvgpu.so"}, cpu=True) == {"gpu-shim-preload": WARN}
    assert found(Gpus(), cpu=True) == {}
