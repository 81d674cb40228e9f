"""The process that asks about GPUs, and that nobody needs: a line in, a line of JSON out, until its input ends.

NVML first, `nvidia-smi` where only that can be had.
"""

import json
import sys
from dataclasses import asdict
from typing import Protocol

from firsttoken.model.gpu import GpuSample
from firsttoken.observe.gpu_nvml import Nvml
from firsttoken.observe.gpu_smi import Smi


class NoGpu(Exception):
    """Nothing here can tell about GPUs; the text says why."""


class Reader(Protocol):
    source: str
    driver: str | None

    def sample(self) -> list[GpuSample]:
        """All GPUs now."""


def reader() -> Reader:
    try:
        return Nvml()
    except (ImportError, OSError, RuntimeError) as error:
        smi = Smi.found()
        if smi is None:
            raise NoGpu(f"NVML cannot be used ({error}), and there is no nvidia-smi") from error
        return smi


def main() -> None:
    try:
        asked = reader()
    except NoGpu as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return
    for _ in sys.stdin.buffer:
        try:
            gpus = [asdict(sample) for sample in asked.sample()]
        except RuntimeError as error:
            print(json.dumps({"error": str(error)}), flush=True)
            return
        print(json.dumps({"source": asked.source, "driver": asked.driver, "gpus": gpus}), flush=True)


if __name__ == "__main__":
    main()
