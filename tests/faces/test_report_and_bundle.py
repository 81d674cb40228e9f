"""`firsttoken report` and `bundle` on real runs, and what reads a bundle; secrets that are planted in a start come out nowhere."""

import json
import os
import tarfile
from pathlib import Path

import pytest
from cli_runs import FAKE, Cli, Ready
from click.testing import CliRunner
from recorded_runs import hung, record

from firsttoken.faces.cli.bundle import command as bundle
from firsttoken.faces.cli.explain import command as explain
from firsttoken.faces.cli.replay import command as replay
from firsttoken.faces.cli.report import command as report
from firsttoken.history.runs import RunFolder

PLANTED = "Zx9-plant-77"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return record(tmp_path / "20261129-181145-engine-7f3a", hung(), b"one\ntwo\n")


def test_a_report_of_a_live_run_comes_in_every_form(ready: Ready, tmp_path: Path) -> None:
    run, page, issue = str(ready.cli.folder(ready.run)), tmp_path / "a.html", tmp_path / "a.md"
    said = ready.cli("report", ready.run, "-o", str(page))
    assert (said.code, said.out) == (0, "")
    assert page.read_text().startswith("<!doctype html>")
    assert CliRunner().invoke(report, [run, "-o", str(issue)]).exit_code == 0
    assert issue.read_text().startswith("### Describe the bug\n")
    assert CliRunner().invoke(report, [run]).stdout.startswith("READY: ")
    document = json.loads(CliRunner().invoke(report, [run, "--json"]).stdout)
    assert (document["kind"], document["verdict"], document["run"]) == ("result", "ready", ready.run)


def test_secrets_that_a_start_shows_in_other_words_are_written_nowhere_but_in_the_raw_log(cli: Cli, tmp_path: Path) -> None:
    argv = ("env", f"SOME_API_KEY={PLANTED}", *FAKE, "--start", f"X={PLANTED} -k {PLANTED} http://user:{PLANTED}@host/ {PLANTED}")
    assert cli("run", "--until", "ready", "--json", "--", *argv).json["verdict"] == "ready"
    (run,) = (cli.home / "runs").iterdir()
    assert PLANTED in cli.log(run.name)
    written = [file for file in run.rglob("*") if file.is_file() and file.suffix != ".raw"]
    assert {file.name for file in written} >= {"events.jsonl", "spec.json", "result.json"}
    assert not [file.name for file in written if PLANTED.encode() in file.read_bytes()]
    assert cli.events(run.name, "secrets_in_log")
    made, page = tmp_path / "b.tar.gz", tmp_path / "b.html"
    assert cli("bundle", "-o", str(made)).code == 0
    assert cli("report", "-o", str(page)).code == 0
    with tarfile.open(made) as archive:
        files = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        contents = {name: file.read() for name, file in files.items() if file is not None}
    assert not [name for name, data in contents.items() if PLANTED.encode() in data]
    assert len(contents[f"{run.name}/log/head.raw"]) == (run / "log" / "head.raw").stat().st_size
    assert PLANTED not in page.read_text()


def test_a_bundle_is_explained_replayed_and_reported_as_its_run(run: RunFolder, tmp_path: Path) -> None:
    made = str(tmp_path / "b.tar.gz")
    done = CliRunner().invoke(bundle, [str(run.path), "-o", made, "--json"])
    assert json.loads(done.stdout)["kind"] == "bundle"
    for command, arguments in ((explain, ["--json"]), (replay, ["--json"]), (report, ["--json"])):
        told = [json.loads(CliRunner().invoke(command, [*arguments, what]).stdout) for what in (str(run.path), made)]
        for name in ("verdict", "phase", "reason", "phases", "ranks", "waits", "root_blocker", "findings", "command"):
            assert told[0][name] == told[1][name], (command, name)
        assert (told[1]["verdict"], told[1]["folder"]) == ("hung", made)
    for form in ("text", "markdown", "html"):
        assert CliRunner().invoke(report, [made, "--format", form]).exit_code == 0


def test_a_case_folder_may_come_packed(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("[2026-03-04 08:00:09] server_args=ServerArgs(port=30000)\nEADDRINUSE, message: address already in use\n")
    with tarfile.open(tmp_path / "case.tar.gz", "w:gz") as archive:
        archive.add(log, "report/server.log")
        archive.add(log, "report/photo.jpg")
    told = CliRunner().invoke(explain, [str(tmp_path / "case.tar.gz"), "--json"])
    assert json.loads(told.stdout)["findings"][0]["cause"] == "port-in-use"
    assert "left out of case.tar.gz: report/photo.jpg: nothing that is known by this name" in json.loads(told.stdout)["not_checked"]
    refused = CliRunner().invoke(replay, [str(tmp_path / "case.tar.gz")])
    assert (refused.exit_code, "holds no run" in refused.stderr) == (2, True)


@pytest.mark.parametrize("command", [explain, replay, report])
def test_an_archive_that_cannot_be_used_is_refused_in_a_sentence(tmp_path: Path, run: RunFolder, command: object) -> None:
    made = tmp_path / "b.tar.gz"
    CliRunner().invoke(bundle, [str(run.path), "-o", str(made)])
    made.write_bytes(made.read_bytes()[:300])
    done = CliRunner().invoke(command, [str(made)])  # type: ignore[arg-type]  # a command
    assert (done.exit_code, done.stdout) == (2, "")
    assert "b.tar.gz" in done.stderr
    assert "send it again" in done.stderr


def test_a_file_that_is_no_archive_is_not_taken_for_a_log_by_an_archives_name(tmp_path: Path) -> None:
    (tmp_path / "junk.tar.gz").write_bytes(bytes(range(256)) * 8)
    done = CliRunner().invoke(explain, [str(tmp_path / "junk.tar.gz")])
    assert (done.exit_code, "is named as an archive and is none" in done.stderr) == (2, True)


def test_a_pipe_that_nobody_reads_and_a_full_disk_are_told_and_what_was_there_stays(run: RunFolder, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place, why in ((tmp_path / "pipe", "No such device"), (Path("/dev/full"), "No space left")):
        done = CliRunner().invoke(report, [str(run.path), "-o", str(place)])
        assert (done.exit_code, why in done.stderr) == (1, True)
    kept = tmp_path / "report.txt"
    kept.write_text("mine")
    kept.chmod(0o600)
    assert CliRunner().invoke(report, [str(run.path), "-o", str(kept)]).exit_code == 0
    assert (kept.read_text() != "mine", kept.stat().st_mode & 0o777, [path.name for path in tmp_path.glob(".*")]) == (True, 0o600, [])


def test_what_cannot_be_written_is_told(run: RunFolder, tmp_path: Path) -> None:
    for command in (bundle, report):
        done = CliRunner().invoke(command, [str(run.path), "-o", str(tmp_path / "no" / "such.html")])
        assert (done.exit_code, "name another place with -o" in done.stderr) == (1, True)
