"""Each check of `firsttoken check` shown once by what it is about: real files, limits, mounts, sockets and locks, never a stand-in."""

import fcntl
import json
import os
import shutil
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cli_runs import FIRSTTOKEN, Cli
from model_folders import EAGLE3, LLAMA, eagle3_tensors, write_model

ROOT = os.getuid() == 0 and shutil.which("unshare") is not None


@dataclass(slots=True)
class Setting:
    """What the command meets. `before`: programs in front of ours; `flags`: behind the model; `options`: of check itself."""

    model: Path
    tmp: Path
    flags: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
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


@shown("program-not-found", "warn")
def _(setting: Setting) -> None:
    setting.env["PATH"] = os.environ["PATH"]


if ROOT:

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


@pytest.mark.parametrize("name", SHOWN)
def test_a_check_is_shown_by_the_real_thing(name: str, cli: Cli, tmp_path: Path) -> None:
    result, make = SHOWN[name]
    setting = Setting(write_model(tmp_path / "m"), tmp_path)
    with setting.open:
        make(setting)
        found = checks(cli, setting)
    assert result in found.get(name, set()), found


def test_a_healthy_command_fails_none_of_them(cli: Cli, tmp_path: Path) -> None:
    healthy = checks(cli, Setting(write_model(tmp_path / "m"), tmp_path, flags=["--port", "0"]))
    assert [name for name, results in healthy.items() if "fail" in results] == []


def checks(cli: Cli, setting: Setting) -> Mapping[str, set[str]]:
    command = ("vllm", "serve", setting.name or str(setting.model), *setting.flags)
    argv = (*setting.before, *FIRSTTOKEN)
    said = cli.start("check", "--json", "--quick", *setting.options, "--", *command, argv=argv, env=setting.env).end()
    found: dict[str, set[str]] = {}
    for one in said.json["checks"]:
        found.setdefault(one["id"], set()).add(one["result"])
    assert said.code == (78 if any("fail" in results for results in found.values()) else said.code)
    return found
