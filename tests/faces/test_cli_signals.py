"""Ctrl-C, a closed terminal, and the deaths of face, keeper and observer: the server ends or lives on as asked, and never as an orphan."""

import fcntl
import os
import pty
import signal
import termios
from pathlib import Path

from cli_runs import FAKE, Call, Cli, lives, marked, until

STARTING = (*FAKE, "--until", "never", "--start", "UP")


def up(cli: Cli, *arguments: str) -> tuple[Call, str]:
    """A foreground run whose server has begun, and its name."""
    call = cli.start("run", *arguments)
    call.said("UP")
    return call, call.run


def serving(cli: Cli, *arguments: str) -> tuple[Call, str]:
    """A foreground run that is ready, and its name."""
    call = cli.start("run", *arguments, *FAKE)
    call.said("a second request was answered too")
    return call, call.run


def test_a_signal_before_ready_stops_the_server_and_all_of_its_children(cli: Cli) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    calls = [cli.start("run", *STARTING, "--child") for _ in numbers]
    for number, call in zip(numbers, calls, strict=True):
        until(lambda run=call.run: "CHILD" in cli.log(run))
        call.process.send_signal(number)
    for number, call in zip(numbers, calls, strict=True):
        said = call.end()
        assert said.code == 0  # the server's own: it obeyed
        assert f"{number.name}: stopping the server" in said.err
        assert "GOT SIGTERM" in said.out
        assert not marked(call.run)
        assert [event["by"] for event in cli.events(call.run, "stop_asked")] == [f"signal {number.name}"]


def test_a_second_ctrl_c_kills_a_server_that_does_not_obey(cli: Cli) -> None:
    call, run = up(cli, *STARTING, "--deaf", "9")
    call.process.send_signal(signal.SIGINT)
    call.said("GOT SIGTERM")
    call.process.send_signal(signal.SIGINT)
    assert call.end().code == 130
    assert not marked(run)


def test_after_ready_a_signal_is_forwarded_once_and_is_the_servers_affair(cli: Cli) -> None:
    call, run = serving(cli)
    call.process.send_signal(signal.SIGINT)
    said = call.end()
    assert said.code == 0
    assert [line for line in said.out.splitlines() if line.startswith("GOT")] == ["GOT SIGINT"]
    assert [event["why"] for event in cli.events(run, "signal_sent")] == ["forwarded"]
    assert not marked(run)


def test_after_ready_nothing_escalates_and_a_second_signal_is_a_second_signal(cli: Cli) -> None:
    call, run = serving(cli, "--")
    call.process.send_signal(signal.SIGUSR1)  # ends a server that has no handler for it
    assert call.end().code == 128 + signal.SIGUSR1
    assert not marked(run)


def test_what_a_server_leaves_behind_after_a_forwarded_signal_is_ended(cli: Cli) -> None:
    call = cli.start("run", *FAKE, "--child")
    call.said("a second request was answered too")
    call.process.send_signal(signal.SIGTERM)
    assert call.end().code == 0
    assert not marked(call.run)


def test_a_closed_terminal_leaves_no_orphan(cli: Cli) -> None:
    def in_a_terminal(*arguments: str) -> tuple[Call, int]:
        master, terminal = pty.openpty()

        def take_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        streams = {"stdin": terminal, "stdout": terminal, "start_new_session": True, "preexec_fn": take_terminal}
        call = cli.start("run", "-q", *FAKE, "--child", *arguments, **streams)
        os.close(terminal)
        return call, master

    starting, serving = in_a_terminal("--until", "never"), in_a_terminal()
    until(lambda: "CHILD" in cli.log(starting[0].run))
    until(lambda: cli.keeper(serving[0].run)["ready"])
    for _, master in (starting, serving):
        os.close(master)
    for call, _ in (starting, serving):
        call.end()
        until(lambda run=call.run: not marked(run))
        assert not lives(cli.keeper(call.run)["pid"])
    assert "SIGHUP" in starting[0].both


def test_a_server_under_nohup_survives_the_terminal(cli: Cli) -> None:
    call = cli.start("run", *STARTING, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    call.said("UP")
    call.process.send_signal(signal.SIGHUP)
    call.process.send_signal(signal.SIGINT)
    assert "SIGINT: stopping the server" in call.end().err
    assert [event["by"] for event in cli.events(call.run, "stop_asked")] == ["signal SIGINT"]


def test_ctrl_c_lets_a_detached_run_go(cli: Cli) -> None:
    call = cli.start("run", "--detach", *STARTING)
    run = call.run
    call.process.send_signal(signal.SIGINT)
    said = call.end()
    assert said.code == 130
    assert f"let go; the server goes on: `firsttoken wait {run}`" in said.err
    assert cli("status", run, "--json").json["state"] == "running"
    cli("stop", run)
    assert not marked(run)


def test_a_face_that_is_killed_takes_the_server_along_only_where_asked(cli: Cli) -> None:
    keeps, kept = up(cli, *STARTING)
    stops, stopped = up(cli, "--on-observer-death", "stop", *STARTING)
    keeps.process.kill()
    stops.process.kill()
    until(lambda: not marked(stopped))
    assert [event["by"] for event in cli.events(stopped, "stop_asked")] == ["death of the face"]
    assert cli("status", kept, "--json").json["state"] == "running"
    assert cli("stop", kept).code == 0
    assert not marked(kept)


def test_after_the_keepers_death_the_server_lives_status_tells_and_cleanup_ends_it(cli: Cli) -> None:
    call = cli.start("run", "--detach", "--max-wait", "0", *STARTING)
    run = call.run
    call.end()
    keeper = until(lambda: found if (found := cli.keeper(run)).get("observer") else None)
    until(lambda: cli.events(run, "judged"))
    os.kill(keeper["pid"], signal.SIGKILL)
    until(lambda: cli.events(run, "gap"))
    assert lives(keeper["server"]["pid"])
    said = cli("status", run)
    assert said.code == 0
    assert "state     left" in said.out
    assert f"firsttoken cleanup {run}" in said.err
    assert cli("wait", run, "--max-wait", "1").code == 124  # its observer follows it still
    dry = cli("cleanup", "--dry-run", "--json").json
    assert (dry["kind"], [row["run"] for row in dry["runs"]]) == ("cleanup", [run])
    assert keeper["server"]["pid"] in dry["runs"][0]["ended"]
    assert lives(keeper["server"]["pid"])
    cleaned = cli("cleanup")
    assert cleaned.code == 0
    assert cleaned.out.startswith(f"{run}: ended ")
    assert not marked(run)
    assert cli("status", run, "--json").json["state"] == "ended"
    assert cli("replay", run, "--check").code == 0


def test_after_the_death_of_keeper_and_observer_the_run_is_unknown_and_stop_ends_it(cli: Cli) -> None:
    call = cli.start("run", "--detach", "--max-wait", "0", *STARTING)
    run = call.run
    call.end()
    keeper = until(lambda: found if (found := cli.keeper(run)).get("observer") else None)
    until(lambda: cli.events(run, "judged"))
    os.kill(keeper["observer"]["pid"], signal.SIGSTOP)  # it must not take over between the two
    os.kill(keeper["pid"], signal.SIGKILL)
    os.kill(keeper["observer"]["pid"], signal.SIGKILL)
    until(lambda: not lives(keeper["observer"]["pid"]))
    told = cli("status", run, "--json").json
    assert (told["state"], told["verdict"]) == ("left", "unknown")
    assert "nobody follows this run any more" in told["reason"]
    assert cli("wait", run).code == 76
    stopped = cli("stop", run)
    assert stopped.code == 0
    assert "its keeper was gone" in stopped.out
    assert not marked(run)


def test_a_foreground_run_outlives_its_keeper_and_still_obeys_ctrl_c(cli: Cli) -> None:
    call, run = up(cli, *STARTING)
    keeper = until(lambda: found if (found := cli.keeper(run)).get("observer") else None)
    until(lambda: cli.events(run, "judged"))
    os.kill(keeper["pid"], signal.SIGKILL)
    until(lambda: cli.events(run, "gap"))
    call.process.send_signal(signal.SIGINT)
    assert call.end().code == 76  # nobody could see how it ended
    assert not marked(run)


def test_an_observer_that_is_killed_is_started_again_and_the_run_becomes_ready(cli: Cli, tmp_path: Path) -> None:
    go = tmp_path / "go"
    call = cli.start("run", "--until", "ready", *FAKE, "--until", str(go))
    run = call.run
    first = until(lambda: cli.keeper(run).get("observer"))
    until(lambda: cli.events(run, "judged"))
    os.kill(first["pid"], signal.SIGKILL)
    again = until(lambda: found if (found := cli.keeper(run).get("observer")) not in (None, first) else None)
    assert lives(again["pid"])
    go.touch()
    assert call.end().code == 0
    [lost] = cli.events(run, "observer_lost")
    assert (lost["pid"], lost["status"]) == (first["pid"], "signal SIGKILL")
    assert cli("replay", run, "--check").code == 0
    assert not marked(run)
