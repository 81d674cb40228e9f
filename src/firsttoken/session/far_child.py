"""One question to one file, asked by a process that may be left behind: `python -I -S far_child.py ask|text|start|folder PATH MOST`.

Answers on stdout: `+` and what was asked for, `-` where there is no such thing, `!` and the error of a mount that has lost its server.
Standard library alone, since it is started for each question.
"""

import errno
import os
import stat
import sys

_LOST = {
    errno.ENOTCONN, errno.ECONNABORTED, errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.EREMOTEIO,
    errno.ENODEV, errno.ENXIO, errno.ESHUTDOWN,
}  # fmt: skip


def answer(verb: str, path: str, most: int) -> bytes:
    """`ask`: names of a folder, or first bytes of a file, past what is remembered of its own name; `text`: a file that is no longer than
    `most`; `start`: its first bytes. OSError as it comes."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return _read(fd, verb, most)
    finally:
        os.close(fd)


def _read(fd: int, verb: str, most: int) -> bytes:
    found = os.fstat(fd)
    if verb == "folder" or (verb == "ask" and stat.S_ISDIR(found.st_mode)):
        return b"+" + b"\0".join(map(os.fsencode, os.listdir(fd)))
    if not stat.S_ISREG(found.st_mode) or (verb == "text" and found.st_size > most):
        return b"-"
    data = b"+"
    while len(data) <= most and (part := os.read(fd, min(most, 1 << 20))):
        data += part
        if verb == "ask":
            break
    return data[: most + 1]


def asked(verb: str, path: str, most: int) -> bytes:
    try:
        return answer(verb, path, most)
    except OSError as error:
        return b"!" + (error.strerror or "an error").encode() if error.errno in _LOST else b"-"


if __name__ == "__main__":
    sys.stdout.buffer.write(asked(sys.argv[1], sys.argv[2], int(sys.argv[3])))
