"""`firsttoken attach` on a hung server of which less and less can be seen: it says what was missing, and calls hung only what it saw.

All of it looks at two servers at the same time: one that belongs to us, and one of another user.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_runs import Cli, Said, until

from firsttoken.hosts.procfs import Procfs
from firsttoken.observe.stacks import find_py_spy

OTHER = 65534
"""a user who is nobody's here"""
LOOKS = ("--json", "--no-probe", "--stall-patience", "13", "--max-waiting", "13", "--max-wait", "100")
NEVER = {"hung", "failed", "crashed", "unserving"}
NO_PTRACE = ("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-all")


def user(uid: int) -> tuple[str, ...]:
    return ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")


def _pythons() -> Iterator[str]:
    """Of our version, ours first: where it is in somebody's home, others may not run it."""
    yield os.path.realpath(sys.executable)
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    yield from (path for folder in ("/usr/bin", "/usr/local/bin") if (path := shutil.which(name, path=folder)))


def _for_all(path: str) -> bool:
    try:
        return all(os.stat(part).st_mode & 0o005 == 0o005 for part in (Path(path), *Path(path).parents))
    except OSError:
        return False


PYTHON = next((path for path in _pythons() if _for_all(path)), None)
PACKAGES = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path and not path.startswith(sys.base_prefix) and _for_all(path))}
"""for a Python that is not the environment's own"""
ANYBODYS = (PYTHON or sys.executable, "-m", "firsttoken")


pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be several users"),
    pytest.mark.skipif(not shutil.which("setpriv") or not shutil.which("unshare"), reason="needs setpriv and unshare (util-linux)"),
    pytest.mark.skipif(PYTHON is None or "site-packages" not in PACKAGES["PYTHONPATH"], reason="other users cannot run this Python"),
    pytest.mark.skipif(find_py_spy() is None, reason="needs py-spy, to see what it is like without"),
]


def in_mounts(script: str, *argv: str) -> tuple[str, ...]:
    """In mounts of its own, which `script` changes first."""
    return ("unshare", "--mount", "sh", "-c", f'{script} && exec "$@"', "sh", *argv)


def hidden_proc(*argv: str) -> tuple[str, ...]:
    return in_mounts("mount -t proc -o hidepid=2 proc /proc", *argv)


def masked(pid: int, *names: str) -> str:
    """A script that makes files of this process's folders unreadable, as a container's profile does."""
    folders = [f"/proc/{member}" for member in (pid, *Procfs().family([pid]))]
    folders += [f"{folder}/task/{tid}" for folder in folders for tid in os.listdir(f"{folder}/task")]
    paths = [f"{folder}/{name}" for folder in folders for name in names]
    return " && ".join(f"mount --bind /dev/null {path}" for path in paths if Path(path).exists())


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    """A folder in which every user may write."""
    folder = Path(tempfile.mkdtemp(prefix="firsttoken-degraded-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


Start = Callable[..., int]


@pytest.fixture(scope="module")
def start(scratch: Path) -> Iterator[Start]:
    """The pid of a server in which one rank has left out a collective."""
    started: list[subprocess.Popen[bytes]] = []

    def make(*before: str) -> int:
        number = len(started)
        env = {
            **os.environ,
            **PACKAGES,
            "XDG_CACHE_HOME": str(scratch / f"cache{number}"),
            "REHEARSE_FAULT_LOG": str(scratch / f"fault{number}"),
        }
        argv = (
            *before,
            PYTHON or sys.executable,
            "-m",
            "firsttoken.rehearsal",
            "--ranks",
            "2",
            "--port",
            "0",
            "--fault",
            "skip@graph_capture",
        )
        log = scratch / f"log{number}"
        with log.open("wb") as out:
            server = subprocess.Popen(argv, env=env, cwd=scratch, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        started.append(server)
        (scratch / f"cache{number}").mkdir(mode=0o777)
        (scratch / f"cache{number}").chmod(0o777)
        until(lambda: (scratch / f"fault{number}").exists() or server.poll() is not None)
        if server.poll() is not None:
            pytest.fail(f"the server ended: {log.read_text(errors='replace')[-300:]}")
        return server.pid

    yield make
    for server in started:
        for pid in (*Procfs().family([server.pid]), server.pid):
            if server.poll() is None:
                os.kill(pid, signal.SIGKILL)
        server.wait(20)


@pytest.fixture(scope="module")
def said(scratch: Path, start: Start) -> Iterator[dict[str, Said]]:
    """What each observer said, by its name; all look at the same time."""
    ours, theirs = start(), start(*user(OTHER))
    home = scratch / "homes"
    home.mkdir(mode=0o777)
    home.chmod(0o777)
    cli = Cli(home / "root")
    calls = {}

    def look(name: str, pid: int, argv: tuple[str, ...] = ANYBODYS, **env: str) -> None:
        """Each with a home of its own, which its user makes."""
        path = os.pathsep.join([os.path.dirname(find_py_spy() or ""), os.environ["PATH"]])  # PYTHON may be another, beside which is none
        env = {"FIRSTTOKEN_HOME": str(home / name), **PACKAGES, "PATH": path, **env}
        calls[name] = cli.start("attach", str(pid), *LOOKS, argv=argv, env=env)

    look("all is seen", theirs)
    look("no ptrace", ours, (*NO_PTRACE, *ANYBODYS))
    look("another user", ours, (*user(OTHER), *ANYBODYS))
    look("no py-spy", ours, PATH="/usr/bin:/bin")
    look("hidepid", ours, hidden_proc(*user(OTHER), *ANYBODYS))
    look("no places", ours, in_mounts(masked(ours, "syscall", "wchan", "io"), *NO_PTRACE, *ANYBODYS))
    try:
        yield {name: call.end(150) for name, call in calls.items()}
    finally:
        cli.end_all()
        for _ in range(50):
            if all(call.process.poll() is not None for call in calls.values()):
                break
            time.sleep(0.1)


def verdict(one: Said) -> str:
    return str(one.json["verdict"])


def missing(one: Said) -> str:
    return "\n".join([*one.json["not_checked"], one.json["reason"]])


def test_another_users_server_is_proven_hung_by_who_may_look(said: dict[str, Said]) -> None:
    """So the others had the time to see it, too."""
    one = said["all is seen"]
    assert (one.code, verdict(one)) == (70, "hung"), one
    assert one.json["ranks"]["behind"] == [1]
    assert {row["rank"] for row in one.json["members"]} >= {0, 1}
    assert one.json["waits"]


@pytest.mark.parametrize("name", ["no ptrace", "another user", "no places"])
def test_without_stacks_nothing_is_called_hung_and_it_is_said_why(said: dict[str, Said], name: str) -> None:
    one = said[name]
    assert verdict(one) not in NEVER, one
    assert "traced" in missing(one) or "may not be read" in missing(one), one


def test_without_py_spy_it_is_said_how_to_get_it(said: dict[str, Said]) -> None:
    one = said["no py-spy"]
    assert verdict(one) not in NEVER, one
    assert "py-spy is not installed" in missing(one), one


def test_a_server_that_is_hidden_is_a_sentence_and_no_verdict(said: dict[str, Said]) -> None:
    one = said["hidepid"]
    assert one.code == 2, one
    assert "hidepid" in one.err, one


@pytest.mark.parametrize(
    "before",
    [(), NO_PTRACE, user(OTHER), hidden_proc(*user(OTHER)), in_mounts("mount --bind /dev/null /proc/stat", *NO_PTRACE)],
    ids=["root", "no ptrace", "another user", "hidepid", "masked"],
)
def test_the_doctor_says_what_is_missing(before: tuple[str, ...], scratch: Path) -> None:
    home = Path(tempfile.mkdtemp(dir=scratch))
    home.chmod(0o777)
    done = subprocess.run(
        [*before, *ANYBODYS, "doctor", "--json"],
        env={**os.environ, **PACKAGES, "FIRSTTOKEN_HOME": str(home / "new")},
        capture_output=True,
        timeout=60,
    )
    assert b"Traceback" not in done.stderr, done.stderr
    checks = {row["id"]: row for row in json.loads(done.stdout)["checks"]}
    assert checks["python"]["result"] == "pass"
    if "hidepid" in str(before):
        assert checks["proc"]["result"] == "warn"
    assert ("no CAP_SYS_PTRACE" in checks["ptrace"]["fact"]) == (before != ()), checks["ptrace"]
