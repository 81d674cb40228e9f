"""The network that a server listens in: ours, one that we may enter, or one that we cannot ask."""

import ctypes
import os

from firsttoken.hosts.procfs import Procfs
from firsttoken.model.events import Listening
from firsttoken.model.process import ListenSocket
from firsttoken.observe.socket_tables import tcp_from_proc

_CLONE_NEWNET = 0x40000000


def same_network(pid: int, procfs: Procfs) -> bool:
    """Whether a process is in our network namespace. Where that is hidden, it is taken to be."""
    ours, theirs = procfs.link("self/ns/net"), procfs.link(f"{pid}/ns/net")
    return ours is None or theirs is None or ours == theirs


def enter_network(pid: int) -> str | None:
    """Puts this thread, and those that it starts from now on, into a process's network namespace. Why not, where that is not permitted.

    Addresses mean the server's from then on: a server in a container is asked as if from within it.
    """
    try:
        fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        return error.strerror or str(error)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return None if libc.setns(fd, _CLONE_NEWNET) == 0 else os.strerror(ctypes.get_errno())
    finally:
        os.close(fd)


def listens_unseen(pid: int, port: int, procfs: Procfs) -> Listening | None:
    """The planned port of a process whose open files may not be read: somebody in its network, which is ours, listens there."""
    theirs, ours = tcp_from_proc(procfs, pid), tcp_from_proc(procfs, os.getpid())
    hosts = [host for inode, (host, bound, _) in theirs.items() if bound == port and inode in ours]
    return Listening(sockets=tuple(ListenSocket(pid, host, port, None) for host in hosts)) if hosts else None
