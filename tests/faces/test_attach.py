"""`firsttoken attach` as a user has it: on servers that it did not start, which never feel it."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cli_runs import FAKE, FIRSTTOKEN, RESULT, Cli, lives, until

from firsttoken.hosts.procfs import Procfs

REHEARSAL = (sys.executable, "-m", "firsttoken.rehearsal")


@dataclass
class Server:
    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def port(self) -> int:
        text = until(lambda: found if "http://127.0.0.1:" in (found := self.log.read_text(errors="replace")) else "")
        return int(text.split("http://127.0.0.1:", 1)[1].split()[0])

    def is_ready(self) -> "Server":
        until(lambda: "ready to serve" in self.log.read_text(errors="replace"))
        return self

    def answers(self) -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/models", timeout=10) as answer:
            return bool(answer.status == 200)


Start = Callable[..., Server]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Plainly started servers with their output in a file; ended afterwards."""
    started: list[Server] = []

    def make(*argv: str, log: Path | None = None, output: Path | None = None) -> Server:
        log = log or tmp_path_factory.mktemp("server") / "server.log"
        with (output or log).open("ab") as out:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        started.append(Server(process, log))
        return started[-1]

    yield make
    for server in started:
        for pid in [*Procfs().family([server.pid]), server.pid]:
            if server.process.poll() is None or pid != server.pid:
                os.kill(pid, signal.SIGKILL)
        server.process.wait(20)


@pytest.fixture(scope="module")
def serving(start: Start) -> Server:
    return start(*REHEARSAL, "--port", "0", "--ranks", "2").is_ready()


def attached(cli: Cli) -> str:
    (folder,) = (cli.home / "runs").iterdir()
    return folder.name


def test_a_pid_leads_to_a_proven_token_and_to_the_phases_before(cli: Cli, serving: Server) -> None:
    said = cli("attach", str(serving.pid), "--json")
    assert said.code == 0, said
    document = said.json
    assert document.keys() >= RESULT
    assert (document["verdict"], document["engine"]["name"], document["world_size"]) == ("ready", "rehearsal", 2)
    assert document["command"] == list(Procfs().cmdline(serving.pid))
    assert len(document["requests"]) == 2
    phases = {row["name"]: row for row in document["phases"]}
    assert 0 <= phases["weights"]["began_s"] < phases["listening"]["began_s"] < document["elapsed_s"]
    assert phases["weights"]["ranks_done"] == 2
    assert {member["rank"] for member in document["members"]} >= {0, 1}
    assert not any("firsttoken stop" in step for step in document["next"])
    assert serving.answers()


def test_what_follows_a_run_works_on_it_and_stop_refuses(cli: Cli, serving: Server) -> None:
    assert cli("attach", str(serving.pid)).code == 0
    run = attached(cli)
    assert not (cli.folder(run) / "keeper.json").exists()
    status = cli("status", run, "--json").json
    assert (status["verdict"], status["state"]) == ("ready", "ended")
    assert cli("wait", run).code == 0
    assert cli("replay", run, "--check").code == 0
    log = cli("logs", run).out
    assert "The rehearsal server is ready to serve." in log
    assert serving.log.read_text().startswith(log)
    assert run in cli("history").out
    said = cli("stop", run)
    assert said.code == 2, said
    assert f"stop it yourself with: kill {serving.pid}" in said.err
    cli("cleanup", run)
    cli("cleanup")
    assert serving.answers()
    assert cli("history", "prune", "--keep", "0").code == 0
    assert not cli.folder(run).exists()


@contextlib.contextmanager
def busy_with_others(server: Server) -> Iterator[None]:
    """Requests without a pause, two at a time."""
    body = json.dumps({"model": "rehearsal", "prompt": "on and on", "max_tokens": 200}).encode()
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            asked = urllib.request.Request(f"http://127.0.0.1:{server.port}/v1/completions", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(asked, timeout=60) as answer:
                answer.read()

    askers = [threading.Thread(target=ask) for _ in range(2)]
    for asker in askers:
        asker.start()
    try:
        yield
    finally:
        over.set()
        for asker in askers:
            asker.join(60)


def test_a_server_that_is_busy_with_others_is_ready_and_asked_for_nothing(cli: Cli, serving: Server, tmp_path: Path) -> None:
    """By what it tells of itself; and the ready file is there for whoever waits for it."""
    with busy_with_others(serving):
        said = cli("attach", str(serving.pid), "--json", "--ready-file", str(tmp_path / "ready"))
    assert (said.code, said.json["verdict"], said.json["requests"]) == (0, "ready", []), said
    assert "the requests of others" in said.json["reason"]
    assert json.loads((tmp_path / "ready").read_text())["kind"] == "ready_file"


def test_an_address_leads_to_the_process_that_listens_there(cli: Cli, serving: Server) -> None:
    document = cli("attach", f"http://127.0.0.1:{serving.port}", "--json").json
    assert document["verdict"] == "ready"
    assert document["endpoint"]["url"] == f"http://127.0.0.1:{serving.port}"
    assert serving.pid in {member["process"]["pid"] for member in document["members"]}


def test_a_ranks_pid_leads_to_its_server(cli: Cli, serving: Server) -> None:
    rank = next(pid for pid in Procfs().family([serving.pid]) if "rank_TP1" in " ".join(Procfs().cmdline(pid)))
    said = cli("attach", str(rank))
    assert said.code == 0, said
    assert f"process {rank} belongs to the server of pid {serving.pid}" in said.err


def test_several_servers_are_listed_and_none_is_taken(cli: Cli, serving: Server, start: Start) -> None:
    other = start(*REHEARSAL, "--port", "0").is_ready()
    said = cli("attach", "--json")
    assert said.code == 2, said
    assert {serving.pid, other.pid} <= {row["pid"] for row in said.json["servers"]}
    assert f"pid {other.pid}" in said.err
    assert not (cli.home / "runs").exists()


@pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare for a machine with one server on it"
)
def test_the_only_server_is_found(cli: Cli, tmp_path: Path) -> None:
    server = " ".join((*REHEARSAL, "--port", "0"))
    ready = f"until grep -q 'ready to serve' {tmp_path}/log; do sleep 0.1; done"
    script = f"ip link set lo up; {server} > {tmp_path}/log 2>&1 & {ready}; {' '.join(FIRSTTOKEN)} attach --json"
    said = cli.start(argv=("unshare", "--pid", "--net", "--fork", "--mount-proc", "--kill-child", "sh", "-c", script)).end()
    if said.code != 0 and "unshare" in said.err:
        pytest.skip(said.err)
    assert said.code == 0, said
    assert said.json["verdict"] == "ready"


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_a_server_in_a_network_of_its_own_is_asked_there(cli: Cli, start: Start) -> None:
    server = start("unshare", "--net", "sh", "-c", f"ip link set lo up; exec {' '.join(REHEARSAL)} --port 18123").is_ready()
    document = cli("attach", str(server.pid), "--json").json
    assert document["verdict"] == "ready", document
    assert document["endpoint"]["url"] == "http://127.0.0.1:18123"


def test_a_start_under_way_is_followed_to_its_first_token(cli: Cli, start: Start) -> None:
    server = start(*REHEARSAL, "--port", "0", "--pace", "weights=4")
    until(lambda: "Load weight begin" in server.log.read_text())
    said = cli("attach", str(server.pid), "--json")
    assert said.code == 0, said
    phases = {row["name"]: row for row in said.json["phases"]}
    assert phases["weights"]["seconds"] >= 3.5
    assert said.json["elapsed_s"] < 30


def test_a_hang_is_found_in_a_server_that_was_started_by_hand(cli: Cli, start: Start) -> None:
    server = start(*REHEARSAL, "--port", "0", "--ranks", "2", "--fault", "stop@weights:rank=1")
    until(lambda: "Load weight begin" in server.log.read_text())
    said = cli("attach", str(server.pid), "--json")
    assert (said.code, said.json["verdict"]) == (70, "hung"), said
    assert said.json["ranks"]["behind"] == [1]


def test_our_end_is_not_felt(cli: Cli, serving: Server) -> None:
    for number in (signal.SIGKILL, signal.SIGINT):
        call = cli.start("attach", str(serving.pid), "--follow")
        call.said("following on")
        call.process.send_signal(number)
        said = call.end()
        assert said.code in (-signal.SIGKILL, 130), said
        assert serving.answers()
    assert "let go" in said.err


def test_following_on_ends_with_the_server_and_tells_how(cli: Cli, start: Start) -> None:
    server = start(*FAKE)
    call = cli.start("attach", str(server.pid), "--follow", "--events")
    call.said("following on")
    server.process.kill()
    server.process.wait(20)
    said = call.end()
    events = [json.loads(line) for line in said.out.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert any(event["kind"] == "emptied" for event in events)
    if any(event["kind"] == "exited" and event.get("root") for event in events):
        assert said.code == 69, said
        assert "SIGKILL" in said.err


def test_without_a_log_the_token_is_proven_and_what_is_missing_is_told(cli: Cli, start: Start, serving: Server) -> None:
    port = serving.port + 1 if serving.port < 60000 else serving.port - 1
    server = start(*FAKE, "--port", str(port), output=Path(os.devnull))
    document = cli("attach", str(server.pid), "--json").json
    assert document["verdict"] == "ready"
    assert any("/dev/null" in text and "--log FILE" in text for text in document["not_checked"])


def test_earlier_starts_in_the_log_are_not_this_ones(cli: Cli, start: Start, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    failed = start(*REHEARSAL, "--port", "0", "--fault", "crash@weights", log=log)
    failed.process.wait(60)
    ended = time.monotonic()
    until(lambda: time.monotonic() > ended + 3)  # stamps within two seconds of a start count as that start's
    server = start(*REHEARSAL, "--port", "0", log=log).is_ready()
    said = cli("attach", str(server.pid), "--json")
    assert (said.code, said.json["verdict"]) == (0, "ready"), said


SENTENCES = {
    ("4194304",): "there is no process 4194304",
    ("vllm",): "neither a pid nor an address",
    ("127.0.0.1:1",): "nothing listens on port 1",
    ("ftp://a",): "is not an address of a server",
    ("1", "--json", "--events"): "choose one of them",
    ("1", "--api-key-env", "NO_SUCH_KEY"): "that variable is not set",
    ("1", "--log", "/nowhere/server.log"): "--log /nowhere/server.log: No such file or directory",
}


def test_what_cannot_be_done_is_a_sentence(cli: Cli) -> None:
    calls = [(cli.start("attach", *arguments), words) for arguments, words in SENTENCES.items()]
    for call, words in calls:
        said = call.end()
        assert said.code == 2, said
        assert words in said.err
    assert not (cli.home / "runs").exists()


def test_without_a_probe_ready_stays_a_claim(cli: Cli, serving: Server) -> None:
    said = cli("attach", str(serving.pid), "--no-probe", "--json")
    assert (said.code, said.json["verdict"], said.json["claims_ready"]) == (76, "unknown", True), said
    assert said.json["requests"] == []


def test_time_that_is_up_gives_the_state_so_far(cli: Cli, start: Start) -> None:
    server = start(*REHEARSAL, "--port", "0", "--pace", "weights=60")
    until(lambda: "Load weight begin" in server.log.read_text())
    said = cli("attach", str(server.pid), "--max-wait", "2", "--json")
    assert (said.code, said.json["phase"]) == (124, "weights"), said
    status: dict[str, Any] = cli("status", attached(cli), "--json").json
    assert status["verdict"] == "unknown"
    assert f"firsttoken attach {server.pid}" in status["next"]
    assert lives(server.pid)


AS_NOBODY = """
import asyncio, os, sys
import firsttoken.faces.cli.attach, firsttoken.wiring
from firsttoken.faces.cli.main import main
from firsttoken.knowledge.load import generic, profiles
from firsttoken.observe.http_target import target_of_url
from firsttoken.observe.http_wire import exchange
profiles(), generic()
asyncio.run(exchange(target_of_url("http://127.0.0.1:18124"), "/v1/models", deadline=10))
os.setgroups([]); os.setgid(65534); os.setuid(65534)
main(sys.argv[1:])
"""
"""Everything is read before root is given up: what we are made of may lie where others cannot read it."""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become somebody else")
def test_of_another_users_server_what_can_be_seen_is_seen(cli: Cli, start: Start) -> None:
    serving = start(*REHEARSAL, "--port", "18124").is_ready()
    with tempfile.TemporaryDirectory() as home:
        os.chmod(home, 0o777)
        nobody = (sys.executable, "-c", AS_NOBODY)
        said = cli.start("attach", str(serving.pid), "--json", argv=nobody, cwd="/", env={"FIRSTTOKEN_HOME": f"{home}/firsttoken"}).end()
    assert (said.code, said.json["verdict"]) == (0, "ready"), said
    told = " ".join(said.json["not_checked"])
    assert "another user's" in told
    assert "--log FILE" in told
    assert serving.pid in {member["process"]["pid"] for member in said.json["members"]}
