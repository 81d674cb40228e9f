"""Stands still in one way: `still.py WAY [ARGUMENT…]`. Prints one line when it is about to; ends with the process that started it."""

import ctypes
import fcntl
import mmap
import os
import select
import signal
import socket
import struct
import sys
import threading
import time

PARENT = os.getppid()
OFD_SETLK, OFD_SETLKW = 37, 38
WHOLE_FILE = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)


def ready(*words: object) -> None:
    print("ready", *words, flush=True)


def opened(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def flock(path: str) -> None:
    file = opened(path)
    ready()
    fcntl.flock(file, fcntl.LOCK_EX)


def posix_lock(path: str) -> None:
    file = opened(path)
    ready()
    fcntl.lockf(file, fcntl.LOCK_EX)


def ofd_lock(path: str) -> None:
    file = opened(path)
    ready()
    fcntl.fcntl(file, OFD_SETLKW, WHOLE_FILE)


def hold(sort: str, path: str) -> None:
    file = opened(path)
    match sort:
        case "flock":
            fcntl.flock(file, fcntl.LOCK_EX)
        case "posix":
            fcntl.lockf(file, fcntl.LOCK_EX)
        case "ofd":
            fcntl.fcntl(file, OFD_SETLK, WHOLE_FILE)
    ready()
    signal.pause()


def hold_in_child(path: str) -> None:
    """The process that took the flock ends; a child keeps the descriptor."""
    file = opened(path)
    fcntl.flock(file, fcntl.LOCK_EX)
    if os.fork():
        os._exit(0)
    ready(os.getpid())
    signal.pause()


def take_two(first: str, second: str) -> None:
    """The second one when SIGUSR1 comes."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    fcntl.flock(opened(first), fcntl.LOCK_EX)
    ready()
    signal.sigwait({signal.SIGUSR1})
    fcntl.flock(opened(second), fcntl.LOCK_EX)


def poll_lock(path: str) -> None:
    """Asks, is refused, sleeps, and keeps the descriptor."""
    file = opened(path)
    ready()
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
        else:
            return


def keep_open(path: str) -> None:
    """As who makes a file whose being there is the lock."""
    file = os.open(path, os.O_CREAT | os.O_EXCL)
    ready(file)
    signal.pause()


def import_lock(folder: str, path: str) -> None:
    """Lets a library in `folder` ask for the lock."""
    sys.path.insert(0, folder)
    from filelock.api import acquire  # type: ignore[import-not-found]  # made by the test

    ready()
    acquire(path)


def import_extension(folder: str, build_directory: str) -> None:
    """Lets a library in `folder` wait for its build lock."""
    sys.path.insert(0, folder)
    from torch.utils.cpp_extension import _jit_compile  # type: ignore[import-not-found]  # made by the test

    ready()
    _jit_compile(build_directory)


def open_fifo(path: str) -> None:
    ready()
    os.open(path, os.O_RDONLY)


def read_fifo(path: str) -> None:
    file = os.open(path, os.O_RDWR)
    ready()
    os.read(file, 1)


def read_own_pipe() -> None:
    reader, _ = os.pipe()
    ready()
    os.read(reader, 1)


def poll_own_pipe() -> None:
    reader, _ = os.pipe()
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    ready()
    poll.poll(90_000)


def read_childs_pipe() -> None:
    reader, writer = os.pipe()
    child = fork()
    if not child:
        os.close(reader)
        signal.pause()
    os.close(writer)
    ready(child)
    os.read(reader, 1)


def fill_childs_pipe() -> None:
    reader, writer = os.pipe()
    child = fork()
    if not child:
        os.close(writer)
        signal.pause()
    os.close(reader)
    ready(child)
    while True:
        os.write(writer, bytes(65536))


def unix_pair() -> None:
    ours, theirs = socket.socketpair()
    child = fork()
    if not child:
        ours.close()
        signal.pause()
    theirs.close()
    ready(child)
    ours.recv(1)


def receive(port: str) -> None:
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        ready()
        connection.recv(1)


def connect(port: str) -> None:
    connection = socket.socket()
    ready()
    connection.connect(("127.0.0.1", int(port)))


def connect_unix(path: str) -> None:
    connection = socket.socket(socket.AF_UNIX)
    ready()
    connection.connect(path)


def listen_unix(path: str) -> None:
    """Never accepts; its backlog is filled by a connection of its own."""
    listener, own = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(0)
    own.connect(path)
    ready()
    signal.pause()


def connect_with_timeout(port: str) -> None:
    ready()
    socket.create_connection(("127.0.0.1", int(port)), timeout=90)


def listen(backlog: str) -> None:
    """Never accepts; a backlog of 0 is filled by a connection of its own."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(int(backlog))
    own = socket.create_connection(listener.getsockname()) if backlog == "0" else None
    ready(listener.getsockname()[1])
    signal.pause()
    del own


def accept() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ready(listener.getsockname()[1])
        listener.accept()


def epoll() -> None:
    reader, _ = os.pipe()
    with socket.create_server(("127.0.0.1", 0)) as listener, select.epoll() as events:
        events.register(reader, select.EPOLLIN)
        events.register(listener, select.EPOLLIN)
        ready()
        events.poll(77)


def select_pipe() -> None:
    reader, _ = os.pipe()
    ready()
    select.select([reader], [], [], 88)


def shared_lock(path: str) -> None:
    """Waits for a semaphore in a file that is mapped for all."""
    file = opened(path)
    os.ftruncate(file, mmap.PAGESIZE)
    area = mmap.mmap(file, mmap.PAGESIZE)
    semaphore = ctypes.c_char.from_buffer(area)
    libc = ctypes.CDLL(None)
    libc.sem_init(ctypes.byref(semaphore), 1, 0)
    ready()
    libc.sem_wait(ctypes.byref(semaphore))


def wait_for_child() -> None:
    child = fork()
    if not child:
        signal.pause()
    ready(child)
    os.waitpid(child, 0)


def poll_pidfd() -> None:
    child = fork()
    if not child:
        signal.pause()
    poll = select.poll()
    poll.register(os.pidfd_open(child), select.POLLIN)
    ready(child)
    poll.poll()


def sleep(seconds: str) -> None:
    ready()
    time.sleep(float(seconds))


def stop() -> None:
    ready()
    os.kill(os.getpid(), signal.SIGSTOP)


def spin() -> None:
    ready()
    while True:
        pass


def threads(count: str) -> None:
    event = threading.Event()
    for _ in range(int(count)):
        threading.Thread(target=event.wait, daemon=True).start()
    ready()
    event.wait()


def trace(pid: str) -> None:
    """Interrupts another process by ptrace and keeps it."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    seize, interrupt = 0x4206, 0x4207
    if libc.ptrace(seize, int(pid), None, None) != 0:
        print("refused", flush=True)
        return
    libc.ptrace(interrupt, int(pid), None, None)
    os.waitpid(int(pid), 0x40000000)
    ready()
    signal.pause()


def fork() -> int:
    """0 in the child, which ends with this process."""
    global PARENT
    own = os.getpid()
    child = os.fork()
    if not child:
        PARENT = own
        end_with_parent()
    return child


def end_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != PARENT:
        os._exit(1)


if __name__ == "__main__":
    end_with_parent()
    globals()[sys.argv[1]](*sys.argv[2:])
