"""`firsttoken`: one module a command. Commands are imported when they are used, so that `--help` and completion answer at once."""

import sys
from importlib import import_module

import click

from firsttoken import __version__
from firsttoken.model.exits import INTERRUPTED

COMMANDS = {
    "run": "launch a server from its own command and follow it to its first token",
    "wait": "wait for a run's decision: ready, hung, failed…",
    "status": "what a run is doing now; without a run: all runs",
    "logs": "a run's raw server output",
    "stop": "end a run and everything that it started",
    "cleanup": "end what killed runs left behind",
    "replay": "judge a recorded run again",
    "history": "past runs, and pruning them",
    "rehearse": "the embedded engine: a real, small server",
    "doctor": "what firsttoken can see and do on this machine",
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"firsttoken.faces.cli.{cmd_name}").command
        return command

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
    try:
        code = cli.main(args=argv, prog_name="firsttoken", standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    sys.exit(code if isinstance(code, int) else 0)
