"""Where the server writes: a raw pseudo-terminal, or a pipe. Either way the reader gets the very bytes that were written.

A terminal makes C and Python flush line by line, so that the last words of a hung process come out. Output processing is off (`\\n` stays
`\\n`), and so are echo and signals. Nobody's controlling terminal: the end of the master never sends SIGHUP.
"""

import contextlib
import fcntl
import os
import struct
import termios
from dataclasses import dataclass

_PIPE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlet:
    """`read` is ours and nonblocking; `write` becomes the server's stdout and stderr. Both close on exec."""

    read: int
    write: int
    pty: bool


def open_outlet(*, pipe: bool, rows: int, columns: int) -> Outlet:
    """OSError where the machine has no terminal (or descriptor) left to give."""
    return _open_pipe() if pipe else _open_pty(rows, columns)


def _open_pty(rows: int, columns: int) -> Outlet:
    master, slave = os.openpty()
    try:
        mode = termios.tcgetattr(slave)
        mode[0] &= ~(termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR | termios.ISTRIP | termios.BRKINT)
        mode[1] &= ~termios.OPOST
        mode[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN)
        termios.tcsetattr(slave, termios.TCSANOW, mode)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.set_blocking(master, False)
    except BaseException:
        os.close(master)
        os.close(slave)
        raise
    return Outlet(read=master, write=slave, pty=True)


def _open_pipe() -> Outlet:
    read, write = os.pipe()
    with contextlib.suppress(OSError, AttributeError):  # more room for bursts; a user's share of pipe pages may be used up
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    os.set_blocking(read, False)
    return Outlet(read=read, write=write, pty=False)
