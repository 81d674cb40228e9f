"""`firsttoken explain`: a log, stdin, a folder; one document on stdout."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from firsttoken.faces.cli.explain import command

LOG = (
    b"[2026-03-04 08:00:00] server_args=ServerArgs(model_path='/m/x', port=30000)\n"
    b"[2026-03-04 08:00:09] torch.distributed.DistNetworkError: code: -98, name: EADDRINUSE, message: address already in use\n"
)


def test_a_single_log_is_explained(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(LOG)
    done = CliRunner().invoke(command, [str(tmp_path / "x.log"), "--json"])
    document = json.loads(done.stdout)
    assert done.exit_code == 0
    assert document["engine"]["name"] == "sglang"
    assert document["verdict"] == "failed"
    assert document["findings"][0]["cause"] == "port-in-use"


def test_a_log_may_come_by_stdin() -> None:
    done = CliRunner().invoke(command, ["-", "--json"], input=LOG)
    assert json.loads(done.stdout)["findings"][0]["cause"] == "port-in-use"


def test_a_case_folder_is_explained_in_words(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_bytes(LOG)
    done = CliRunner().invoke(command, [str(tmp_path)])
    assert done.exit_code == 0
    assert "FAILED" in done.stdout


def test_a_folder_without_anything_to_read_is_refused_with_what_would_help(tmp_path: Path) -> None:
    done = CliRunner().invoke(command, [str(tmp_path)])
    assert done.exit_code == 2
    assert "server.log" in done.stderr


def test_an_unknown_name_is_no_run() -> None:
    done = CliRunner().invoke(command, ["no-such-run"])
    assert done.exit_code == 2


@pytest.mark.parametrize("make", [lambda path: os.mkfifo(path), lambda path: os.symlink("/dev/zero", path)], ids=["fifo", "device"])
def test_a_pipe_or_a_device_is_refused_and_never_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "x.log")
    done = CliRunner().invoke(command, [str(tmp_path / "x.log")])
    assert done.exit_code == 2
    assert "explain - <" in done.stderr


def test_a_port_that_nobody_told_is_not_told(tmp_path: Path) -> None:
    def url(log: bytes, argv: str | None = None) -> str | None:
        (tmp_path / "server.log").write_bytes(log)
        if argv is not None:
            (tmp_path / "command.txt").write_text(argv)
        document = json.loads(CliRunner().invoke(command, [str(tmp_path), "--json"]).stdout)
        told: str | None = document["endpoint"]["url"]
        return told

    quiet = b"[2026-03-04 08:00:00] sglang is starting\n[2026-03-04 08:00:01] server_args=ServerArgs(model_path='/m/x')\n"
    assert url(quiet) is None
    assert url(quiet + b"INFO:     Uvicorn running on http://127.0.0.1:31234 (Press CTRL+C to quit)\n") == "http://127.0.0.1:31234"
    assert url(quiet, "python -m sglang.launch_server --model-path /m/x") == "http://127.0.0.1:30000"
