"""`firsttoken attach` on a server in a container: from the machine, and from a container beside it that shares its processes (a pod)."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runs import Cli, until

SOURCE = Path(__file__).parents[2]
PODMAN = ("podman", "--cgroup-manager=cgroupfs", "--runtime=runc")
LIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024", "--env=PYTHONDONTWRITEBYTECODE=1", "--env=HOME=/tmp")
FOLDERS = ("bin", "etc", "dev", "lib", "lib64", "proc", "root", "run", "sbin", "sys", "tmp", "usr", "var", "work")
SHARED = dict.fromkeys(("/usr", "/lib", "/lib64", "/bin", "/etc/passwd", sys.base_prefix, sys.prefix, str(SOURCE)))
SECONDS = 60

pytestmark = [
    pytest.mark.skipif(os.getuid() != 0 or not shutil.which("podman") or not shutil.which("runc"), reason="needs root, podman and runc"),
]


def podman(*arguments: str) -> str:
    done = subprocess.run([*PODMAN, *arguments], capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode != 0:
        pytest.skip(f"podman cannot run containers here: {done.stderr}")
    return done.stdout


@pytest.fixture(scope="module")
def rootfs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    root = tmp_path_factory.mktemp("container") / "rootfs"
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    return (*(f"--volume={path}:{path}:ro" for path in SHARED if Path(path).exists()), "--rootfs", str(root))


@pytest.fixture(scope="module")
def container(rootfs: tuple[str, ...]) -> Iterator[str]:
    with _running(rootfs, "ready to serve") as name:
        yield name


@contextlib.contextmanager
def _running(rootfs: tuple[str, ...], said: str, *flags: str) -> Iterator[str]:
    server = (sys.executable, "-m", "firsttoken.rehearsal", "--port", "18125", *flags)
    name = podman("run", "--detach", "--network=none", *LIMITS, *rootfs, *server).strip()
    try:
        until(lambda: said in _log(name))
        yield name
    finally:
        subprocess.run([*PODMAN, "rm", "--force", "--time=0", name], capture_output=True, timeout=SECONDS, check=False)


def _log(name: str) -> str:
    done = subprocess.run([*PODMAN, "logs", name], capture_output=True, text=True, timeout=SECONDS, check=False)
    return done.stdout + done.stderr


def test_from_the_machine_log_and_network_are_the_containers(cli: Cli, container: str) -> None:
    pid = podman("inspect", container, "--format", "{{.State.Pid}}").strip()
    said = cli("attach", pid, "--json")
    assert (said.code, said.json["verdict"]) == (0, "ready"), said
    assert {"weights", "listening", "first_token"} <= {row["name"] for row in said.json["phases"]}, said
    refused = cli("stop")
    assert refused.code == 2
    assert f"podman stop {container[:12]}" in refused.err


def test_from_a_container_beside_it_the_only_server_is_found(cli: Cli, container: str, rootfs: tuple[str, ...]) -> None:
    beside = (f"--pid=container:{container}", f"--network=container:{container}", "--env=FIRSTTOKEN_HOME=/tmp/firsttoken")
    attach = (sys.executable, "-m", "firsttoken", "attach", "--json")
    said = cli.start(argv=(*PODMAN, "run", "--rm", *beside, *LIMITS, *rootfs, *attach)).end()
    assert (said.code, said.json["verdict"]) == (0, "ready"), said
    assert said.json["members"][0]["process"]["pid"] == 1


def test_a_hang_in_a_container_is_proven_from_the_machine(cli: Cli, rootfs: tuple[str, ...]) -> None:
    """Places, stacks and the wait-for graph, down to the rank; and no word of what could not be read."""
    with _running(rootfs, "Capture", "--ranks", "2", "--fault", "skip@graph_capture:rank=0") as name:
        pid = podman("inspect", name, "--format", "{{.State.Pid}}").strip()
        said = cli("attach", pid, "--json", "--max-wait", "30")
    assert (said.code, said.json["verdict"]) == (70, "hung"), said
    assert said.json["ranks"]["behind"] == [0]
    assert {group["where"] for group in said.json["ranks"]["groups"]} >= {"all_reduce"}, said
    assert {"from": {"rank": 1}, "to": {"rank": 0}}.items() <= next(row for row in said.json["waits"] if row["from"] == {"rank": 1}).items()
    assert not [text for text in said.json["not_checked"] if text.startswith(("stacks", "places"))]
