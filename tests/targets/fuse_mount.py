"""Network storage of any temper: `fuse_mount.py [OPTIONS] FOLDER POINT COMMAND…` runs a command beside a mount of a folder, read-only.

The mount is a real one (FUSE), in a mount namespace of its own, under the kind and source that were asked for. `--mode`: `answers`;
`slow:MS`, each read is answered so late; `dies:N`, N requests are answered and none after them; `dies`, none after a SIGUSR1 to us;
`dead`, none at all; `gone`, its server has ended, and everything is an error. A request of a dead one was taken by its server and is never
answered: its caller is in uninterruptible sleep, and no signal ends it. When the command has ended, or the time is over (status 124), the
connection is closed: whoever waits gets an error, and nothing stays stuck. Needs root and /dev/fuse, no libfuse.

Layouts: `include/uapi/linux/fuse.h` of Linux 6.1 (protocol 7.38); only fields that protocol 7.31 has are used, and that is what is told.
"""

import argparse
import contextlib
import ctypes
import errno
import heapq
import os
import select
import signal
import stat
import struct
import sys
import time
from collections.abc import Callable

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE, CLONE_NEWNS = 1, 2, 4, 1 << 14, 1 << 18, 0x20000
IN_HEADER, OUT_HEADER = struct.Struct("=IIQQIIIHH"), struct.Struct("=IiQ")
INIT_IN, INIT_OUT = struct.Struct("=IIII"), struct.Struct("=IIIIHHIIHHI28x")
ATTR, ATTR_OUT, ENTRY_OUT = struct.Struct("=6Q10I"), struct.Struct("=QII"), struct.Struct("=QQQQII")
OPEN_OUT, READ_IN, RELEASE_IN = struct.Struct("=QII"), struct.Struct("=QQI"), struct.Struct("=Q")
STATFS_OUT, DIRENT = struct.Struct("=5Q4I24x"), struct.Struct("=QQII")
LOOKUP, FORGET, GETATTR, READLINK, OPEN, READ, STATFS, RELEASE = 1, 2, 3, 5, 14, 15, 17, 18
INIT, OPENDIR, READDIR, RELEASEDIR, INTERRUPT, BATCH_FORGET = 26, 27, 28, 29, 36, 42
UNANSWERED = (FORGET, INTERRUPT, BATCH_FORGET)
ASYNC_READ, PARALLEL_DIROPS, MAX_PAGES = 1 << 0, 1 << 18, 1 << 22
MOST_REQUEST = 1 << 17
VALID = 1
"""seconds for which names and attributes may be remembered"""


class Server:
    """Passes requests through to `folder`. `answers`: how many of them in all, but for the handshake; `late`: seconds, of reads."""

    def __init__(self, device: int, folder: str, *, answers: float, late: float) -> None:
        self.device, self.left, self.late = device, answers, late
        self.paths = {1: folder}
        self.numbers = {folder: 1}
        self.due: list[tuple[float, bytes]] = []
        self.answer: dict[int, Callable[[str, bytes], bytes]] = {
            INIT: self.init,
            LOOKUP: self.lookup,
            GETATTR: lambda path, _: ATTR_OUT.pack(VALID, 0, 0) + attributes(path),
            READLINK: lambda path, _: os.fsencode(os.readlink(path)),
            OPEN: lambda path, _: OPEN_OUT.pack(os.open(path, os.O_RDONLY | os.O_CLOEXEC), 0, 0),
            READ: self.read,
            RELEASE: self.release,
            OPENDIR: lambda *_: OPEN_OUT.pack(0, 0, 0),
            READDIR: self.list,
            RELEASEDIR: lambda *_: b"",
            STATFS: self.room,
        }

    def serve(self, ended: int, seconds: float) -> bool:
        """Until `ended` (a pidfd) is readable; False when the time is over before that."""
        until = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self.device, select.POLLIN)
        poll.register(ended, select.POLLIN)
        while (now := time.monotonic()) < until:
            while self.due and self.due[0][0] <= now:
                self.send(heapq.heappop(self.due)[1])
            wait = min(until, self.due[0][0] if self.due else until) - now
            ready = dict(poll.poll(wait * 1000 + 1))
            if ended in ready:
                return True
            if self.device in ready:
                self.take(os.read(self.device, MOST_REQUEST))
        return False

    def take(self, request: bytes) -> None:
        _, code, unique, node, *_ = IN_HEADER.unpack_from(request)
        if code in UNANSWERED:
            return
        if code != INIT:
            self.left -= 1
            if self.left < 0:
                return
        error, content = 0, b""
        try:
            if code not in self.answer:
                raise OSError(errno.ENOSYS, "")  # the kernel does without it, and does not ask for it again
            content = self.answer[code](self.paths[node] if node else "", request[IN_HEADER.size :])
        except OSError as problem:
            error = problem.errno or errno.EIO
        reply = OUT_HEADER.pack(OUT_HEADER.size + len(content), -error, unique) + content
        if code == READ and self.late:
            heapq.heappush(self.due, (time.monotonic() + self.late, reply))
        else:
            self.send(reply)

    def send(self, reply: bytes) -> None:
        with contextlib.suppress(FileNotFoundError):  # whoever asked was interrupted
            os.write(self.device, reply)

    def init(self, _: str, body: bytes) -> bytes:
        ahead = INIT_IN.unpack_from(body)[2]
        return INIT_OUT.pack(7, 31, ahead, ASYNC_READ | PARALLEL_DIROPS | MAX_PAGES, 64, 48, 4096, 1, 256, 0, 0)

    def lookup(self, path: str, body: bytes) -> bytes:
        below = os.path.join(path, os.fsdecode(body.rstrip(b"\0")))
        found = attributes(below)
        number = self.numbers.setdefault(below, len(self.numbers) + 1)
        self.paths[number] = below
        return ENTRY_OUT.pack(number, 0, VALID, VALID, 0, 0) + found

    def read(self, _: str, body: bytes) -> bytes:
        file, offset, size = READ_IN.unpack_from(body)
        return os.pread(file, size, offset)

    def release(self, _: str, body: bytes) -> bytes:
        os.close(RELEASE_IN.unpack_from(body)[0])
        return b""

    def list(self, path: str, body: bytes) -> bytes:
        _, offset, size = READ_IN.unpack_from(body)
        rows = b""
        for at, entry in list(enumerate(sorted(os.scandir(path), key=lambda entry: entry.name), 1))[offset:]:
            name = os.fsencode(entry.name)
            row = DIRENT.pack(entry.inode(), at, len(name), stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode) >> 12) + name
            row += bytes(-len(row) % 8)
            if len(rows) + len(row) > size:
                break
            rows += row
        return rows

    def room(self, path: str, _: bytes) -> bytes:
        of = os.statvfs(path)
        return STATFS_OUT.pack(of.f_blocks, of.f_bfree, of.f_bavail, of.f_files, of.f_ffree, of.f_bsize, of.f_namemax, of.f_frsize, 0)


def attributes(path: str) -> bytes:
    of = os.lstat(path)
    times = (of.st_atime_ns, of.st_mtime_ns, of.st_ctime_ns)
    seconds, parts = [ns // 10**9 for ns in times], [ns % 10**9 for ns in times]
    return ATTR.pack(of.st_ino, of.st_size, of.st_blocks, *seconds, *parts, of.st_mode, of.st_nlink, of.st_uid, of.st_gid, 0, 4096, 0)


def mounted(kind: str, source: str, point: str) -> int:
    """The device of the new mount's server. From here on this process is in a mount namespace of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    for call, *arguments in (
        (libc.unshare, CLONE_NEWNS),
        (libc.mount, b"none", b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None),
        (libc.mount, *map(os.fsencode, (source, point, kind)), ctypes.c_ulong(MS_RDONLY | MS_NOSUID | MS_NODEV), options.encode()),
    ):
        if call(*arguments):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), point)
    return device


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", default="answers")
    parser.add_argument("--kind", default="fuse.sshfs")
    parser.add_argument("--source", default="nas:/models")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("folder")
    parser.add_argument("point")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    way, _, number = asked.mode.partition(":")
    answers = 0.0 if way == "dead" else float(number) if way == "dies" and number else float("inf")
    device = mounted(asked.kind, asked.source, asked.point)
    child = os.fork()
    if child == 0:  # not by subprocess: its vfork would wait for an exec that may wait for us
        os.close(device)
        try:
            os.execvp(asked.command[0], asked.command)
        except OSError as problem:
            print(problem, file=sys.stderr)
        os._exit(127)
    server = Server(device, os.path.abspath(asked.folder), answers=answers, late=float(number) / 1000 if way == "slow" else 0.0)
    signal.signal(signal.SIGUSR1, lambda *_: setattr(server, "left", 0.0))
    ended = os.pidfd_open(child)
    if way == "gone":
        os.close(device)
        in_time = bool(select.select([ended], [], [], asked.seconds)[0])
    else:
        in_time = server.serve(ended, asked.seconds)
        os.close(device)
    if not in_time:
        print(f"{asked.command[0]} has not ended within {asked.seconds:g} s", file=sys.stderr)
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return 124 if not in_time else code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
