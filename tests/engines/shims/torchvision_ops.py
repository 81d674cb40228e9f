"""Lets PyPI's torchvision, a CUDA build, be imported beside a CPU torch.

Its Python part registers fake kernels for two operators that only its CUDA library declares. They are declared here when torchvision is
first looked for, not earlier: every interpreter of the environment runs this file, and torch takes seconds to import.
"""

import sys
from importlib.machinery import ModuleSpec
from typing import Any

OPERATORS = ("nms", "qnms")


class DeclareFirst:
    """A finder that finds nothing: it acts on the way to the real one."""

    declared: Any = None

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == "torchvision" and cls.declared is None:
            from torch.library import Library

            cls.declared = Library("torchvision", "DEF")  # kept: the declarations go when it is collected
            for operator in OPERATORS:
                cls.declared.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return None


sys.meta_path.insert(0, DeclareFirst)
