"""`firsttoken run -- COMMAND`: launch, follow, tell."""

import asyncio
import os
import sys
from dataclasses import replace

import click

from firsttoken.faces.cli.patience import Patience, patience_options
from firsttoken.faces.cli.say import answer, give_up, json_option, note
from firsttoken.model.codec import encode
from firsttoken.model.events import Event
from firsttoken.model.exits import TIMED_OUT
from firsttoken.model.plan import Policy
from firsttoken.model.result import Result
from firsttoken.report.text import change_line
from firsttoken.session.follow import Follower, Seen
from firsttoken.session.foreground import Foreground
from firsttoken.session.launch import Asked, LaunchRefused, launch


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- COMMAND…")
@click.option("--detach", "-d", is_flag=True, help="Return at the first decision; the server goes on.")
@click.option(
    "--until", type=click.Choice(["ready"]), help="In the foreground: end at the first decision with its status, and end the server."
)
@click.option("--max-wait", type=click.FloatRange(min=0), metavar="S", help="With --detach: return after S seconds with the state so far.")
@patience_options
@click.option(
    "--on-hung", type=click.Choice(["keep", "stop"]), default="keep", show_default=True, help="What to do with a server proven hung."
)
@click.option(
    "--on-observer-death",
    type=click.Choice(["keep", "stop"]),
    default="keep",
    show_default=True,
    help="What becomes of the server when we die.",
)
@click.option("--no-probe", is_flag=True, help="Send no request; readiness then stays a claim.")
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the server's API key.")
@click.option("--no-mark", is_flag=True, help="Add nothing to the server's environment (FIRSTTOKEN_RUN otherwise).")
@click.option("--pipe", is_flag=True, help="Give the server a pipe instead of a terminal for its output.")
@click.option("--stdin", "use_stdin", is_flag=True, help="Give the server our standard input (otherwise /dev/null).")
@click.option("--quiet", "-q", is_flag=True, help="Do not pass the server's output through.")
@click.option("--events", is_flag=True, help="All events as JSON lines on stdout.")
@json_option
def command(
    argv: tuple[str, ...],
    detach: bool,
    until: str | None,
    max_wait: float | None,
    max_waiting: float | None,
    stall_patience: float | None,
    on_hung: str,
    on_observer_death: str,
    no_probe: bool,
    api_key_env: str | None,
    no_mark: bool,
    pipe: bool,
    use_stdin: bool,
    quiet: bool,
    events: bool,
    as_json: bool,
) -> int:
    """Launch COMMAND, unmodified, and follow it to its first token, or to the reason why not.

    In the foreground the server's output passes through, signals pass on, and the status is the server's own; with --until ready or
    --detach it is that of the decision: 0 ready, 69 failed or crashed, 70 hung, 71 unserving, 75 out of patience, 76 unknown.
    """
    from firsttoken.wiring import OBSERVER, plan_of

    if api_key_env is not None and not os.environ.get(api_key_env):
        give_up(f"--api-key-env {api_key_env}: that variable is not set", 2)
    patience = Patience(max_waiting, stall_patience)
    asked = Asked(
        argv=argv,
        plan=plan_of(argv),
        policy=patience(replace(Policy(), probe=not no_probe)),
        observer=OBSERVER,
        mark=not no_mark,
        pipe=pipe,
        stdin_fd=sys.stdin.fileno() if use_stdin else None,
        on_observer_death=on_observer_death,
        api_key_env=api_key_env,
    )
    try:
        folder, keeper = launch(asked)
    except LaunchRefused as error:
        if as_json:
            answer(Follower(folder=error.folder).stored(), True)
        give_up(str(error), error.code)
    except OSError as error:
        give_up(f"no folder for the run can be made: {error}; set FIRSTTOKEN_HOME to a folder that can be written", 73)
    note(f"run {folder.name} (pid {keeper.server.pid}) in {folder.path}")
    to_stderr = as_json or events
    follower = Follower(
        folder=folder,
        hello="face",
        log_from=None if quiet or detach else 0,
        patience=patience,
        on_change=lambda result: note(change_line(result)),
        on_log=lambda data: _pass_through(data, to_stderr),
        on_event=_print_event if events else _ignore,
    )
    try:
        if detach:
            return _detached(follower, max_wait, as_json, events)
        foreground = Foreground(follower, until_ready=until is not None, stop_on_hung=on_hung == "stop", said=note)
        seen, code = asyncio.run(foreground.run())
        _tell(seen.result, as_json, events)
        return code
    finally:
        keeper.release()


def _detached(follower: Follower, max_wait: float | None, as_json: bool, events: bool) -> int:
    """Ctrl-C on the way lets go too: the server was asked for, the waiting was not."""

    async def follow() -> Seen:
        try:
            return await follower.until_decided(max_wait=max_wait)
        finally:
            await follower.say_bye()

    try:
        seen = asyncio.run(follow())
    except KeyboardInterrupt:
        note(f"let go; the server goes on: firsttoken wait {follower.folder.name}, firsttoken stop {follower.folder.name}")
        raise
    _tell(seen.result, as_json, events)
    return seen.code if seen.code is not None else TIMED_OUT


def _tell(result: Result, as_json: bool, events: bool) -> None:
    if as_json:
        answer(result, True)
    elif not events:
        from firsttoken.report.text import summary

        click.echo(summary(result), err=True)


def _pass_through(data: bytes, to_stderr: bool) -> None:
    """A reader that went away (`| head`) does not end the run."""
    stream = sys.stderr.buffer if to_stderr else sys.stdout.buffer
    try:
        stream.write(data)
        stream.flush()
    except OSError:
        pass


def _print_event(event: Event) -> None:
    sys.stdout.write(encode(event).decode("utf8", "replace"))
    sys.stdout.flush()


def _ignore(_: Event) -> None:
    return None
