"""Run by the Python of an SGLang environment: starts the server, whose rank prints the bytes of all its parameters, `held N`, and ends.

The rank is a process of its own that imports this file again, and so meets the same loader. Counted before anything is repacked.
"""

import os
import sys

os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

from sglang.srt.model_loader.loader import DefaultModelLoader


def counted(model: object, *_: object) -> None:
    print("held", sum(one.numel() * one.element_size() for one in model.parameters()), flush=True)
    os._exit(0)


DefaultModelLoader.postprocess_weights = staticmethod(counted)


if __name__ == "__main__":
    from sglang.launch_server import run_server
    from sglang.srt.server_args import prepare_server_args

    run_server(prepare_server_args(sys.argv[1:]))
