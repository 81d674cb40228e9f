"""Where a server's output can be read, by what its standard output leads to."""

import os
from pathlib import Path

import pytest
from fake_proc import FakeProc

from firsttoken.model.process import ProcessKey
from firsttoken.session.attaching.log_source import Found, LogCommand, LogFile, find_log, given
from firsttoken.session.attaching.servers import Server


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    fake = FakeProc(tmp_path / "proc")
    fake.process(60, title="server")
    return fake


def server(cgroup: str = "", *, managed: bool = False) -> Server:
    return Server(
        process=ProcessKey("here", 60, 1000),
        argv=("server",),
        engine=None,
        uid=0,
        user=None,
        age_s=60.0,
        managed=managed,
        cgroups=(cgroup,) if cgroup else (),
    )


def find(proc: FakeProc, which: str = "", **more: str | bool) -> Found:
    return find_log(server(**more), procfs=proc.procfs, which=lambda name: name if name == which else None)  # type: ignore[arg-type]  # fields by name


def test_a_file_is_read_through_the_process(proc: FakeProc, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.touch()
    proc.link("60/fd/1", str(log))
    proc.link("60/fd/2", str(log))
    assert find(proc).sources == (LogFile(path=f"{proc.root}/60/fd/1", shown=str(log)),)


def test_standard_error_in_another_file_is_read_too(proc: FakeProc, tmp_path: Path) -> None:
    for fd, name in ((1, "out.log"), (2, "err.log")):
        (tmp_path / name).touch()
        proc.link(f"60/fd/{fd}", str(tmp_path / name))
    assert [Path(source.shown).name for source in find(proc).sources] == ["out.log", "err.log"]


def test_what_tee_writes_is_found_behind_a_pipe(proc: FakeProc, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.touch()
    proc.process(61, title="tee server.log")
    proc.link("60/fd/1", "pipe:[77]")
    proc.link("60/fd/2", "pipe:[77]")
    proc.link("61/fd/0", "pipe:[77]")
    proc.link("61/fd/3", str(log))
    proc.write("61/fdinfo/3", f"pos:\t0\nflags:\t{os.O_WRONLY:o}\n")
    assert find(proc).sources == (LogFile(path=f"{proc.root}/61/fd/3", shown=str(log)),)


@pytest.mark.parametrize(
    ("target", "words"), [("/dev/pts/3", "a terminal"), ("pipe:[5]", "a pipe"), ("/dev/null", "/dev/null"), ("socket:[5]", "a socket")]
)
def test_where_it_cannot_be_read_is_said(proc: FakeProc, target: str, words: str) -> None:
    proc.link("60/fd/1", target)
    found = find(proc)
    assert found.sources == ()
    assert found.missing is not None
    assert words in found.missing
    assert "--log FILE" in found.missing


def test_another_users_files_cannot_be_seen(proc: FakeProc) -> None:
    (proc.root / "60/exe").unlink()
    assert "may not be read" in (find(proc).missing or "")


def test_a_services_output_comes_from_the_journal(proc: FakeProc) -> None:
    proc.link("60/fd/1", "socket:[5]")
    found = find(proc, "journalctl", cgroup="/system.slice/llm.service", managed=True)
    (source,) = found.sources
    assert isinstance(source, LogCommand)
    assert source.argv[:4] == ("journalctl", "-u", "llm.service", "--follow")


def test_a_containers_output_comes_from_its_runtime(proc: FakeProc) -> None:
    proc.link("60/fd/1", "pipe:[5]")
    found = find(proc, "podman", cgroup=f"/machine.slice/libpod-{'ab' * 32}.scope")
    assert found.sources == (LogCommand(argv=("podman", "logs", "--follow", "--timestamps", "ab" * 32)),)


def test_a_file_that_is_given_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        given(str(tmp_path / "none"))
