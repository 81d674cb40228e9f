"""Network storage that is dead, dies or has lost its server, under every place that a command goes to: told by its name within seconds.

The mounts are real (`fuse_mount.py`): a thread or process that asks a dead one cannot be ended. So each test is also about us: no command
may wait for one, and none that is left may hold our output or our run.
"""

import os
import shlex
import shutil
import socket
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cli_runs import FAKE, FUSE, Call, Cli, Said, can_mount, until
from model_folders import LLAMA, write_gguf, write_model

from firsttoken.hosts.procfs import Procfs

pytestmark = pytest.mark.skipif(not can_mount(), reason="a mount needs root, /dev/fuse and a namespace of its own")
BOUND = 60.0
"""seconds; most commands take six, of which five go to one question that is not answered; a program is given thirty"""
NEVER = "150"


@dataclass
class Nas:
    """`folder` is served at `point`. `call` runs a command of ours beside it."""

    cli: Cli
    folder: Path
    point: Path
    mark: str = field(default_factory=lambda: f"FT_TEST={uuid.uuid4()}")

    @property
    def named(self) -> str:
        return f"{self.point} (fuse.sshfs from nas:/models)"

    def call(self, mode: str, *arguments: str, through: tuple[str, ...] = (), **env: str) -> Call:
        """`through`: what starts our command in its turn."""
        name, _, value = self.mark.partition("=")
        ours = (sys.executable, "-P", "-m", "firsttoken")  # as its own program: it does not import from the working folder
        argv = (*FUSE, "--mode", mode, "--seconds", NEVER, str(self.folder), str(self.point), *through, *ours)
        return self.cli.start(*arguments, argv=argv, env={name: value, **env})

    def left(self) -> list[int]:
        """Pids of living processes that one of our calls has started, directly or not."""
        procfs = Procfs()
        return [
            pid
            for pid in procfs.pids()
            if (stat := procfs.stat(pid)) is not None and not stat.dead and procfs.environ_has(pid, self.mark.encode())
        ]


@pytest.fixture
def nas(cli: Cli, tmp_path: Path) -> Iterator[Nas]:
    made = Nas(cli, tmp_path / "nas", tmp_path / "mnt")
    made.folder.mkdir()
    made.point.mkdir()
    yield made
    until(lambda: not made.left())


def ended(call: Call, began: float) -> Said:
    said = call.end(2 * BOUND)
    assert said.code != 124, "it waits for the mount"
    assert time.monotonic() - began < BOUND
    return said


def never_ready(said: Said) -> list[dict[str, Any]]:
    return [one for one in said.json["checks"] if one["id"] == "file-never-ready"]


def test_check_names_the_mount_under_each_place_of_the_command(nas: Nas, tmp_path: Path) -> None:
    local = str(write_model(tmp_path / "local"))
    at = nas.point
    (nas.folder / "work").mkdir()
    in_work = ("sh", "-c", f'cd {at}/work && kill -USR1 $PPID && exec "$@"', "sh")
    program = ("env", "vllm")
    places: dict[str, tuple[str, tuple[str, ...], dict[str, str], tuple[str, ...]]] = {
        f"the model ({at}/m)": ("fail", (*program, "serve", f"{at}/m"), {}, ()),
        f"the model ({at}/m.gguf)": ("fail", ("llama-server", "-m", f"{at}/m.gguf"), {}, ()),
        f"the model ({at}/hf/hub/models--org--m)": ("fail", (*program, "serve", "org/m"), {"HF_HOME": f"{at}/hf"}, ()),
        f"the engine's own cache ({at}/home/.cache/vllm), ": ("fail", (*program, "serve", local), {"HOME": f"{at}/home"}, ()),
        f"the folder for temporary files ({at}/tmp)": ("fail", (*program, "serve", local), {"TMPDIR": f"{at}/tmp"}, ()),
        f"the program ({at}/venv/bin/vllm)": ("fail", (f"{at}/venv/bin/vllm", "serve", local), {}, ()),
        "a file that the command names": ("fail", (*program, "serve", local, "--config", f"{at}/c.yaml"), {}, ()),
        f"the working folder ({at}/work)": ("warn", (*program, "serve", local), {}, in_work),
        f"a folder of PATH ({at}/bin)": ("warn", (*program, "serve", local), {"PATH": f"{at}/bin:{os.environ['PATH']}"}, ()),
    }
    began = time.monotonic()
    calls = {
        what: nas.call("dies" if through else "dead", "check", "--quick", "--json", "--", *command, through=through, **env)
        for what, (_, command, env, through) in places.items()
    }
    for what, call in calls.items():
        said = ended(call, began)
        (told,) = never_ready(said)
        assert told["result"] == places[what][0], said
        assert told["fact"].startswith(what), told
        assert told["fact"].endswith(f"on {nas.named}, which gave no answer within 5 s"), told
        assert told["remedy"].startswith("mount it again"), told
        assert said.code in ({78} if told["result"] == "fail" else {1, 78})
        assert not [one for one in said.json["checks"] if one["id"] == "not-answered"], "what does not lie there is checked"


def test_a_mount_that_dies_under_the_check_is_named_too(nas: Nas) -> None:
    write_model(nas.folder / "m")
    began = time.monotonic()
    for call in [nas.call(f"dies:{count}", "check", "--json", "--", "vllm", "serve", f"{nas.point}/m") for count in (6, 9, 12)]:
        said = ended(call, began)
        assert said.code == 78
        assert nas.named in never_ready(said)[0]["fact"]


def test_a_slow_mount_is_waited_for(nas: Nas) -> None:
    write_model(nas.folder / "m")
    began = time.monotonic()
    said = ended(nas.call("slow:400", "check", "--json", "--", "vllm", "serve", f"{nas.point}/m"), began)
    assert not never_ready(said)
    assert [one["result"] for one in said.json["checks"] if one["id"] == "weights-corrupt"] == ["pass"]
    told = ended(nas.call("slow:400", "weights", f"{nas.point}/m"), began)
    assert told.code == 0
    assert f"storage  {nas.named}" in told.out


def test_a_mount_without_a_server_is_told_by_its_error(nas: Nas) -> None:
    began = time.monotonic()
    check = nas.call("gone", "check", "--quick", "--json", "--", "vllm", "serve", f"{nas.point}/m")
    weights = nas.call("gone", "weights", f"{nas.point}/m")
    (told,) = never_ready(ended(check, began))
    assert told["fact"].endswith(f"{nas.named}, which says: Transport endpoint is not connected")
    said = ended(weights, began)
    assert said.code == 1
    assert f"{nas.named}, which says: Transport endpoint is not connected. Mount it again" in said.err


@pytest.mark.parametrize("more", [(), ("--prefetch",)])
def test_weights_names_it(nas: Nas, more: tuple[str, ...]) -> None:
    write_gguf(nas.folder / "m.gguf", {"general.architecture": "llama"}, {}, 0)
    began = time.monotonic()
    calls = [
        nas.call("dead", "weights", *more, f"{nas.point}/m.gguf"),
        nas.call("dead", "weights", *more, "--", "vllm", "serve", "org/m", HF_HOME=f"{nas.point}/hf"),
        nas.call("dies:8", "weights", *more, f"{nas.point}/m.gguf"),
    ]
    for call in calls:
        said = ended(call, began)
        assert said.code == 1, said
        assert nas.named in said.err
        assert "ount it again" in said.err


def test_a_prefetch_breaks_off_when_the_mount_dies_under_it(nas: Nas) -> None:
    write_model(nas.folder / "m", {**LLAMA, "hidden_size": 2048, "intermediate_size": 8192}, shards=4)
    known = nas.call("answers", "weights", f"{nas.point}/m").end()  # its rate is remembered: the next one does not measure
    assert "measured" in known.out, known
    began = time.monotonic()
    said = ended(nas.call("dies:400", "weights", "--prefetch", f"{nas.point}/m"), began)
    assert said.code == 1
    assert f"the prefetch broke off: {nas.named} gave nothing for 15 s" in said.err


def test_a_dead_home_is_refused_with_the_way_around_it(nas: Nas, tmp_path: Path) -> None:
    model = str(write_model(tmp_path / "local"))
    home = f"{nas.point}/home"
    began = time.monotonic()
    commands = (("check", "--", "vllm", "serve", model), ("weights", model), ("run", "--", *FAKE), ("status",))
    for call in [nas.call("dead", *command, FIRSTTOKEN_HOME=home) for command in commands]:
        said = ended(call, began)
        assert said.code == 73
        assert said.err.startswith(f"firsttoken: the folder of runs ({home}) lies on {nas.named}, which gave no answer within 5 s. ")
        assert "Set FIRSTTOKEN_HOME" in said.err


def test_nobody_who_is_left_holds_our_output(nas: Nas) -> None:
    """As `firsttoken check … | tee`: it ends when the last one has closed its end."""
    piped = ("bash", "-o", "pipefail", "-c", '"$@" 2>&1 | cat', "sh")
    began = time.monotonic()
    write_model(nas.folder / "m")
    calls = {
        78: nas.call("dies:9", "check", "--", "vllm", "serve", f"{nas.point}/m", through=piped),
        1: nas.call("dead", "weights", f"{nas.point}/m", through=piped),
    }
    for code, call in calls.items():
        said = ended(call, began)
        assert said.code == code
        assert nas.point.name in said.out


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def server(tmp_path: Path, port: str, first: str = "true") -> str:
    """A program that is told as vLLM, and what it does before it serves."""
    script = tmp_path / "vllm"
    script.write_text(f"#!/bin/sh\n{first}\nexec {shlex.join(FAKE)} --port {port}\n")
    script.chmod(0o755)
    return str(script)


def test_a_server_is_launched_and_followed_whatever_our_looks_meet(nas: Nas, tmp_path: Path) -> None:
    port = free_port()
    command = (server(tmp_path, port), "serve", f"{nas.point}/m", "--port", port)
    env = {"HOME": f"{nas.point}/home", "HF_HOME": f"{nas.point}/hf"}
    began = time.monotonic()
    call = nas.call("dead", "run", "--prefetch", "--", *command, **env)
    run = call.run
    (told,) = until(lambda: nas.cli.events(run, "checked"))
    fact = next(one["fact"] for one in told["checks"] if (one["id"], one["result"]) == ("file-never-ready", "fail"))
    assert fact.endswith(f"lie on {nas.named}, which gave no answer within 5 s")
    call.said(f"check fail file-never-ready: the model ({nas.point}/m), ")
    until(lambda: nas.cli("status", run, "--json").json["verdict"] == "ready")
    until(lambda: [one for one in nas.cli.events(run, "missed") if one["request"] == "prefetch" and nas.named in one["reason"]])
    assert nas.cli("stop", run).code == 0
    assert ended(call, began).code == 0


def test_a_program_that_cannot_be_read_is_not_waited_for(nas: Nas, tmp_path: Path) -> None:
    (nas.folder / "bin").mkdir()
    shutil.copy(server(tmp_path, free_port()), nas.folder / "bin/vllm")
    began = time.monotonic()
    said = ended(nas.call("dead", "run", "--", f"{nas.point}/bin/vllm", "serve", "m"), began)
    assert said.code == 126
    assert f"{nas.point}/bin/vllm could not be started: it lies on {nas.named}, which gave no answer within 5 s" in said.err


def test_a_server_that_no_signal_ends_is_left_to_its_keeper(nas: Nas, tmp_path: Path) -> None:
    """It waits in the kernel itself, in a call that needs no open file. Our own looks, which wait there too, are not taken for it."""
    port = free_port()
    asks = shlex.join([sys.executable, "-c", f"import os; os.readlink({str(nas.point / 'm')!r})"])
    command = (server(tmp_path, port, asks), "serve", f"{nas.point}/m", "--port", port)
    call = nas.call("dead", "run", "--until", "ready", "--max-wait", "9", "--", *command)
    run = call.run
    call.said(f"waits for the disk or network file system of {nas.point}/m (fuse.sshfs)")
    call.said("stopped (run --until ready)")
    stopping = time.monotonic()
    nas.cli("stop", "--force", run, "--max-wait", "1")
    said = call.end(2 * BOUND)
    assert said.code == 124, "time was up, and nothing decided"
    assert time.monotonic() - stopping < BOUND + 10
    assert "SIGKILL was sent 5 s ago and has not ended" in said.err
    (missed,) = [one["reason"] for one in nas.cli.events(run, "missed") if one["request"] == "stop"]
    assert missed.count("state D)") == 1, "only the server's own"
