"""A process that has nothing to do with the server and that the server waits for: holds a lock, an address, a file server.

Key insight: it is outside the tree (own session, orphaned at once, none of the server's environment), and it watches the server's
main process by pidfd: it never outlives the run, and removes the run-time folder when main was killed and could not.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import select
import shutil
import socket
import sys
import threading
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

_PIECE = b"\x5a" * 2048
_PIECES_PER_S = 8
_DAY_S = 86400.0


def main() -> int:
    """Prints one line `closed=PORT files=PORT` when all is held, then leaves the caller's tree and stays until --main ends."""
    parser = argparse.ArgumentParser(prog="bystander")
    parser.add_argument("--main", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    args = parser.parse_args()
    if os.fork():
        return 0
    lock = os.open(args.folder / "build.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    closed, held = _full_backlog()
    files = socket.create_server(("127.0.0.1", 0), backlog=64)
    threading.Thread(target=_serve_files, args=(files,), daemon=True).start()
    _rename()
    os.write(1, f"closed={closed.getsockname()[1]} files={files.getsockname()[1]}\n".encode())
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    _wait_for_end(args.main)
    shutil.rmtree(args.folder, ignore_errors=True)
    held.close()
    return 0


def _full_backlog() -> tuple[socket.socket, socket.socket]:
    """A listener that accepts nothing and whose queue one connection fills: the kernel drops the packets of all others."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    return listener, socket.create_connection(listener.getsockname())


def _serve_files(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_send_file, args=(connection,), daemon=True).start()


def _send_file(connection: socket.socket) -> None:
    """Sends pieces for `seconds` (a day where 0); `mode=stall` sends eight of them and then nothing."""
    with contextlib.suppress(OSError, IndexError, ValueError), connection:
        query = parse_qs(urlsplit(connection.recv(4096).decode().split()[1]).query)
        seconds = float(query["seconds"][0]) or _DAY_S
        pieces = max(1, round(seconds * _PIECES_PER_S))
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {pieces * len(_PIECE)}\r\nContent-Type: application/octet-stream\r\n\r\n"
        connection.sendall(head.encode())
        for number in range(pieces):
            if query["mode"] == ["stall"] and number == _PIECES_PER_S:
                connection.recv(1)
                return
            connection.sendall(_PIECE)
            time.sleep(1 / _PIECES_PER_S)


def _rename() -> None:
    try:
        from setproctitle import setproctitle
    except ImportError:
        return
    setproctitle("python -m other.job")


def _wait_for_end(pid: int) -> None:
    try:
        watched = os.pidfd_open(pid)
    except AttributeError:  # not Linux
        while _alive(pid):
            time.sleep(0.2)
        return
    except OSError:
        return
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    poll.poll()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
