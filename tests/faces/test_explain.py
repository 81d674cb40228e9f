"""`firsttoken explain`: a log, stdin, a folder; one document on stdout."""

import json
from pathlib import Path

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
