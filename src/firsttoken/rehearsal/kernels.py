"""The element-wise kernels of the decoder, generated as source and compiled at start-up.

Key insight: the compile phase has something real to compile that the decoder then runs, as a real engine's does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Kernel = Callable[[NDArray[np.float64]], NDArray[np.float64]]

_SOURCE = {
    "normalise": "x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + {eps})",
    "activate": "x / (1.0 + np.exp(-{slope} * np.clip(x, -60.0, 60.0)))",
    "softmax": "(lambda e: e / e.sum(axis=-1, keepdims=True))(np.exp(x - x.max(axis=-1, keepdims=True)))",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    normalise: Kernel
    activate: Kernel
    softmax: Kernel


def compile_kernels(*, eps: float = 1e-6, slope: float = 1.702) -> Kernels:
    """Generates and compiles the kernels for these constants."""
    compiled: dict[str, Kernel] = {}
    for name, expression in _SOURCE.items():
        source = f"def {name}(x):\n    return {expression.format(eps=eps, slope=slope)}\n"
        scope: dict[str, Any] = {"np": np}
        exec(compile(source, f"<kernel {name}>", "exec", optimize=2), scope)
        compiled[name] = scope[name]
    return Kernels(**compiled)
