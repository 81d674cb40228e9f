"""What a launch happens in, as far as it may make a difference to a later one: written into spec.json, secrets masked."""

import os
from collections.abc import Mapping
from typing import Any

from firsttoken.model.redact import mask_env

_PREFIXES = (
    "VLLM_", "SGLANG_", "SGL_", "NCCL_", "GLOO_", "TORCH_", "TORCHINDUCTOR_", "CUDA_", "HF_", "OMP_", "MKL_", "TRITON_", "FLASHINFER_",
    "PYTORCH_", "RAY_", "HIP_", "ROCR_", "NVIDIA_", "UCX_", "TRANSFORMERS_", "LLAMA_", "GGML_", "REHEARSE_",
)  # fmt: skip
_NAMES = frozenset({"VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PATH"})
_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"})
"""in any case"""


def surroundings(env: Mapping[str, str]) -> dict[str, Any]:
    """`machine` and `environment`: of all variables only those that engines and their libraries read."""
    uname = os.uname()
    chosen = {name: value for name, value in env.items() if name.startswith(_PREFIXES) or name in _NAMES or name.upper() in _PROXIES}
    return {
        "machine": {"node": uname.nodename, "kernel": uname.release, "architecture": uname.machine, "cpus": os.cpu_count()},
        "environment": dict(sorted(mask_env(chosen).items())),
    }
