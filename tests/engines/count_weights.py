"""Run by the Python of a vLLM environment: loads a model as the engine does and prints the bytes of all its parameters, `held N`.

They are counted before the CPU build packs them into kernels' own formats, where no parameter shows them any more.
"""

import os
import sys

os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": "1"}
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")


def main(model: str) -> None:
    from vllm import LLM
    from vllm.model_executor.model_loader import base_loader

    def counted(loaded: object, *_: object) -> None:
        print("held", sum(one.numel() * one.element_size() for one in loaded.parameters()), flush=True)
        os._exit(0)

    base_loader.process_weights_after_loading = counted
    LLM(model=model, enforce_eager=True, max_model_len=1024, kv_cache_memory_bytes=64 << 20, dtype="bfloat16")


if __name__ == "__main__":
    main(sys.argv[1])
