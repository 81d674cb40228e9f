"""The commands that start real engines on a CPU, as a user would type them, and what each needs in its environment.

Facts that cost time to find stand here once: which flags a CPU build wants, which variables two ranks need on one NUMA node.
"""

import os
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .install import GGUF, HERE, MODELS, Environment

_OFFLINE = {"HF_HUB_OFFLINE": "1"}
HARMLESS = (
    *("--max-num-seqs", "8", "--seed", "7", "--no-enable-prefix-caching", "--max-logprobs", "5", "--generation-config", "vllm"),
    *("--scheduling-policy", "fcfs", "--stream-interval", "2", "--enable-log-requests", "--disable-uvicorn-access-log"),
)
"""Nine settings of vLLM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """`command` is found on `env`'s PATH. `env` holds only what is added to the caller's own environment."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    port: int
    ranks: int = 1


@dataclass(frozen=True, slots=True)
class Vllm:
    """Compiled starts get a cache of their own where the caller sets VLLM_CACHE_ROOT: with an old one they do not compile."""

    environment: Environment

    def serve(
        self,
        model: str = "qwen3",
        *flags: str,
        tp: int = 1,
        eager: bool = True,
        host: str = "127.0.0.1",
        port: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Launch:
        port = free_port() if port is None else port
        command: tuple[str, ...] = (
            "vllm",
            "serve",
            str(MODELS / model),
            "--max-model-len",
            "1024",
            "--kv-cache-memory-bytes",
            "128M",
            "--dtype",
            "bfloat16",
        )
        command += ("--host", host, "--port", str(port))
        command += ("--enforce-eager",) if eager else ()
        command += ("-tp", str(tp)) if tp > 1 else ()
        # Bound to cores it wants a NUMA node a rank: "Not enough allowed NUMA nodes".
        ranks = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"} if tp > 1 else {}
        added = {**_path(self.environment), **_OFFLINE, "VLLM_NO_USAGE_STATS": "1", **ranks, **(env or {})}
        return Launch(command=(*command, *flags), env=added, port=port, ranks=tp)

    def injected(self, launch: Launch, fault: str) -> Launch:
        """The same start with one rank that blocks; `fault` is MODE:RANK:NTH of inject/sitecustomize.py."""
        return Launch(
            command=launch.command,
            env={**launch.env, "PYTHONPATH": str(HERE / "inject"), "VLLM_INJECT": fault},
            port=launch.port,
            ranks=launch.ranks,
        )


@dataclass(frozen=True, slots=True)
class Sglang:
    """Its environment must come first on PATH: its watchdog calls py-spy. SGLANG_USE_CPU_ENGINE must not be set: it needs a CUDA build."""

    environment: Environment

    def serve(
        self,
        model: str = "llama4",
        *flags: str,
        tp: int = 1,
        host: str = "127.0.0.1",
        port: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Launch:
        port = free_port() if port is None else port
        command: tuple[str, ...] = (
            "python",
            "-m",
            "sglang.launch_server",
            "--model-path",
            str(MODELS / model),
            "--model-impl",
            "transformers",
            "--device",
            "cpu",
        )
        command += ("--attention-backend", "torch_native", "--host", host, "--port", str(port), "--max-total-tokens", "2048")
        command += ("--tp", str(tp)) if tp > 1 else ()
        ranks = {"SGLANG_CPU_OMP_THREADS_BIND": "|".join(map(str, range(tp)))} if tp > 1 else {}
        return Launch(command=(*command, *flags), env={**_path(self.environment), **_OFFLINE, **ranks, **(env or {})}, port=port, ranks=tp)


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    environment: Environment

    def serve(self, model: Path = GGUF, *, port: int | None = None) -> Launch:
        port = free_port() if port is None else port
        return Launch(command=("python", str(HERE / "llama_server.py"), str(model), str(port)), env=_path(self.environment), port=port)


@dataclass(frozen=True, slots=True)
class Transformers:
    environment: Environment

    def serve(self, model: str = "qwen3", *flags: str, port: int | None = None) -> Launch:
        port = free_port() if port is None else port
        command: tuple[str, ...] = (
            "transformers",
            "serve",
            str(MODELS / model),
            "--device",
            "cpu",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--log-level",
            "info",
        )
        return Launch(command=(*command, *flags), env={**_path(self.environment), **_OFFLINE}, port=port)


def with_fifo(folder: Path, model: str) -> Path:
    """A copy of the model in `folder`, in which the last shard is a FIFO that nobody writes to. Returns the shard.

    Without its index: SGLang asks of each file there whether it is a regular one, and takes what it finds where there is none.
    """
    copy = folder / model
    shutil.copytree(MODELS / model, copy, ignore=shutil.ignore_patterns("*.index.json"))
    shard = sorted(copy.glob("*.safetensors"))[-1]
    shard.unlink()
    os.mkfifo(shard)
    return shard


def free_port() -> int:
    """A port that nobody held a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _path(environment: Environment) -> dict[str, str]:
    return {"PATH": f"{environment.folder / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
