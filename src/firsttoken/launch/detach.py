"""What makes a process the keeper: a session of its own, subreaper, deaf to signals that end others by habit, free of its caller."""

import contextlib
import ctypes
import os
import selectors
import signal
from collections.abc import Callable

from firsttoken.launch.folder import Folder

_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER, <sys/prctl.h>"""


def settle() -> None:
    """First thing: no inherited descriptor reaches another program, a session of our own, orphans of the run become ours.

    Where the kernel refuses to make us subreaper, the cgroup and the mark still find what the run started.
    """
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):
                os.set_inheritable(int(name), False)
    with contextlib.suppress(OSError):
        os.setsid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as file:
        file.write("ft-keeper")


def let_go(folder: Folder) -> None:
    """The caller's terminal and pipes are no longer ours; what goes wrong with us from here on is told in the folder."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    try:
        log = os.open(folder.path / "keeper.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 2)
        os.close(log)
    except OSError:
        os.dup2(null, 2)
    os.close(null)


class Signals:
    """Signals and calls from threads as one readable descriptor of the loop. `heard` is called with the signals that came."""

    def __init__(self, selector: selectors.BaseSelector, heard: Callable[[set[signal.Signals]], object]) -> None:
        self._heard = heard
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        selector.register(self._read, selectors.EVENT_READ, self._on_readable)
        self._listen()

    def wake(self) -> None:
        """From any thread."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"\0")

    def _listen(self) -> None:
        """All explicit: for the first process of a container no signal has a default action."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for item in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(item, _noted)
        for item in (signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGXFSZ):
            signal.signal(item, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def _on_readable(self, _mask: int) -> None:
        noted: bytes = b""
        with contextlib.suppress(BlockingIOError):
            noted = os.read(self._read, 4096)
        self._heard({item for item in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD) if item in noted})


def _noted(_number: int, _frame: object) -> None:
    """A handler must be there for the wake-up descriptor to hear of the signal; the loop does the work."""
