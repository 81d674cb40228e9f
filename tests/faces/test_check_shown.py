"""Each check of `firsttoken check` shown once by what it is about: real files, limits, mounts, sockets and locks, never a stand-in."""

import fcntl
import json
import os
import re
import shutil
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cli_runs import FIRSTTOKEN, FUSE, Cli, can_mount
from gpu_fixtures import built
from model_folders import EAGLE3, LLAMA, eagle3_tensors, write_model

ROOT = os.getuid() == 0 and shutil.which("unshare") is not None


@dataclass(slots=True)
class Setting:
    """What the command meets. `before`: programs in front of ours; `options`: of check itself; `command`: what is launched, but for the
    model and the `flags` behind it."""

    model: Path
    tmp: Path
    flags: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=lambda: ["--quick"])
    command: tuple[str, ...] = ("vllm", "serve")
    env: dict[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    name: str | None = None
    open: ExitStack = field(default_factory=ExitStack)


Make = Callable[[Setting], None]
SHOWN: dict[str, tuple[str, Make]] = {}


def shown(name: str, result: str = "fail") -> Callable[[Make], Make]:
    def keep(make: Make) -> Make:
        SHOWN[name] = (result, make)
        return make

    return keep


def config(setting: Setting, **changes: Any) -> None:
    write_model(setting.model, {**LLAMA, **changes})


def mounted(setting: Setting, script: str) -> None:
    """In a mount namespace of its own."""
    setting.before = ("unshare", "-m", "sh", "-c", f'{script} && exec "$@"', "sh")


def on_network(setting: Setting, point: Path) -> None:
    """What lies at `point` is served from there by network storage."""
    setting.before = (*FUSE, str(shutil.move(point, setting.tmp / "served")), str(point))
    point.mkdir()


def venv(setting: Setting) -> Path:
    """The site-packages of the interpreter that launches SGLang."""
    (setting.tmp / "venv/bin").mkdir(parents=True)
    (setting.tmp / "venv/bin/python").symlink_to(sys.executable)
    setting.command = (str(setting.tmp / "venv/bin/python"), "-m", "sglang.launch_server", "--model-path")
    packages = setting.tmp / "venv/lib/python3.11/site-packages"
    packages.mkdir(parents=True)
    return packages


@shown("weights-corrupt")
def _(setting: Setting) -> None:
    os.truncate(setting.model / "model-00002-of-00003.safetensors", 5000)


@shown("file-never-ready")
def _(setting: Setting) -> None:
    shard = setting.model / "model-00002-of-00003.safetensors"
    shard.unlink()
    os.mkfifo(shard)


@shown("model-unsupported")
def _(setting: Setting) -> None:
    (setting.model / "config.json").write_text("{")


@shown("engine-args-invalid")
def _(setting: Setting) -> None:
    setting.flags += ["--quantization", "awq"]


@shown("tokenizer-missing")
def _(setting: Setting) -> None:
    (setting.model / "tokenizer.json").unlink()


@shown("tp-not-divisible")
def _(setting: Setting) -> None:
    setting.flags += ["-tp", "3"]


@shown("quant-shape-unsupported")
def _(setting: Setting) -> None:
    config(setting, quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]})
    setting.flags += ["-tp", "8"]


@shown("spec-draft-mismatch")
def _(setting: Setting) -> None:
    draft = write_model(setting.tmp / "draft", {**EAGLE3, "hidden_size": 512}, tensors=eagle3_tensors(512), shards=1)
    setting.flags += ["--speculative-config", json.dumps({"method": "eagle3", "model": str(draft), "num_speculative_tokens": 2})]


@shown("hub-offline-or-gated")
def _(setting: Setting) -> None:
    setting.name = "nobody/no-such-model"
    setting.env |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(setting.tmp / "hf")}


@shown("gpu-oom")
def _(setting: Setting) -> None:
    setting.options += ["--gpu-memory", "0.01"]


@shown("kv-too-small-at-start")
def _(setting: Setting) -> None:
    config(setting, max_position_embeddings=50_000_000)
    setting.options += ["--gpu-memory", "16"]


@shown("host-oom")
def _(setting: Setting) -> None:
    setting.flags += ["-tp", "8", "-pp", "8", "--data-parallel-size", "4"]


@shown("port-in-use")
def _(setting: Setting) -> None:
    listener = setting.open.enter_context(socket.create_server(("127.0.0.1", 0)))
    setting.flags += ["--port", str(listener.getsockname()[1])]


@shown("nofile-limit")
def _(setting: Setting) -> None:
    setting.before = ("prlimit", "--nofile=512:512")
    setting.flags += ["-tp", "8"]


@shown("cpu-oversubscription", "warn")
def _(setting: Setting) -> None:
    setting.before = ("taskset", "-c", str(min(os.sched_getaffinity(0))))
    setting.flags += ["-tp", "4"]


@shown("proxy-captures-localhost", "warn")
def _(setting: Setting) -> None:
    setting.env |= {"http_proxy": "http://10.0.0.1:3128", "no_proxy": ""}


@shown("proxy-env-malformed")
def _(setting: Setting) -> None:
    setting.env |= {"http_proxy": "http://[10.0.0.1:3128", "no_proxy": "localhost,127.0.0.1"}


@shown("wrong-interface")
def _(setting: Setting) -> None:
    setting.env |= {"NCCL_SOCKET_IFNAME": "=ib9", "GLOO_SOCKET_IFNAME": "ib9"}
    setting.flags += ["-tp", "2"]


@shown("ipc-path-too-long")
def _(setting: Setting) -> None:
    deep = setting.tmp / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    setting.env["TMPDIR"] = str(deep)


@shown("jit-stale-lock")
def _(setting: Setting) -> None:
    build = setting.tmp / "home/.cache/torch_extensions/py311_cpu/ops"
    build.mkdir(parents=True)
    (build / "lock").touch()
    os.utime(build / "lock", (1_700_000_000, 1_700_000_000))
    setting.env["HOME"] = str(setting.tmp / "home")


@shown("foreign-lock-holder", "warn")
def _(setting: Setting) -> None:
    cache = setting.tmp / "home/.cache/vllm/torch_compile_cache/abc"
    cache.mkdir(parents=True)
    held = setting.open.enter_context((cache / "build.lock").open("w"))
    fcntl.flock(held, fcntl.LOCK_EX)
    setting.env["HOME"] = str(setting.tmp / "home")


@shown("jit-build-failed", "warn")
def _(setting: Setting) -> None:
    (setting.tmp / "bin").mkdir()
    setting.env["PATH"] = str(setting.tmp / "bin")


@shown("kernel-missing-sm")
def _(setting: Setting) -> None:
    library = venv(setting) / "torch/lib/libtorch_cuda.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(built("several.o"))  # by nvcc, for sm_75 to sm_90
    setting.options = ["--gpu", "sm_120"]


@shown("dependency-abi-mismatch")
def _(setting: Setting) -> None:
    packages = venv(setting)
    for name, version in (("flashinfer_python", "0.6.1"), ("flashinfer_cubin", "0.6.0")):
        (packages / f"{name}-{version}.dist-info").mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
        (packages / f"{name}-{version}.dist-info/METADATA").write_text(metadata)


@shown("kv-too-small-for-request", "warn")
def _(setting: Setting) -> None:
    config(setting, max_position_embeddings=50_000_000)
    setting.command = ("python", "-m", "sglang.launch_server", "--model-path")
    setting.options += ["--gpu-memory", "16"]


@shown("pids-limit", "warn")
def _(setting: Setting) -> None:
    setting.before = ("prlimit", "--nproc=300:300")


@shown("gpu-shim-preload", "warn")
def _(setting: Setting) -> None:
    """The shim is a small library of this machine's own."""
    mapped = set(re.findall(r"/\S+/lib\S+\.so\S*", Path("/proc/self/maps").read_text()))
    smallest = min((path for path in mapped if "/python" not in path), key=os.path.getsize)
    shutil.copy(smallest, setting.tmp / "libvgpu.so")
    setting.env["LD_PRELOAD"] = str(setting.tmp / "libvgpu.so")


@shown("program-not-found")
def _(setting: Setting) -> None:
    setting.env["PATH"] = os.environ["PATH"]


if ROOT:

    @shown("fabric-multinode")
    def _(setting: Setting) -> None:
        """A cable's end that is down, in a network of its own; the file tree of devices is mounted anew for it."""
        up = "ip link add ib9 type veth peer name ib8 && mount -t sysfs sysfs /sys"
        setting.before = ("unshare", "-n", "-m", "sh", "-c", f'{up} && exec "$@"', "sh")
        setting.env["NCCL_SOCKET_IFNAME"] = "ib9"
        setting.flags += ["--nnodes", "2", "--master-addr", "10.0.0.1"]

    @shown("shm-too-small")
    def _(setting: Setting) -> None:
        mounted(setting, "mount -t tmpfs -o size=64m tmpfs /dev/shm")
        setting.flags += ["-tp", "2"]

    @shown("disk-full")
    def _(setting: Setting) -> None:
        (setting.tmp / "full").mkdir()
        mounted(setting, f"mount -t tmpfs -o size=1m tmpfs {setting.tmp}/full")
        setting.env["TMPDIR"] = f"{setting.tmp}/full"

    @shown("localhost-unresolved", "warn")
    def _(setting: Setting) -> None:
        (setting.tmp / "hosts").write_text("10.9.9.9 localhost\n")
        mounted(setting, f"mount --bind {setting.tmp}/hosts /etc/hosts")

    @shown("cache-dir-not-writable", "warn")
    def _(setting: Setting) -> None:
        (setting.tmp / "home/.cache").mkdir(parents=True)
        mounted(setting, f"mount -t tmpfs -o ro tmpfs {setting.tmp}/home/.cache")
        setting.env["HOME"] = str(setting.tmp / "home")

    @shown("memlock-limit")
    def _(setting: Setting) -> None:
        """The adapter's folder is a stand-in for the hardware; the limit is real."""
        mounted(setting, "mount -t tmpfs tmpfs /sys/class && mkdir -p /sys/class/infiniband/mlx5_0")
        setting.before += ("prlimit", "--memlock=65536:65536")
        setting.flags += ["--nnodes", "2"]


if ROOT and can_mount():

    @shown("mmap-network-storage", "warn")
    def _(setting: Setting) -> None:
        on_network(setting, setting.model)

    @shown("cache-on-network-storage", "warn")
    def _(setting: Setting) -> None:
        (setting.tmp / "home/.cache/vllm").mkdir(parents=True)
        on_network(setting, setting.tmp / "home/.cache")
        setting.env["HOME"] = str(setting.tmp / "home")

    @shown("ready-timeout-kills-slow-start", "warn")
    def _(setting: Setting) -> None:
        """169 GB of holes."""
        shutil.rmtree(setting.model)
        large = {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 100, "num_attention_heads": 64, "head_dim": 128}
        config(setting, **large)
        on_network(setting, setting.model)
        setting.flags += ["--data-parallel-size", "2"]


@pytest.mark.parametrize("name", SHOWN)
def test_a_check_is_shown_by_the_real_thing(name: str, cli: Cli, tmp_path: Path) -> None:
    result, make = SHOWN[name]
    setting = Setting(write_model(tmp_path / "m"), tmp_path)
    with setting.open:
        make(setting)
        found = checks(cli, setting)
    assert result in found.get(name, set()), found


def test_a_healthy_command_fails_none_of_them(cli: Cli, tmp_path: Path) -> None:
    program = tmp_path / "vllm"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    healthy = checks(cli, Setting(write_model(tmp_path / "m"), tmp_path, flags=["--port", "0"], command=(str(program), "serve")))
    assert [name for name, results in healthy.items() if "fail" in results] == []


def checks(cli: Cli, setting: Setting) -> Mapping[str, set[str]]:
    command = (*setting.command, setting.name or str(setting.model), *setting.flags)
    argv = (*setting.before, *FIRSTTOKEN)
    said = cli.start("check", "--json", *setting.options, "--", *command, argv=argv, env=setting.env).end()
    found: dict[str, set[str]] = {}
    for one in said.json["checks"]:
        found.setdefault(one["id"], set()).add(one["result"])
    assert said.code == (78 if any("fail" in results for results in found.values()) else said.code)
    return found
