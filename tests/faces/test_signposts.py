"""Ready file, service manager, termination log."""

import json
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click
import pytest
from cli_runs import FAKE, Cli, Ready, until

from firsttoken.faces.cli.signposts import MOST_BYTES, Signposts, take_away
from firsttoken.model.result import EndpointRow, ExitRow, Result
from firsttoken.model.words import Verdict

READY = Result(run="r1", verdict=Verdict.READY, reason="a real token came", endpoint=EndpointRow(url="http://127.0.0.1:8000", model="m"))


@pytest.fixture(params=["file", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """A service manager's socket and its address as it stands in NOTIFY_SOCKET."""
    address = str(tmp_path / "notify") if request.param == "file" else f"@firsttoken-test-{secrets.token_hex(8)}"
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as channel:
        channel.bind(address.replace("@", "\0", 1) if request.param == "abstract" else address)
        channel.setblocking(False)
        yield address, channel


def told(channel: socket.socket) -> list[str]:
    found = []
    while True:
        try:
            found.append(channel.recv(1 << 16).decode())
        except BlockingIOError:
            return found


def test_a_service_manager_is_told_of_changes_readiness_and_the_end(cli: Cli, manager: tuple[str, socket.socket], tmp_path: Path) -> None:
    address, channel = manager
    ready_file, log = tmp_path / "ready.json", tmp_path / "termination-log"
    call = cli.start("run", "--ready-file", str(ready_file), "--termination-log", str(log), "--", *FAKE, env={"NOTIFY_SOCKET": address})
    known = json.loads(until(lambda: ready_file.read_text() if ready_file.exists() else None))
    assert known["run"] == call.run
    assert known["url"].startswith("http://127.0.0.1:")
    assert known["model"] == "fake"
    environment = Path(f"/proc/{cli.keeper(call.run)['server']['pid']}/environ").read_bytes()
    assert f"NOTIFY_SOCKET={address}".encode() in environment.split(b"\0")
    call.process.terminate()
    assert call.end().code == 0
    messages = told(channel)
    assert messages[0].startswith("STATUS=starting: process_start")
    assert [message for message in messages if message.startswith("READY=1\nSTATUS=ready: a real token came")]
    assert messages.index("STOPPING=1") > max(n for n, message in enumerate(messages) if message.startswith("READY=1"))
    assert not ready_file.exists()
    assert log.read_text().startswith("ready: served its first token at ")


def test_until_ready_and_detached_leave_the_ready_file(cli: Cli, tmp_path: Path) -> None:
    ways = (("--until", "ready"), ("--detach",))
    calls = [cli.start("run", *how, "--ready-file", str(tmp_path / f"{how[0]}.json"), "--", *FAKE) for how in ways]
    for how, call in zip(ways, calls, strict=True):
        assert call.end().code == 0
        assert json.loads((tmp_path / f"{how[0]}.json").read_text())["kind"] == "ready_file"


def test_wait_writes_the_ready_file_of_a_server_that_is_ready(ready: Ready, tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"
    ready_file.write_text('{"kind": "ready_file", "run": "an older one"}')
    assert ready.cli("wait", ready.run, "--ready-file", str(ready_file)).code == 0
    assert json.loads(ready_file.read_text())["run"] == ready.run


def test_a_start_that_fails_leaves_no_ready_file_and_says_why_in_the_termination_log(cli: Cli, tmp_path: Path) -> None:
    ready_file, log = tmp_path / "ready.json", tmp_path / "log"
    ready_file.write_text('{"kind": "ready_file", "run": "an older one"}')
    said = cli("run", "--ready-file", str(ready_file), "--termination-log", str(log), "--", "sh", "-c", "exit 9")
    assert said.code == 9
    assert not ready_file.exists()
    assert log.read_text().startswith("failed: ended with status 9")
    assert log.read_text().count("\n") == 1


def test_a_command_that_is_not_there_stands_in_the_termination_log(cli: Cli, tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert cli("run", "--termination-log", str(log), "--", "no-such-program-at-all").code == 127
    assert "no-such-program-at-all" in log.read_text()


def test_a_file_of_somebody_else_is_never_taken_away(tmp_path: Path) -> None:
    dear = tmp_path / "dear.json"
    dear.write_text('{"kind": "result"}')
    with pytest.raises(click.UsageError, match="no ready file"):
        take_away(dear)
    assert dear.exists()
    with pytest.raises(click.UsageError, match="there is no folder"):
        take_away(tmp_path / "nowhere" / "ready")
    dear.write_text("")
    take_away(dear)
    assert not dear.exists()


def test_the_termination_log_is_one_line_of_at_most_4096_bytes_and_the_file_stays_the_same_one(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("older")
    inode = log.stat().st_ino
    signposts = Signposts(termination_log=log)
    signposts.changed(Result(verdict=Verdict.FAILED, reason="Wärme\n" * 5000))
    assert len(log.read_bytes()) <= MOST_BYTES
    assert log.read_text().count("\n") == 1
    assert log.stat().st_ino == inode


def test_what_cannot_be_written_is_said_once_and_ends_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    signposts = Signposts(termination_log=tmp_path, notify_socket=str(tmp_path / "nobody"), said=said.append)
    signposts.changed(READY)
    signposts.changed(READY)
    assert len(said) == 1
    assert "termination log" in said[0]
    assert "the run goes on" in said[0]


def test_a_server_that_is_ready_no_longer_has_no_ready_file(tmp_path: Path) -> None:
    signposts = Signposts(ready_file=tmp_path / "ready")
    signposts.changed(READY)
    assert (tmp_path / "ready").exists()
    signposts.changed(Result(verdict=Verdict.UNSERVING, reason="no token comes"))
    assert not (tmp_path / "ready").exists()
    signposts.changed(READY)
    signposts.ended(Result(verdict=Verdict.READY, exit=ExitRow(code=0)), serves=False)
    assert os.listdir(tmp_path) == []
