"""What this machine lets an observer see and do. Every line comes from an attempt, not from a version number."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from firsttoken.history.runs import home
from firsttoken.hosts.procfs import Procfs
from firsttoken.launch import cgroup
from firsttoken.model.events import Body, Gpus, Missed
from firsttoken.observe.gpu import GpuWatcher
from firsttoken.observe.gpu import present as gpus_present

_DEADLINE = 10.0
_ROOM = 1 << 30
"""Bytes: a handful of runs, each of which keeps at most 128 MiB of log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`result`: pass, warn (works with less), fail (firsttoken cannot do its job), not_checked."""

    id: str
    result: str
    fact: str
    remedy: str | None = None


def examine(procfs: Procfs | None = None) -> list[Found]:
    """All checks, a few hundredths of a second and one py-spy dump of our own child."""
    procfs = procfs or Procfs()
    found = [_python(), _kernel(), _runs_folder(), _proc(procfs)]
    if found[-1].result != "fail":
        found += [_proc_io(procfs), _proc_children(procfs)]
    return [*found, _cgroup(), _ptrace(procfs), _py_spy(), *_gpu()]


def _python() -> Found:
    return Found(id="python", result="pass", fact=f"{sys.version.split()[0]} at {sys.executable}")


def _kernel() -> Found:
    kernel = os.uname()
    fact = f"{kernel.sysname} {kernel.release}"
    if kernel.sysname == "Linux":
        return Found(id="kernel", result="pass", fact=fact)
    return Found(id="kernel", result="fail", fact=fact, remedy="launching and following need Linux; logs can be read anywhere")


def _runs_folder() -> Found:
    folder = home()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        fact = f"{folder}: {error.strerror or error}"
        return Found(id="runs-folder", result="fail", fact=fact, remedy="set FIRSTTOKEN_HOME to a folder of yours")
    fact = f"{folder}, {free / 1e9:.1f} GB free"
    if free > _ROOM:
        return Found(id="runs-folder", result="pass", fact=fact)
    remedy = "a run keeps up to 134 MB of log; `firsttoken history prune --keep 10` makes room"
    return Found(id="runs-folder", result="warn", fact=fact, remedy=remedy)


def _proc(procfs: Procfs) -> Found:
    if procfs.stat(os.getpid()) is None:
        return Found(id="proc", result="fail", fact="/proc is not there or not readable", remedy="mount it: mount -t proc proc /proc")
    fact = f"{len(list(procfs.pids()))} processes visible"
    if procfs.stat(1) is not None:
        return Found(id="proc", result="pass", fact=fact)
    remedy = "mounted with hidepid: lock holders among other users' processes cannot be named"
    return Found(id="proc", result="warn", fact=f"{fact}, others' are hidden", remedy=remedy)


def _proc_io(procfs: Procfs) -> Found:
    if procfs.read(f"{os.getpid()}/io"):
        return Found(id="proc-io", result="pass", fact="byte counters are readable")
    remedy = "progress is judged by log, faults and children alone"
    return Found(id="proc-io", result="warn", fact="/proc/PID/io is not readable", remedy=remedy)


def _proc_children(procfs: Procfs) -> Found:
    if procfs.children(os.getpid()) is not None:
        return Found(id="proc-children", result="pass", fact="the kernel lists children")
    return Found(id="proc-children", result="warn", fact="no /proc/PID/task/TID/children: all processes are scanned")


def _cgroup() -> Found:
    made = cgroup.create(f"firsttoken-doctor-{os.getpid()}")
    if made is not None:
        made.remove()
        return Found(id="cgroup", result="pass", fact="a run gets a cgroup of its own")
    remedy = "after a SIGKILL of the keeper, leftovers are found by session and mark only"
    return Found(id="cgroup", result="warn", fact="no cgroup can be made here", remedy=remedy)


_YAMA = {b"": "no Yama", b"0": "Yama 0: same user", b"1": "Yama 1: own descendants", b"2": "Yama 2: root only", b"3": "Yama 3: nobody"}


_CAP_SYS_PTRACE = 1 << 19


def _ptrace(procfs: Procfs) -> Found:
    scope = (procfs.read("sys/kernel/yama/ptrace_scope") or b"").strip()
    fact = _YAMA.get(scope, f"Yama {scope.decode('ascii', 'replace')}")
    capable = _capabilities(procfs) & _CAP_SYS_PTRACE
    if scope == b"3" or (scope in (b"1", b"2") and not capable):
        remedy = "stacks of the server cannot be read from outside: sysctl kernel.yama.ptrace_scope=0, or run as root"
        return Found(id="ptrace", result="warn", fact=fact, remedy=remedy)
    if capable:
        return Found(id="ptrace", result="pass", fact=f"{fact}; CAP_SYS_PTRACE: every user's processes")
    fact += "; no CAP_SYS_PTRACE: only processes of this user that have no more capabilities than we have"
    if os.geteuid() != 0:
        return Found(id="ptrace", result="pass", fact=fact)
    return Found(id="ptrace", result="warn", fact=fact, remedy="in a container: --cap-add SYS_PTRACE")


def _capabilities(procfs: Procfs) -> int:
    """The effective ones of this process; 0 where they cannot be read."""
    for line in (procfs.read("self/status", 1 << 14) or b"").splitlines():
        if line.startswith(b"CapEff:"):
            try:
                return int(line.split()[1], 16)
            except (IndexError, ValueError):
                return 0
    return 0


def _py_spy() -> Found:
    """Reads the stacks of a child of ours: the least that any server allows."""
    program = shutil.which("py-spy") or _beside("py-spy")
    if program is None:
        return Found(id="py-spy", result="warn", fact="not found", remedy="pip install py-spy, for stacks of Python processes")
    idle = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(idle, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            done = subprocess.run([program, "dump", "--nonblocking", "--pid", str(child.pid)], capture_output=True, timeout=_DEADLINE)
        except (OSError, subprocess.TimeoutExpired) as error:
            return Found(id="py-spy", result="warn", fact=f"{program}: {error}")
        finally:
            child.kill()
    if done.returncode == 0:
        return Found(id="py-spy", result="pass", fact=f"{program} reads stacks")
    said = done.stderr.decode("utf8", "replace").strip().splitlines()
    fact = f"{program}: {said[-1] if said else 'failed'}"
    return Found(id="py-spy", result="warn", fact=fact, remedy="in a container: --cap-add SYS_PTRACE")


def _gpu() -> Iterator[Found]:
    """Asked as a run asks: from a process that may hang in a wedged driver."""
    if not gpus_present():
        yield Found(id="gpu", result="not_checked", fact="no NVIDIA device here")
        return
    told: Body | None = None
    with closing(GpuWatcher()) as watcher:
        until = time.monotonic() + _DEADLINE
        while told is None and time.monotonic() < until:
            told = next(iter(watcher.look(0.0)), None)
            time.sleep(0.02)
    if not isinstance(told, Gpus) or not told.samples:
        fact = told.reason if isinstance(told, Missed) else f"the driver gave no answer for {_DEADLINE:.0f} s"
        yield Found(id="gpu", result="warn", fact=fact, remedy="look at nvidia-smi; in a container: --gpus, with the `utility` capability")
        return
    names = ", ".join(sorted({sample.name for sample in told.samples}))
    fact = f"{len(told.samples)} GPUs ({names}) through {told.source}" + (f", driver {told.driver}" if told.driver else "")
    lacking = [
        name
        for name, there in (
            ("memory traffic", any(s.dram is not None or s.memory_busy is not None for s in told.samples)),
            ("power", any(s.power is not None for s in told.samples)),
            ("processes", any(s.processes is not None for s in told.samples)),
        )
        if not there
    ]
    remedy = f"not told here: {', '.join(lacking)}; a spinning GPU cannot be told from a busy one" if lacking else None
    yield Found(id="gpu", result="warn" if lacking else "pass", fact=fact, remedy=remedy)


def _beside(name: str) -> str | None:
    path = Path(sys.executable).with_name(name)
    return str(path) if path.exists() else None
