"""`run --arm`: the variables that make a server tell more when it hangs, for the one launch at which the user asked for them.

Nothing that the user set is changed. Names: torch 2.5 to 2.13 (`FlightRecorder.hpp`, `ProcessGroupNCCL.hpp`), CUDA's core-dump variables as
SGLang 0.5.23 sets them for `--crash-dump-folder`, with `skip_abort` besides, so that a dump does not end the server.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from firsttoken.model.plan import Plan
from firsttoken.session.witnesses import RECORDS

CORES = "gpu_cores"
_ENTRIES = "2000"
_FLAGS = "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,skip_constbank_memory,skip_abort"
_SAME = (
    ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
    ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
)
"""Two names of one thing: where the user set one, the other would overrule it in some version of torch."""


def arming(folder: Path, plan: Plan, env: Mapping[str, str]) -> dict[str, str]:
    """What to add to `env`; makes the folders that it names. Empty for a server in a container, whose environment is its own.

    OSError where the folders cannot be made.
    """
    if plan.contained:
        return {}
    records, cores = folder / RECORDS, folder / CORES
    for made in (records, cores):
        made.mkdir(mode=0o700, exist_ok=True)
    wanted = {
        "TORCH_FR_BUFFER_SIZE": _ENTRIES,
        "TORCH_NCCL_TRACE_BUFFER_SIZE": _ENTRIES,  # its older name
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": f"{records}/rank_",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{records}/rank_",
        "PYTHONFAULTHANDLER": "1",
        "CUDA_ENABLE_USER_TRIGGERED_COREDUMP": "1",
        "CUDA_COREDUMP_PIPE": f"{cores}/pipe.%h.%p",
        "CUDA_COREDUMP_FILE": f"{cores}/core.%h.%p.%t",
        "CUDA_COREDUMP_GENERATION_FLAGS": _FLAGS,
        "CUDA_COREDUMP_SHOW_PROGRESS": "1",
    }
    if plan.sizes.dp == 1 and _has_pipes(records):
        # torch ends a process that cannot make its pipe, and ranks of several worlds would want the same one
        wanted["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] = f"{records}/pipe_"
    theirs = {name for names in _SAME if not env.keys().isdisjoint(names) for name in names}
    return {name: value for name, value in wanted.items() if name not in env and name not in theirs}


def _has_pipes(folder: Path) -> bool:
    trial = folder / "trial.pipe"
    try:
        os.mkfifo(trial)
    except OSError:
        return False
    with contextlib.suppress(OSError):
        trial.unlink()
    return True
