"""The server runs as it would without us."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from keeper_runs import Run, collect, target, until

from firsttoken.launch.spec import LaunchSpec
from firsttoken.launch.start import StartError, start_keeper
from firsttoken.model import codec
from firsttoken.model.events import UnknownEvent

Launch = Callable[..., Run]


def facts(run: Run) -> dict[str, object]:
    run.ended()
    found: dict[str, object] = json.loads(run.log())
    return found


def test_the_exit_code_is_kept(launch: Launch) -> None:
    record = launch("sh", "-c", "exit 37").ended()
    assert record.ended is not None
    assert (record.ended.code, record.ended.signal) == (37, None)


def test_the_signal_that_ended_the_server_is_kept(launch: Launch) -> None:
    run = launch("sh", "-c", "kill -SEGV $$")
    ended = run.ended().ended
    assert ended is not None
    assert (ended.code, ended.signal) == (None, signal.SIGSEGV)
    [event] = run.events("exited")
    assert (event["code"], event["signal"], event["root"]) == (None, signal.SIGSEGV, True)


def test_the_environment_gets_the_mark_and_nothing_else(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WITH_ODD_BYTES", os.fsdecode(b"a\xff=b"))
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LC_ALL", "C")
    run = launch(*target("tty_facts.py"))
    ours = sorted([*(f"{name}={value}" for name, value in os.environ.items()), f"FIRSTTOKEN_RUN={run.record.run}"])
    assert facts(run)["env"] == ours


def test_no_locale_of_pythons_own_reaches_the_server(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    run = launch("sh", "-c", "env", mark=False)
    run.ended()
    assert b"LC_CTYPE" not in run.log()
    assert b"FIRSTTOKEN" not in run.log()


def test_the_user_may_add_to_the_environment(launch: Launch) -> None:
    run = launch("sh", "-c", "echo $ADDED", env={"ADDED": "yes"}, mark=False)
    run.ended()
    assert run.log() == b"yes\n"


def test_the_server_leads_a_session_without_a_terminal_and_inherits_nothing_of_ours(launch: Launch, tmp_path: Path) -> None:
    extra = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(extra, True)
    try:
        run = launch(*target("tty_facts.py", "a b", "*", ""), cwd=str(tmp_path))
    finally:
        os.close(extra)
    told = facts(run)
    assert told["leads_session"] is True
    assert told["controlling_terminal"] is False
    assert told["fds"] == [0, 1, 2]
    assert told["tty"] == [False, True, True]
    assert told["size"] == [200, 50]
    assert told["stdin"] == ""
    assert told["cwd"] == str(tmp_path)
    assert told["argv"] == ["a b", "*", ""]


def test_signal_dispositions_mask_umask_and_nice_are_the_usual_ones(launch: Launch) -> None:
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    mask = os.umask(0o027)
    try:
        run = launch("sh", "-c", "cat /proc/self/status; umask; nice")
    finally:
        os.umask(mask)
        signal.signal(signal.SIGINT, previous)
    run.ended()
    words = run.log().split()
    for name in (b"SigBlk:", b"SigIgn:"):
        assert int(words[words.index(name) + 1], 16) == 0
    assert words[-2:] == [b"0027", str(os.nice(0)).encode()]


def test_output_is_the_same_bytes_on_a_terminal_as_on_a_pipe(launch: Launch, tmp_path: Path) -> None:
    every = tmp_path / "every"
    every.write_bytes(bytes(range(256)) * 40 + b"\r\n\x04\x03\x1a\x11\x13 bar\r 10%\r\n" + "é✓".encode())
    wanted = subprocess.run(["cat", str(every)], capture_output=True, check=True).stdout
    for pipe in (False, True):
        run = launch("cat", str(every), pipe=pipe)
        run.ended()
        assert run.log() == wanted


def test_standard_input_is_passed_only_where_asked(launch: Launch) -> None:
    read, write = os.pipe()
    os.write(write, b"typed\n")
    os.close(write)
    try:
        run = launch("cat", stdin_fd=read)
    finally:
        os.close(read)
    run.ended()
    assert run.log() == b"typed\n"


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("no-such-program-at-all",), 127, "not found"),
        (("/no/such/file",), 127, "no such file"),
        (("/etc/passwd",), 126, "may not be executed"),
        (("/etc",), 126, "may not be executed"),
    ],
)
def test_a_program_that_cannot_start_is_told_with_the_shells_code(launch: Launch, argv: tuple[str, ...], code: int, words: str) -> None:
    with pytest.raises(StartError, match=words) as caught:
        launch(*argv)
    assert caught.value.code == code


def test_a_refused_start_stands_in_the_folder_and_leaves_nothing(tmp_path: Path) -> None:
    spec = LaunchSpec(run="refused", node="n", argv=("no-such",), shown_argv=("no-such",))
    with pytest.raises(StartError):
        start_keeper(spec, tmp_path / "run")
    [event] = map(json.loads, (tmp_path / "run" / "events.jsonl").read_text().splitlines())
    assert (event["kind"], event["code"]) == ("launch_failed", 127)
    record = json.loads((tmp_path / "run" / "keeper.json").read_text())
    assert record["ended"]["code"] == 127
    assert not (tmp_path / "run" / "socket").exists()


def test_a_missing_working_folder_is_named(launch: Launch) -> None:
    with pytest.raises(StartError, match="/not/there cannot be entered"):
        launch("true", cwd="/not/there")


def test_a_missing_interpreter_is_told_apart_from_a_missing_file(launch: Launch, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    with pytest.raises(StartError, match="interpreter") as caught:
        launch(str(script))
    assert caught.value.code == 126


def test_a_script_without_a_first_line_runs_as_from_a_shell(launch: Launch, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo ran $1\n")
    script.chmod(0o755)
    run = launch(str(script), "well")
    run.ended()
    assert run.log() == b"ran well\n"


def test_every_event_of_the_keeper_is_one_that_the_model_knows(launch: Launch) -> None:
    run = launch("sh", "-c", "(sleep 0.1; exit 4) & echo x; exit 0")
    run.ended()
    raw = (run.folder / "events.jsonl").read_bytes().splitlines()
    events = list(codec.read(raw))
    assert len(events) == len(raw)
    assert not [event for event in events if isinstance(event.body, UnknownEvent)]
    kinds = [event.body.kind for event in events if event.body.kind != "tick"]
    assert kinds == ["launched", "exited", "exited", "emptied"]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert events[0].t == 0.0


def test_files_of_the_run_are_for_their_owner_alone(launch: Launch) -> None:
    run = launch("echo", "x")
    run.ended()
    for path in [run.folder, *run.folder.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_the_socket_lies_elsewhere_where_the_folders_path_is_too_long(launch: Launch, tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30) / "run"
    run = launch("sleep", "0.2", folder=folder)
    assert not run.handle.socket.startswith(str(folder))
    *_, others = collect(run.control("face", log_from=0, events_from=0))
    run.ended()
    assert others == [{"ended": {"code": 0, "signal": None}}]
    assert not Path(run.handle.socket).parent.exists()


def test_as_first_process_of_a_container_the_keeper_reaps_and_obeys(tmp_path: Path) -> None:
    unshare = ["unshare", "--fork", "--pid", "--mount-proc"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no pid namespace can be made here")
    folder = tmp_path / "run"
    argv = ("sh", "-c", "(sh -c 'sleep 0.05' &) ; trap 'echo stopped; exit 3' TERM; echo up; while :; do sleep 0.05; done")
    spec = LaunchSpec(run="container", node="n", argv=argv, shown_argv=argv)
    with subprocess.Popen(
        [*unshare, sys.executable, "-m", "firsttoken.launch.keeper", str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(spec.to_json())
        process.stdin.close()
        report = json.loads(process.stdout.readline())
        assert report["ok"]
        assert report["pid"] == 1
        head = folder / "log" / "head.raw"
        until(lambda: head.exists() and b"up" in head.read_bytes())
        os.kill(_child_of(process.pid), signal.SIGTERM)
        assert process.wait(10) == 0
    kinds = [json.loads(line)["kind"] for line in (folder / "events.jsonl").read_text().splitlines()]
    assert kinds[-1] == "emptied"
    assert "stop_asked" in kinds
    assert b"stopped" in head.read_bytes()


def _child_of(pid: int) -> int:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return int(file.read().split()[0])
