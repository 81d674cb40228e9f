"""`firsttoken stacks`: of a run, of a pid that nobody followed, and of what is not there."""

import subprocess
import sys
from pathlib import Path

from cli_runs import TARGETS, Cli, Ready, until

from firsttoken.hosts.procfs import Procfs


def test_the_stacks_of_a_run_are_told_in_words_and_as_a_document(ready: Ready) -> None:
    words, document = [ready.cli.start("stacks", ready.run, *more) for more in ((), ("--json", "--all-threads"))]
    said = words.end()
    assert said.code == 0
    assert said.out.startswith(f"run {ready.run}: 1 process; frames innermost first\n\nthe main process (pid ")
    assert "    <module> (fake_server.py:" in said.out
    told = document.end()
    assert told.code == 0
    pid = ready.cli.keeper(ready.run)["server"]["pid"]
    assert (told.json["kind"], told.json["run"]) == ("stacks", ready.run)
    assert [row["process"]["pid"] for row in told.json["processes"]] == [pid]
    assert {group["main"] for group in told.json["groups"]} == {True, False}
    assert told.json["groups"][0]["pids"] == [pid]
    assert {"from", "kind", "what", "to", "nobody", "text"} <= told.json["waits"][0].keys()


def test_a_process_that_nobody_followed_and_what_it_waits_for(cli: Cli, tmp_path: Path) -> None:
    fifo = tmp_path / "shard"
    subprocess.run(["mkfifo", fifo], check=True)
    code = f"open({str(fifo)!r})"
    process = subprocess.Popen([sys.executable, "-S", "-c", code])
    try:
        until(lambda: b"wait_for_partner" in (Procfs().read(f"{process.pid}/wchan") or b""))
        said = cli("stacks", str(process.pid))
    finally:
        process.kill()
        process.wait()
    assert said.code == 0
    assert f"the main process (pid {process.pid}) waits for the FIFO" in said.out
    assert "nobody has its other end" in said.out


def test_what_is_not_there_is_a_sentence(cli: Cli) -> None:
    calls = [cli.start("stacks", *arguments) for arguments in (("4000000",), ("no-such-run",), ())]
    for call, said in zip(calls, ("there is no process 4000000", "there is no run yet", "there is no run yet"), strict=True):
        end = call.end()
        assert (end.code, end.out) == (2, "")
        assert said in end.err


def test_a_run_that_has_ended_leads_on_to_explain(cli: Cli) -> None:
    run = cli("run", "--json", sys.executable, "-S", str(TARGETS / "fake_server.py"), "--until", "exit:3").json["run"]
    said = cli("stacks", run)
    assert said.code == 2
    assert f"{run} has ended; `firsttoken explain {run}`" in said.err
