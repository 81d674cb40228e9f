"""The live view on a real terminal: what a person sees on the screen, and in which state the terminal is left."""

import os
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fcntl import ioctl
from typing import cast

import pytest
from cli_runs import FIRSTTOKEN, Cli
from fake_screen import Screen

from firsttoken.faces.cli.live import LiveView, speaks_unicode
from firsttoken.faces.cli.outlet import Outlet
from firsttoken.judge.state import State
from firsttoken.model.result import Result
from firsttoken.session.follow import Follower

BAR = "echo before; i=0; while [ $i -lt 10 ]; do i=$((i+1)); printf '\\rbar: %d0%%' $i; sleep 0.1; done; echo; sleep 1; echo after; exit 3"
SECONDS = 60.0


@dataclass
class Terminal:
    """A pseudo terminal with a command on it, and all that came out of it."""

    master: int
    process: "subprocess.Popen[bytes]"
    before: list[object]
    raw: bytearray = field(default_factory=bytearray)

    def end(self) -> int:
        """Reads to the end; the command's status."""
        deadline = time.monotonic() + SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.text
            self._read(0.05)
        while self._read(0.05):
            pass
        return self.process.returncode

    def shows(self, text: str) -> None:
        deadline = time.monotonic() + SECONDS
        while text not in self.text:
            assert time.monotonic() < deadline, f"{text!r} never came: {self.text}"
            self._read(0.05)

    @property
    def text(self) -> str:
        return self.raw.decode("utf8", "replace")

    @property
    def screen(self) -> Screen:
        screen = Screen()
        screen.feed(self.text)
        return screen

    def _read(self, seconds: float) -> bool:
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:
            return False
        self.raw += data
        return bool(data)


@contextmanager
def terminal(cli: Cli, *arguments: str, columns: int = 100, lines: int = 30, env: dict[str, str] | None = None) -> Iterator[Terminal]:
    """`firsttoken ARGUMENTS` with all three streams on a terminal of its own, which it controls."""
    master, slave = os.openpty()
    ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    surroundings = cli.environment(**{"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **(env or {})})
    process = subprocess.Popen(
        [sys.executable, "-c", _CONTROLLING, *FIRSTTOKEN, *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=surroundings,
        start_new_session=True,
    )
    found = Terminal(master, process, termios.tcgetattr(slave))
    try:
        yield found
        assert termios.tcgetattr(slave) == found.before, "the terminal's settings were left changed"
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(SECONDS)
        os.close(slave)
        os.close(master)


_CONTROLLING = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


@pytest.mark.parametrize("columns", [40, 100])
def test_the_servers_output_scrolls_above_unharmed_and_the_end_is_plain_text(cli: Cli, columns: int) -> None:
    with terminal(cli, "run", "--", "sh", "-c", BAR, columns=columns) as view:
        assert view.end() == 3
        shown = view.screen.shown()
        own = [line for line in shown if line in ("before", "bar: 100%", "after")]
        assert own == ["before", "bar: 100%", "after"]
        assert any(line.startswith("FAILED: ended with status 3") for line in shown)
        assert not any("cores busy," in line or line.startswith("──") for line in shown), shown
        assert view.screen.modes == []
        assert view.screen.column == 0
        assert "bar: 50%" in view.text  # while it was drawn it was to be seen
        assert "STARTING" in view.text
        assert "cores busy" in view.text


def test_it_is_drawn_at_most_four_times_a_second_however_much_is_said(cli: Cli) -> None:
    chatty = "i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo line $i; sleep 0.005; done"
    with terminal(cli, "run", "--", "sh", "-c", chatty) as view:
        began = time.monotonic()
        assert view.end() == 0
        seconds = time.monotonic() - began
        assert view.text.count("── firsttoken") <= 4 * seconds + 2
        lines = [line for line in view.screen.shown() if line.startswith("line ")]
        assert lines == [f"line {number}" for number in range(1, 401)]


def test_no_color_and_a_locale_without_unicode_are_heeded(cli: Cli) -> None:
    with terminal(cli, "run", "--", "sh", "-c", "sleep 1.5", env={"NO_COLOR": "1", "LC_ALL": "C"}) as view:
        assert view.end() == 0
        frames = view.text.split("firsttoken: run", 1)[1].split("FAILED:")[0]
        assert "-- firsttoken" in frames
        assert not any(f"\x1b[{colour}m" in frames for colour in range(30, 38))
        assert frames.split("\n", 1)[1].isascii()


@pytest.mark.parametrize("arguments", [("--json",), ("--events",), ("--quiet",)])
def test_a_document_events_and_quiet_leave_the_terminal_alone(cli: Cli, arguments: tuple[str, ...]) -> None:
    with terminal(cli, "run", *arguments, "--", "sh", "-c", "sleep 0.3") as view:
        view.end()
        assert "\x1b[" not in view.text


def test_a_dumb_terminal_gets_plain_lines(cli: Cli) -> None:
    with terminal(cli, "run", "--", "sh", "-c", "echo hello; sleep 0.3", env={"TERM": "dumb"}) as view:
        assert view.end() == 0
        assert "\x1b[" not in view.text
        assert "starting   process_start" in view.text


def test_ctrl_c_ends_the_server_and_the_view(cli: Cli) -> None:
    with terminal(cli, "run", "--", "sh", "-c", "echo up; sleep 60") as view:
        view.shows("cores busy")
        os.write(view.master, b"\x03")
        assert view.end() != 0
        assert any("SIGINT: stopping the server" in line for line in view.screen.shown())
        assert not any("cores busy," in line for line in view.screen.shown())


def test_a_terminal_that_goes_away_changes_nothing_for_a_server_under_nohup(cli: Cli) -> None:
    """Its hang-up is ignored there; what is written to it fails."""
    master, slave = os.openpty()
    ignoring = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", ignoring, *FIRSTTOKEN, "run", "--", "sh", "-c", "echo up; sleep 2; exit 5"],
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
        env=cli.environment(TERM="xterm"),
        start_new_session=True,
    )
    os.close(slave)
    try:
        assert b"firsttoken: run" in os.read(master, 1 << 16)
    finally:
        os.close(master)
    assert process.wait(SECONDS) == 5


def test_wait_shows_what_moves_and_leaves_its_answer(cli: Cli) -> None:
    call = cli.start("run", "--quiet", "--", "sh", "-c", "sleep 2.5; exit 1")
    run = call.run
    with terminal(cli, "wait", run) as view:
        assert view.end() == 69
        assert "cores busy" in view.text
        assert not any("cores busy," in line for line in view.screen.shown())
        assert any(line.startswith("FAILED") for line in view.screen.shown())
    call.end()


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
def test_in_a_real_terminal_emulator_the_same_stands_there(cli: Cli) -> None:
    """tmux wraps, scrolls and keeps what scrolled off."""
    script = f"{' '.join(FIRSTTOKEN)} run -- sh -c 'seq -f row%g 60; sleep 1.5; seq -f row%g 61 70; exit 3'; echo STATUS=$?; exec sleep 60"
    env = cli.environment(LC_ALL="C.UTF-8", TERM="xterm-256color")
    screens = {columns: ("tmux", "-S", str(cli.home.parent / f"tmux-{columns}"), "-f", os.devnull) for columns in (40, 80, 160)}
    try:
        for columns, tmux in screens.items():
            size = ("-x", str(columns), "-y", "24")
            subprocess.run([*tmux, "new-session", "-d", *size, "-s", "t", script], env=env, check=True, timeout=SECONDS)
        deadline = time.monotonic() + SECONDS
        drew: set[int] = set()
        seen: dict[int, str] = {}
        while not seen or not all("STATUS=" in shown for shown in seen.values()):
            assert time.monotonic() < deadline, seen
            time.sleep(0.1)
            seen = {columns: _captured(tmux) for columns, tmux in screens.items()}
            drew |= {columns for columns, shown in seen.items() if "cores busy" in shown}
        assert drew == screens.keys()
        for columns, shown in seen.items():
            lines = [line.strip() for line in shown.splitlines()]
            end = next(number for number, line in enumerate(lines) if line.startswith("FAILED: ended with status 3"))
            assert [line for line in lines[:end] if line.startswith("row")] == [f"row{number}" for number in range(1, 71)]
            assert "cores busy," not in shown
            assert "STATUS=3" in lines
            asked = [*screens[columns], "display", "-p", "-t", "t", "#{cursor_flag}#{alternate_on}"]
            assert subprocess.run(asked, capture_output=True, timeout=SECONDS).stdout.strip() == b"10"
    finally:
        for tmux in screens.values():
            subprocess.run([*tmux, "kill-server"], check=False, stderr=subprocess.DEVNULL, timeout=SECONDS)


def _captured(tmux: tuple[str, ...]) -> str:
    done = subprocess.run([*tmux, "capture-pane", "-p", "-S", "-200", "-t", "t"], capture_output=True, timeout=SECONDS)
    return done.stdout.decode("utf8", "replace")


def test_unicode_is_what_the_locale_says() -> None:
    assert speaks_unicode({"LANG": "de_DE.UTF-8"})
    assert speaks_unicode({"LC_ALL": "C.utf8", "LANG": "C"})
    assert not speaks_unicode({"LC_ALL": "C", "LANG": "de_DE.UTF-8"})
    assert not speaks_unicode({"LANG": "de_DE.ISO-8859-1"})
    assert speaks_unicode({"LANG": "sr_RS.UTF-8@latin"})


class Watched:
    """What a view needs of a follower."""

    def __init__(self, fail: bool = False) -> None:
        self.state, self._fail = State(), fail

    def result(self) -> Result:
        if self._fail:
            raise RuntimeError("no result today")
        return Result(run="r1", reason="of a test")


def drawn(*, fail: bool = False, front: bool = True) -> tuple[Screen, LiveView]:
    screen = Screen()

    class Shown(Outlet):
        def write(self, data: bytes) -> None:
            screen.feed(data.decode())

    view = LiveView(Shown(2), lambda: os.terminal_size((80, 24)), in_front=lambda: front)
    return screen, view.watching(cast(Follower, Watched(fail)))


def test_a_view_that_fails_says_so_once_and_the_output_goes_on() -> None:
    screen, view = drawn(fail=True)
    for number in range(3):
        view.write(f"log {number}\n".encode())
        view.draw()
    failed = "firsttoken: the live view failed (RuntimeError('no result today')); the run goes on"
    assert screen.shown() == ["log 0", failed, "log 1", "log 2"]


def test_a_job_in_the_background_only_passes_on() -> None:
    screen, view = drawn(front=False)
    view.write(b"one\ntwo")
    view.line("said")
    view.draw()
    assert screen.shown() == ["one", "said"]


def test_what_is_left_at_the_end_is_what_was_printed() -> None:
    screen, view = drawn()
    with view:
        view.write(b"one\nhalf a line")
    assert screen.shown() == ["one", "half a line"]
    assert screen.column == 0
