"""Freezes one thread and lets the rest of its process run on: health pages stay green while the engine's work stands still.

Usage: freeze_thread.py TID SECONDS. Prints `frozen TID` once it is; the thread runs on afterwards, also where this process is killed
(the kernel lets a seized thread go when its tracer ends).
"""

import ctypes
import os
import signal
import sys

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_WAIT_FOR_ANY_THREAD = 0x40000000  # __WALL: a thread is no child of its own


def freeze(thread: int, seconds: float) -> None:
    """Returns after `seconds`, or at SIGTERM or SIGINT. OSError where the thread is gone or ptrace is not permitted."""
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    _ptrace(_SEIZE, thread)
    try:
        _ptrace(_INTERRUPT, thread)
        os.waitpid(thread, _WAIT_FOR_ANY_THREAD)
        print("frozen", thread, flush=True)
        signal.sigtimedwait(signals, seconds)
    finally:
        _ptrace(_DETACH, thread)


def _ptrace(request: int, thread: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(request, thread, None, None) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        freeze(int(sys.argv[1]), float(sys.argv[2]))
    except OSError as problem:
        sys.exit(f"thread {sys.argv[1]} cannot be frozen: {problem.strerror}")
