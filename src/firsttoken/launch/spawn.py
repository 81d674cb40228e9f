"""Starting the server exactly as it would start without us, and the observer.

The server gets the caller's environment to the byte plus the mark, its own session without a controlling terminal, default signal
dispositions and an empty mask; umask, limits, nice and OOM score are not touched. Fork and exec are our own, before the keeper has a second
thread: the errno of a failed exec comes back through a pipe that closes on exec, so that failure is told before anything else is done.
"""

import contextlib
import errno
import os
import select
import signal
import stat
from dataclasses import dataclass
from typing import NoReturn

from firsttoken.launch.folder import MARK
from firsttoken.launch.spec import LaunchSpec

NOT_FOUND, NOT_EXECUTABLE = 127, 126
MASTER_FD = 3
"""The descriptor under which an observer finds the server's output."""
MASTER_ENV = "FIRSTTOKEN_MASTER_FD"
EXEC_WITHIN = 30.0
"""Seconds that the kernel is given to find the program and its interpreter."""
_PIPE_BYTES = 65536
"""What a pipe takes without a reader."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The command could not be started. `code` as a shell would give it."""

    error: str
    code: int


def original_environment() -> dict[bytes, bytes]:
    """The environment at exec. Python adds LC_CTYPE to its own in a C locale, and a server must not see that."""
    try:
        with open("/proc/self/environ", "rb") as file:
            raw = file.read()
    except OSError:
        return dict(os.environb)
    entries = (entry.partition(b"=") for entry in raw.split(b"\0") if entry)
    return {name: value for name, equals, value in entries if equals and name}


def server_environment(spec: LaunchSpec, base: dict[bytes, bytes]) -> dict[bytes, bytes]:
    env = dict(base)
    env |= {os.fsencode(name): os.fsencode(value) for name, value in spec.env.items()}
    if spec.mark:
        env[MARK.encode()] = os.fsencode(spec.run)
    return env


def spawn_server(spec: LaunchSpec, env: dict[bytes, bytes], output: int, cgroup_procs: int | None) -> int | Refused:
    """The pid, once its exec succeeded. `output` becomes stdout and stderr. OSError where this process cannot fork."""
    argv = [os.fsencode(item) for item in spec.argv]
    candidates = _candidates(argv[0], env)
    failed, told = os.pipe()
    stdin = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) if spec.stdin_fd is None else spec.stdin_fd
    try:
        pid = os.fork()
        if pid == 0:
            _become_server(spec, argv, env, candidates, stdin, output, cgroup_procs, told)
        os.close(told)
        told = -1
        if not select.select([failed], [], [], EXEC_WITHIN)[0]:
            os.kill(pid, signal.SIGKILL)  # whenever its mount lets go of it, it must not become a server that nobody watches
            return _refusal(spec, "late", 0, candidates)
        report = _read_all(failed)
    finally:
        os.close(failed)
        if told >= 0:
            os.close(told)
        if spec.stdin_fd is None:
            os.close(stdin)
    if not report:
        return pid
    os.waitpid(pid, 0)
    stage, _, number = report.decode().partition(" ")
    return _refusal(spec, stage, int(number or 0), candidates)


def spawn_observer(argv: tuple[str, ...], env: dict[bytes, bytes], *, master: int, log: int, told: bytes = b"") -> int:
    """The pid of an observer in a session of its own, with `master` as descriptor 3 and `told` (64 KiB at most) on its stdin.

    OSError where it cannot be started.
    """
    env = {**env, MASTER_ENV.encode(): str(MASTER_FD).encode()}
    arguments = [os.fsencode(item) for item in argv]
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    high = os.dup(master) if master == MASTER_FD else master
    heard, say = os.pipe()
    try:
        os.set_blocking(say, False)
        os.write(say, told[:_PIPE_BYTES])
        os.close(say)
        say = -1
        actions = [
            (os.POSIX_SPAWN_DUP2, heard, 0),
            (os.POSIX_SPAWN_DUP2, log if log >= 0 else null, 1),
            (os.POSIX_SPAWN_DUP2, log if log >= 0 else null, 2),
            (os.POSIX_SPAWN_DUP2, high, MASTER_FD),
        ]
        for path in _candidates(arguments[0], env):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                return os.posix_spawn(
                    path, arguments, env, file_actions=actions, setsid=True, setsigmask=(), setsigdef=_default_signals()
                )  # fmt: skip
        raise FileNotFoundError(errno.ENOENT, "the observer's program is not there", argv[0])
    finally:
        os.close(null)
        os.close(heard)
        if say >= 0:
            os.close(say)
        if high != master:
            os.close(high)


def _become_server(
    spec: LaunchSpec,
    argv: list[bytes],
    env: dict[bytes, bytes],
    candidates: list[bytes],
    stdin: int,
    output: int,
    cgroup_procs: int | None,
    told: int,
) -> NoReturn:
    """In the child; ends in exec or with the reason in the pipe."""
    stage, number = "start", 0
    try:
        os.setsid()
        if cgroup_procs is not None:
            with contextlib.suppress(OSError):  # a group is for finding, the start must not fail for it
                os.write(cgroup_procs, b"0")
        os.dup2(stdin, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        signal.set_wakeup_fd(-1)
        for item in _default_signals():
            signal.signal(item, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if spec.cwd is not None:
            stage = "cwd"
            os.chdir(os.fsencode(spec.cwd))
        stage, number = "exec", _exec(argv, env, candidates)
    except OSError as error:
        number = error.errno or 0
    except BaseException:
        stage, number = "start", 0
    with contextlib.suppress(OSError):
        os.write(told, f"{stage} {number}".encode())
    os._exit(NOT_FOUND)


def _exec(argv: list[bytes], env: dict[bytes, bytes], candidates: list[bytes]) -> int:
    """Returns only on failure: the errno that says most, as execvp(3) chooses it."""
    worst = errno.ENOENT
    for path in candidates:
        try:
            os.execve(path, argv, env)
        except OSError as error:
            if error.errno == errno.ENOEXEC:  # a script without a first line: shells run it, and so does execvp
                os.execve(b"/bin/sh", [b"/bin/sh", path, *argv[1:]], env)
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                worst = error.errno or worst
                if error.errno != errno.EACCES:
                    break
    return worst


def _candidates(program: bytes, env: dict[bytes, bytes]) -> list[bytes]:
    if b"/" in program:
        return [program]
    path = env.get(b"PATH", os.defpath.encode())
    return [os.path.join(folder or b".", program) for folder in path.split(b":")]


def _default_signals() -> list[signal.Signals]:
    fixed = {signal.SIGKILL, signal.SIGSTOP}
    return [item for item in signal.Signals if item not in fixed and item in signal.valid_signals()]


def _refusal(spec: LaunchSpec, stage: str, number: int, candidates: list[bytes]) -> Refused:
    program, reason = spec.shown_argv[0], os.strerror(number) if number else "it could not be prepared"
    if stage == "late":
        fact = f"{program} could not be started: its file system gave no answer within {EXEC_WITHIN:.0f} s (a dead mount?)"
        return Refused(f"{fact}; look at its folder, its interpreter's and those of PATH with `df`", NOT_EXECUTABLE)
    if stage == "cwd":
        return Refused(f"the working folder {spec.cwd} cannot be entered: {reason}", NOT_EXECUTABLE)
    if stage == "start":
        return Refused(f"{program} could not be started: {reason}", NOT_EXECUTABLE)
    if number in (errno.ENOENT, errno.ENOTDIR):
        # A relative path means another file where the server has a folder of its own.
        at = os.fsencode(spec.cwd or ".")
        if any(_is_file(os.path.join(at, path)) for path in candidates):
            return Refused(f"{program} is there, but the interpreter that its first line names is not; correct that line", NOT_EXECUTABLE)
        if spec.argv[0].partition("=")[0].isidentifier() and "=" in spec.argv[0]:
            return Refused(f"{program} is a variable, not a program: put `env` in front of it", NOT_FOUND)
        where = "there is no such file" if b"/" in os.fsencode(spec.argv[0]) else "it is in no folder of PATH"
        return Refused(f"{program} was not found: {where}; check the name, or activate the environment that has it", NOT_FOUND)
    if number == errno.EACCES:
        return Refused(f"{program} may not be executed: {reason}; check its mode and that it is a file", NOT_EXECUTABLE)
    return Refused(f"{program} could not be executed: {reason}", NOT_EXECUTABLE)


def _is_file(path: bytes) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def _read_all(fd: int) -> bytes:
    found = b""
    while part := os.read(fd, 256):
        found += part
    return found
