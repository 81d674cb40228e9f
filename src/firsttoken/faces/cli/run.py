"""`firsttoken run -- COMMAND`: launch, follow, tell."""

import asyncio
import fcntl
import os
import shlex
import signal
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from firsttoken.faces.cli.amounts import Seconds
from firsttoken.faces.cli.outlet import Outlet
from firsttoken.faces.cli.patience import Patience, patience_options
from firsttoken.faces.cli.say import answer, explained, give_up, json_option, note
from firsttoken.faces.cli.signposts import Signposts, notify_socket, ready_file_option, termination_log_option
from firsttoken.history.runs import RunFolder
from firsttoken.launch.start import KeeperHandle
from firsttoken.model.checks import Outcome
from firsttoken.model.codec import encode
from firsttoken.model.events import Checked, Event, Prefetched
from firsttoken.model.exits import CANNOT_CREATE, INTERRUPTED, TIMED_OUT, USAGE
from firsttoken.model.plan import Policy
from firsttoken.model.result import Result
from firsttoken.report.checks import check_line
from firsttoken.report.text import change_line, prefetch_line, summary
from firsttoken.session.follow import Follower, Seen
from firsttoken.session.foreground import Foreground, held_signals
from firsttoken.session.launch import Asked, LaunchRefused, launch

if TYPE_CHECKING:
    from firsttoken.faces.cli.live import LiveView


@click.command(context_settings={"allow_interspersed_args": False}, options_metavar="[OPTIONS] [--]")
@click.argument(
    "argv", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND…", shell_complete=lambda ctx, param, part: [CompletionItem(part, "file")]
)
@click.option("--detach", "-d", is_flag=True, help="Return at the first decision; the server goes on.")
@click.option("--until", type=click.Choice(["ready"]), help="End at the first decision with its status, and end the server.")
@click.option("--max-wait", type=Seconds(), metavar="S", help="With --detach or --until: decide within S seconds, else status 124.")
@patience_options
@click.option(
    "--on-hung", type=click.Choice(["keep", "stop"]), default="keep", show_default=True, help="What to do with a server proven hung."
)
@click.option(
    "--on-observer-death",
    type=click.Choice(["keep", "stop"]),
    default="keep",
    show_default=True,
    help="What becomes of the server when firsttoken dies.",
)
@click.option("--no-probe", is_flag=True, help="Send no request; readiness then stays a claim.")
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the server's API key.")
@click.option("--no-check", is_flag=True, help="Leave out the quick checks (`firsttoken check --quick`), which run beside the start.")
@click.option("--prefetch", is_flag=True, help="Read the weights into the page cache beside the start, ahead of the engine.")
@click.option("--no-mark", is_flag=True, help="Add nothing to the server's environment (FIRSTTOKEN_RUN otherwise).")
@click.option(
    "--arm", is_flag=True, help="Set torch's flight recorder, fault handlers and GPU core dumps for this launch, and say what was set."
)
@click.option("--pipe", is_flag=True, help="Give the server a pipe instead of a terminal for its output.")
@click.option("--stdin", "use_stdin", is_flag=True, help="Give the server our standard input (/dev/null otherwise).")
@ready_file_option
@termination_log_option
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
    no_check: bool,
    prefetch: bool,
    no_mark: bool,
    arm: bool,
    pipe: bool,
    use_stdin: bool,
    ready_file: Path | None,
    termination_log: Path | None,
    quiet: bool,
    events: bool,
    as_json: bool,
) -> int:
    """Launch COMMAND, unmodified, and follow it to its first token, or to the reason why not.

    In the foreground the server's output passes through, signals pass on, and the status is the server's own. With --until ready or
    --detach it is that of the decision: 0 ready, 69 failed or crashed, 70 hung, 71 unserving, 75 out of patience, 76 unknown,
    124 time is up. The server's output goes to stdout, or to stderr where stdout has --json or --events.
    """
    from firsttoken.session.planning import OBSERVER, plan_of

    _check(argv, as_json=as_json, events=events, max_wait=max_wait, decides=detach or until is not None, api_key_env=api_key_env)
    signposts = Signposts(ready_file=ready_file, termination_log=termination_log, notify_socket=notify_socket())
    signposts.begin()
    patience = Patience(max_waiting, stall_patience)
    asked = Asked(
        argv=argv,
        plan=plan_of(argv),
        policy=patience(replace(Policy(), probe=not no_probe)),
        observer=OBSERVER,
        check=not no_check,
        prefetch=prefetch,
        mark=not no_mark,
        pipe=pipe,
        stdin_fd=fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3) if use_stdin else None,  # 0 is the keeper's own
        on_observer_death=on_observer_death,
        api_key_env=api_key_env,
        arm=arm,
    )
    with held_signals() as held:
        folder, keeper = _launch(asked, as_json, signposts)
        words, out = Outlet(2), Outlet(1)
        view = None if as_json or events or quiet or use_stdin else live_view_on(words, prints=not detach)
        said = signposts.said = _sayer(view or words)
        said(f"run {folder.name} (pid {keeper.server.pid}) in {folder.path}")
        if arm:
            said(_armed(folder.spec().get("armed") or {}))
        if (previous := folder.spec().get("previous")) is not None:
            said(previous["text"])
        output = words if as_json or events else view if view is not None and view.shares_stdout else out

        def changed(result: Result) -> None:
            signposts.changed(result)
            if view is None:
                said(change_line(result))

        def happened(event: Event) -> None:
            signposts.happened(event)
            if isinstance(event.body, Checked):
                for one in event.body.checks:
                    if one.result is Outcome.FAIL:
                        said(check_line(one))
            if isinstance(event.body, Prefetched) and event.body.ended is not None:
                said(prefetch_line(event.body))
            if events:
                out.write(encode(event))

        follower = Follower(
            folder=folder,
            hello="face",
            log_from=None if quiet or detach else 0,
            patience=patience,
            on_change=changed,
            on_log=output.write,
            on_event=happened,
        )
        try:
            with view.watching(follower) if view is not None else nullcontext():
                if detach:
                    seen, code = _detached(follower, max_wait, held, said)
                else:
                    foreground = Foreground(
                        follower, until_ready=until is not None, max_wait=max_wait, stop_on_hung=on_hung == "stop", said=said, held=held
                    )
                    seen, code = asyncio.run(foreground.run())
            signposts.ended(seen.result, serves=detach or until is not None)
            told = explained(seen.result, folder)
            if not as_json and not events:
                words.line(summary(told))
        finally:
            keeper.release()
            out.close()
            words.close()
    if out.lost:
        note(f"{out.lost} bytes were not shown because nobody read them in time; `firsttoken logs {folder.name}` has them")
    if as_json:
        answer(told, True)
    return code


def _armed(env: dict[str, str]) -> str:
    if not env:
        return "--arm has set nothing: a container's environment is its own (give it `-e NAME=value`), or all of it was set already"
    return "armed: " + " ".join(f"{name}={shlex.quote(value)}" for name, value in env.items())


def live_view_on(words: Outlet, *, prints: bool) -> "LiveView | None":
    """A live view where `words` goes to a terminal. What draws is imported for terminals only."""
    if not os.isatty(2):
        return None
    from firsttoken.faces.cli.live import live_view

    return live_view(words, prints=prints)


def _check(argv: tuple[str, ...], *, as_json: bool, events: bool, max_wait: float | None, decides: bool, api_key_env: str | None) -> None:
    if not argv:
        raise click.UsageError("there is no command to launch. Put it behind `--`: firsttoken run -- vllm serve MODEL")
    if as_json and events:
        raise click.UsageError("--json gives one document and --events many lines: choose one of them")
    if max_wait is not None and not decides:
        raise click.UsageError("--max-wait belongs to --detach or --until ready; a foreground run follows its server to the end")
    if api_key_env is not None and not os.environ.get(api_key_env):
        give_up(f"--api-key-env {api_key_env}: that variable is not set; export it, or leave the option out", USAGE)


def _launch(asked: Asked, as_json: bool, signposts: Signposts) -> tuple[RunFolder, KeeperHandle]:
    try:
        return launch(asked)
    except LaunchRefused as error:
        refused = Follower(folder=error.folder).stored()
        signposts.ended(refused, serves=False)
        if as_json:
            answer(refused, True)
        give_up(str(error), error.code)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        give_up(
            f"no folder for the run can be made ({where}{error.strerror or error}); set FIRSTTOKEN_HOME to a folder that can be written",
            CANNOT_CREATE,
        )


def _detached(follower: Follower, max_wait: float | None, held: list[signal.Signals], said: Callable[[str], None]) -> tuple[Seen, int]:
    """A signal on the way lets go: the server was asked for, the waiting was not."""

    async def follow() -> Seen | None:
        loop = asyncio.get_running_loop()
        waiting = asyncio.ensure_future(follower.until_decided(max_wait=max_wait))

        def let_go(number: signal.Signals) -> None:
            held.append(number)
            waiting.cancel()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, let_go, number)
        if held:
            waiting.cancel()
        try:
            return await waiting
        except asyncio.CancelledError:
            return None
        finally:
            await follower.leave()

    seen = asyncio.run(follow())
    if seen is None:
        name = follower.folder.name
        said(f"let go; the server goes on: `firsttoken wait {name}`, `firsttoken stop {name}`")
        return Seen(result=follower.result()), 128 + held[0] if held else INTERRUPTED
    return seen, seen.code if seen.code is not None else TIMED_OUT


def _sayer(words: "Outlet | LiveView") -> Callable[[str], None]:
    return lambda text: words.line(f"firsttoken: {text}")
