"""Homes for runs. Each test has its own, and one with a server that is ready is shared by those that only read."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runs import FAKE, Cli, Ready


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    cli = Cli(tmp_path / "home")
    yield cli
    cli.end_all()


@pytest.fixture(scope="session")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ready]:
    cli = Cli(tmp_path_factory.mktemp("ready") / "home")
    try:
        call = cli.start("run", "--detach", *FAKE, "--start", "one\ntwo\nthree")
        launched = call.end()
        assert launched.code == 0, launched
        yield Ready(cli, call.run, launched)
    finally:
        cli.end_all()
