"""What this machine lets an observer see and do. Every line comes from an attempt, not from a version number."""

import ctypes.util
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from firsttoken.history.runs import home
from firsttoken.hosts.procfs import Procfs
from firsttoken.launch import cgroup

_DEADLINE = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`result`: pass, warn (works with less), fail (firsttoken cannot do its job), not_checked."""

    id: str
    result: str
    fact: str
    remedy: str | None = None


def examine() -> list[Found]:
    return [*_basics(), *_processes(), *_stacks(), *_gpu()]


def _basics() -> Iterator[Found]:
    yield Found(id="python", result="pass", fact=f"{sys.version.split()[0]} at {sys.executable}")
    kernel = os.uname()
    yield Found(id="kernel", result="pass" if kernel.sysname == "Linux" else "fail", fact=f"{kernel.sysname} {kernel.release}",
                remedy=None if kernel.sysname == "Linux" else "launching and following need Linux; logs can be read anywhere")  # fmt: skip
    folder = home()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            pass
        free = shutil.disk_usage(folder).free
        enough = free > 1 << 30
        yield Found(id="runs-folder", result="pass" if enough else "warn", fact=f"{folder}, {free / 1e9:.1f} GB free",
                    remedy=None if enough else "a run records up to 130 MB of log; `firsttoken history prune` makes room")  # fmt: skip
    except OSError as error:
        yield Found(
            id="runs-folder", result="fail", fact=f"{folder}: {error.strerror or error}", remedy="set FIRSTTOKEN_HOME to a folder of yours"
        )


def _processes() -> Iterator[Found]:
    procfs = Procfs()
    me = os.getpid()
    if procfs.stat(me) is None:
        yield Found(id="proc", result="fail", fact="/proc is not there or not readable", remedy="mount it: mount -t proc proc /proc")
        return
    others = [pid for pid in procfs.pids() if pid != me]
    hidden = procfs.stat(1) is None
    yield Found(id="proc", result="warn" if hidden else "pass", fact=f"{len(others) + 1} processes visible" + (", others' are hidden" if hidden else ""),
                remedy="hidepid hides other users' processes: lock holders among them cannot be named" if hidden else None)  # fmt: skip
    io = procfs.read(f"{me}/io")
    yield Found(id="proc-io", result="pass" if io else "warn", fact="byte counters are readable" if io else "/proc/PID/io is not readable",
                remedy=None if io else "progress is judged by log, faults and children alone")  # fmt: skip
    children = procfs.children(me)
    yield Found(id="proc-children", result="pass" if children is not None else "warn",
                fact="the kernel lists children" if children is not None else "no /proc/PID/task/TID/children: all processes are scanned")  # fmt: skip
    made = cgroup.create(f"firsttoken-doctor-{me}")
    if made is not None:
        made.remove()
    yield Found(id="cgroup", result="pass" if made is not None else "warn",
                fact="a run gets a cgroup of its own" if made is not None else "no cgroup can be made here",
                remedy=None if made is not None else "after a SIGKILL of the keeper, leftovers are found by session and mark only")  # fmt: skip


def _stacks() -> Iterator[Found]:
    scope = (Procfs().read("sys/kernel/yama/ptrace_scope") or b"").strip()
    meaning = {
        b"": "no Yama",
        b"0": "Yama 0: same user",
        b"1": "Yama 1: own descendants",
        b"2": "Yama 2: root only",
        b"3": "Yama 3: nobody",
    }
    limited = scope in (b"2", b"3") or (scope == b"1" and os.geteuid() != 0)
    yield Found(id="ptrace", result="warn" if limited else "pass", fact=meaning.get(scope, scope.decode("ascii", "replace")),
                remedy="stacks of the server cannot be read from outside: sysctl kernel.yama.ptrace_scope=0, or run as root" if limited else None)  # fmt: skip
    program = shutil.which("py-spy") or _beside("py-spy")
    if program is None:
        yield Found(id="py-spy", result="warn", fact="not found", remedy="pip install py-spy, for stacks of Python processes")
        return
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        done = subprocess.run([program, "dump", "--nonblocking", "--pid", str(child.pid)], capture_output=True, timeout=_DEADLINE)
        worked = done.returncode == 0
        said = done.stderr.decode("utf8", "replace").strip().splitlines()
        yield Found(id="py-spy", result="pass" if worked else "warn", fact=f"{program} reads stacks" if worked else f"{program}: {said[-1] if said else 'failed'}",
                    remedy=None if worked else "in a container: --cap-add SYS_PTRACE")  # fmt: skip
    except subprocess.TimeoutExpired:
        yield Found(id="py-spy", result="warn", fact=f"{program} gave no answer in {_DEADLINE:.0f} s")
    finally:
        child.communicate(b"", timeout=_DEADLINE)


def _gpu() -> Iterator[Found]:
    """By absence only: nothing here calls into a driver that might be wedged."""
    devices = [path for path in Path("/dev").glob("nvidia[0-9]*")]
    library = ctypes.util.find_library("nvidia-ml")
    binding = importlib.util.find_spec("pynvml") is not None
    if not devices and library is None:
        yield Found(id="gpu", result="not_checked", fact="no NVIDIA device and no NVML here")
        return
    yield Found(id="gpu", result="pass" if devices else "warn", fact=f"{len(devices)} NVIDIA devices; NVML {'found' if library else 'not found'}",
                remedy=None if library and binding else "pip install nvidia-ml-py")  # fmt: skip


def _beside(name: str) -> str | None:
    path = Path(sys.executable).with_name(name)
    return str(path) if path.exists() else None
