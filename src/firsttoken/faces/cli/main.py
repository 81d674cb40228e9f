"""`firsttoken`: one module a command. Commands are imported when they are used, so that `--help` and completion answer at once."""

import contextlib
import os
import shlex
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import TextIO

import click

from firsttoken import __version__
from firsttoken.model.exits import CANNOT_CREATE, INTERRUPTED

COMMANDS = {
    "check": "what a command will meet, before it is launched: kernels, weights, memory, machine",
    "run": "launch a server from its own command, follow it to its first token",
    "attach": "follow a server that something else started",
    "wait": "wait for a run's decision: ready, hung, failed…",
    "status": "what a run is doing now; without a run: all runs",
    "logs": "a run's raw server output",
    "stop": "end a run and everything that it started",
    "cleanup": "end what killed runs left behind",
    "stacks": "where every process of a run, or of a pid, stands now",
    "diff": "what differs between two runs: it worked yesterday",
    "explain": "what happened, and why: of a run, a log, or files attached to a bug report",
    "speculate": "does speculative decoding pay? the same command with and without it, measured",
    "isolate": "which setting is at fault, in the fewest launches",
    "replay": "judge a recorded run again",
    "report": "a run as text, Markdown for an issue, or one HTML page",
    "bundle": "one redacted archive of a run, to be sent",
    "history": "past runs, and pruning them",
    "rehearse": "the embedded engine: a real, small server",
    "weights": "how long weights take to load, from where a run's came, and a prefetch of them",
    "kernels": "which GPUs the libraries of an engine have code for",
    "doctor": "what firsttoken can see and do on this machine",
    "demo": "a start that hangs, found out; and the same one without the fault",
    "completion": "commands, options and runs for your shell's Tab key",
}
_BROKEN_PIPE = 141
_HOMELESS = frozenset({"rehearse", "completion"})
"""commands that keep and read nothing"""
_HELP = frozenset({"--help", "-h"})


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"firsttoken.faces.cli.{cmd_name}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            launch = shlex.join(args[:6]) + (" …" if len(args) > 6 else "")
            ctx.fail(f"firsttoken has no command {args[0]!r}. To launch it as a server: firsttoken run -- {launch}")
        if args[0] not in _HOMELESS and not ctx.resilient_parsing and not _HELP & set(args):
            _ask_home()
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, "-V", "--version", prog_name="firsttoken")
def cli() -> None:
    """From launch to the first token of an LLM inference server, or to the reason why not.

    Put `firsttoken run --` before the command that you already have.
    """


def main(argv: list[str] | None = None) -> None:
    """Errors are sentences on stderr; a usage error ends with status 2, Ctrl-C with 130."""
    _fill_streams()
    code: object
    try:
        code = cli.main(args=argv, prog_name="firsttoken", standalone_mode=False)
    except click.exceptions.Abort:
        code = INTERRUPTED
    except click.ClickException as error:
        with contextlib.suppress(OSError):
            error.show()
        code = error.exit_code
    except BrokenPipeError:
        code = _BROKEN_PIPE
    except OSError as error:
        with contextlib.suppress(OSError):
            where = f"{error.filename}: " if error.filename else ""
            click.echo(f"firsttoken: {where}{error.strerror or error}", err=True)
        code = 1
    finally:
        _let_go(sys.stdout, 1)
        _let_go(sys.stderr, 2)
    sys.exit(code if isinstance(code, int) else 0)


def _ask_home() -> None:
    """Whatever looks for runs would wait for ever where their folder lies on a dead mount."""
    from firsttoken.history.runs import home
    from firsttoken.session.far_files import FAR

    folder = os.path.abspath(home())
    if (silence := FAR.silence(folder)) is not None:
        from firsttoken.faces.cli.say import Problem

        words = silence.words(f"the folder of runs ({folder})")
        raise Problem(f"{words}. Set FIRSTTOKEN_HOME to a local folder, or {silence.remedy}", CANNOT_CREATE)


def _fill_streams() -> None:
    """A stream that our caller closed becomes the null device: else the next file that we open would take its number."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # what we start needs it as much as we do
    sys.stdin = sys.stdin or os.fdopen(0, "r", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):  # whatever the locale: no text of ours or of a server may end us
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding=None if stream.isatty() else "utf8", errors="replace")


def _let_go(stream: TextIO, fd: int) -> None:
    """A reader that went away is no error: without this Python would complain at its own end."""
    try:
        stream.flush()
    except (OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, fd)
        os.close(null)
