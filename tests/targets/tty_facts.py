"""Prints one JSON line about how this process was started."""

import json
import os
import signal
import sys


def status(name: str) -> str:
    with open("/proc/self/status") as file:
        return next(line.split()[1] for line in file if line.startswith(name))


def environment() -> list[str]:
    with open("/proc/self/environ", "rb") as file:
        return sorted(part.decode("utf8", "surrogateescape") for part in file.read().split(b"\0") if part)


def controlling_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


facts = {
    "argv": sys.argv[1:],
    "cwd": os.getcwd(),
    "env": environment(),
    "fds": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1],
    "leads_session": os.getsid(0) == os.getpid() == os.getpgid(0),
    "controlling_terminal": controlling_terminal(),
    "tty": [os.isatty(fd) for fd in (0, 1, 2)],
    "size": list(os.get_terminal_size(1)) if os.isatty(1) else None,
    "ignored": status("SigIgn"),
    "blocked": status("SigBlk"),
    "umask": os.umask(0o22),
    "nice": os.nice(0),
    "stdin": sys.stdin.read() if not os.isatty(0) else None,
    "pipe_ignored": signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN,
}
print(json.dumps(facts), flush=True)
