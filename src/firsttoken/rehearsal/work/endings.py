"""Endings and claims: a process that raises, leaves or is killed; a server that says too much or nothing any more.

Key insight: the messages are those of an engine that failed, one for each phase, because reading them is the observer's work.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from types import MappingProxyType

from ..faults import Fault
from ..phases import Phase
from .stage import Stage


def crash(fault: Fault, stage: Stage) -> None:
    """Raises what an engine raises in this phase."""
    raise RuntimeError(_MESSAGES[stage.phase])


def leave(fault: Fault, stage: Stage) -> None:
    """Ends without a word and without an error."""
    os._exit(0)


def die(fault: Fault, stage: Stage) -> None:
    """Is killed, as by the out-of-memory killer."""
    os.kill(os.getpid(), signal.SIGKILL)


def claim_ready(fault: Fault, stage: Stage) -> None:
    """Lets the main process listen and say that it is ready, while the start-up goes on."""
    stage.tell({"op": "early"})


def break_log(fault: Fault, stage: Stage) -> None:
    """The log breaks off here, in this process and in the main process; with `for=S` it goes on later."""
    stage.tell({"op": "silence", "seconds": fault.for_s})
    stage.journal.silent = True
    if fault.for_s is not None:
        timer = threading.Timer(fault.for_s, setattr, (stage.journal, "silent", False))
        timer.daemon = True
        timer.start()


_MESSAGES: Mapping[Phase, str] = MappingProxyType(
    {
        Phase.PROCESS_START: "cannot initialise the platform: no usable device was found",
        Phase.CONFIG: "the model's config.json has no architecture that this engine supports",
        Phase.DISTRIBUTED_INIT: "process group initialisation failed: the address of the rendezvous is already taken",
        Phase.WEIGHTS: "size mismatch for layer.1.up: the checkpoint has (256, 128), the model expects (512, 128)",
        Phase.POST_LOAD: "repacking layer.0.down failed: the size is not a multiple of 384",
        Phase.KV_CACHE: "not enough memory is left for the KV cache: 0.81 GiB are needed for the context length of 1024",
        Phase.COMPILE: "the backend compiler failed for kernel normalise: unsupported target",
        Phase.GRAPH_CAPTURE: "graph capture failed: an operation is not permitted while a stream is capturing",
        Phase.WARMUP: "the warm-up forward returned values that are not finite",
        Phase.LISTENING: "the request loop cannot allocate its queue",
        Phase.FIRST_TOKEN: "the forward of the first batch failed: illegal address in kernel softmax",
    }
)
