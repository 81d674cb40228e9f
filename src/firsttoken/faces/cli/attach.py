"""`firsttoken attach [PID | URL]`: a server that somebody else started, watched and asked, never touched."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from firsttoken.faces.cli.amounts import Seconds
from firsttoken.faces.cli.outlet import Outlet
from firsttoken.faces.cli.patience import Patience, patience_options
from firsttoken.faces.cli.run import live_view_on
from firsttoken.faces.cli.say import answer, explained, give_up, json_option, note, print_document
from firsttoken.faces.cli.signposts import Signposts, ready_file_option, termination_log_option
from firsttoken.history.runs import RunNotFound, find
from firsttoken.hosts.procfs import Procfs
from firsttoken.model.codec import encode
from firsttoken.model.events import Event, Missed, ObserverStarted
from firsttoken.model.exits import CANNOT_CREATE, INTERRUPTED, TIMED_OUT, USAGE
from firsttoken.model.plan import Policy
from firsttoken.model.redact import mask_argv
from firsttoken.model.result import Result
from firsttoken.report.document import document
from firsttoken.report.text import change_line, summary
from firsttoken.session.attaching.aim import Aim, NoAim, take_aim
from firsttoken.session.attaching.attach import Attachment
from firsttoken.session.attaching.log_source import Found, find_log, given
from firsttoken.session.attaching.network import enter_network, same_network
from firsttoken.session.attaching.servers import Server
from firsttoken.session.follow import Follower, Seen
from firsttoken.session.observer import Senses
from firsttoken.session.tend import run_state

if TYPE_CHECKING:
    from firsttoken.faces.cli.live import LiveView


@click.command()
@click.argument("server", required=False, metavar="[PID | URL]")
@click.option("--log", "log_file", metavar="FILE", help="The server's log, where its standard output does not lead to it.")
@click.option("--follow", "-f", "stay", is_flag=True, help="Go on after the decision, until the server ends.")
@click.option("--max-wait", type=Seconds(), metavar="S", help="Return after S seconds with the state so far (status 124).")
@patience_options
@click.option("--no-probe", is_flag=True, help="Send no request; readiness then stays a claim.")
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the server's API key; it is sent to the URL given.")
@ready_file_option
@termination_log_option
@click.option("--events", is_flag=True, help="All events as JSON lines on stdout.")
@json_option
def command(
    server: str | None,
    log_file: str | None,
    stay: bool,
    max_wait: float | None,
    max_waiting: float | None,
    stall_patience: float | None,
    no_probe: bool,
    api_key_env: str | None,
    ready_file: Path | None,
    termination_log: Path | None,
    events: bool,
    as_json: bool,
) -> int:
    """Follow a server that firsttoken did not start: by any pid of it, by its URL, or the only one that runs here.

    Returns at the first decision. Statuses: 0 ready, 69 failed or crashed, 70 hung, 71 unserving, 75 waiting or stalled beyond patience,
    76 unknown, 124 time is up. The server gets no signal, and two short requests at most.
    """
    from firsttoken.wiring import attachment, finder, plan_of_server, senses_of

    if as_json and events:
        raise click.UsageError("--json gives one document and --events many lines: choose one of them")
    if api_key_env is not None and not os.environ.get(api_key_env):
        give_up(f"--api-key-env {api_key_env}: that variable is not set; export it, or leave the option out", USAGE)
    signposts = Signposts(ready_file=ready_file, termination_log=termination_log)
    signposts.begin()
    patience = Patience(max_waiting, stall_patience)
    policy = patience(replace(Policy(), probe=not no_probe))
    try:
        aim = take_aim(server, finder(), plan_of_server)
    except NoAim as error:
        if as_json and error.servers:
            print_document(document("servers", servers=[_fields(one) for one in error.servers]))
        give_up(str(error), error.code)
    unseen = _unseen(aim)
    if aim.server is not None and not same_network(aim.server.process.pid, Procfs()):
        why = enter_network(aim.server.process.pid)
        if why is not None:
            policy = replace(policy, probe=False)
            unseen.append(Missed(request="a first token", reason=_elsewhere(aim.server, why)))
    log = _log(aim, log_file)
    if log.missing is not None:
        unseen.append(Missed(request="the server's log", reason=log.missing))
    try:
        attached = attachment(aim, policy, log)
    except OSError as error:
        give_up(
            f"no folder for the run can be made ({error.strerror or error}); set FIRSTTOKEN_HOME to a folder that can be written",
            CANNOT_CREATE,
        )
    attached.unseen.extend(unseen)
    words, out = Outlet(2), Outlet(1)
    view = None if as_json or events else live_view_on(words, prints=False)
    try:
        said = signposts.said = _sayer(view or words)
        _introduce(attached, said)
        teller = _Teller(None if view is not None else said, out if events else None, signposts)

        def make(**given: Any) -> Follower:
            follower = Follower(patience=patience, on_change=teller.changed, on_event=teller.happened, **given)
            if view is not None:
                view.watching(follower)
            return follower

        with view or nullcontext():
            seen, code = _followed(attached, senses_of(attached, api_key_env), make, max_wait, stay, said)
        signposts.ended(seen.result, serves=seen.ended is None)
        told = explained(seen.result, attached.folder)
        if not as_json and not events:
            words.line(summary(told))
    finally:
        out.close()
        words.close()
    if as_json:
        answer(told, True)
    return code


class _Teller:
    """Verdicts as they change, from where we look on; what was before stands in the summary. `said` None: a live view shows them."""

    def __init__(self, said: Callable[[str], None] | None, out: Outlet | None, signposts: Signposts) -> None:
        self._said, self._out, self._signposts = said, out, signposts
        self._live = False
        self._last: Result | None = None

    def changed(self, result: Result) -> None:
        self._last = result
        if self._live:
            self._tell(result)

    def happened(self, event: Event) -> None:
        if self._out is not None:
            self._out.write(encode(event))
        if isinstance(event.body, ObserverStarted):
            self._live = True
            if self._last is not None:
                self._tell(self._last)

    def _tell(self, result: Result) -> None:
        self._signposts.changed(result)
        if self._said is not None:
            self._said(change_line(result))


def _followed(
    attached: Attachment,
    senses: Senses,
    follower: Callable[..., Follower],
    max_wait: float | None,
    stay: bool,
    said: Callable[[str], None],
) -> tuple[Seen, int]:
    """A signal lets go: nothing is sent on to the server."""
    made: list[Follower] = []
    caught: list[signal.Signals] = []

    def make(**given: object) -> Follower:
        made.append(follower(**given))
        return made[0]

    def decided(seen: Seen) -> None:
        if stay and seen.ended is None:
            said(f"{seen.result.verdict}: {seen.result.reason} (following on; Ctrl-C lets go)")

    async def follow() -> Seen | None:
        loop = asyncio.get_running_loop()
        work = asyncio.ensure_future(attached.follow(senses, make, max_wait=max_wait, stay=stay, decided=decided))

        def let_go(number: signal.Signals) -> None:
            caught.append(number)
            work.cancel()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, let_go, number)
        try:
            return await work
        except asyncio.CancelledError:
            return None

    seen = asyncio.run(follow())
    if seen is None:
        said("let go; the server was not touched")
        result = made[0].result() if made else Follower(folder=attached.folder).stored()
        return Seen(result=result), 128 + caught[0] if caught else INTERRUPTED
    return seen, seen.code if seen.code is not None else TIMED_OUT


def _unseen(aim: Aim) -> list[Missed]:
    if aim.server is None:
        return [Missed(request="processes, memory and log", reason=note) for note in aim.notes]
    if aim.server.hidden:
        return [Missed(request="the server's environment", reason="it may not be read (another user's process?), nor may its open files")]
    return []


def _elsewhere(server: Server, why: str) -> str:
    return (
        f"the server listens in a network of its own (a container's), which may not be entered ({why}): give the URL that is "
        f"published for it, or run `nsenter -t {server.process.pid} -n firsttoken attach {server.process.pid}` as root"
    )


def _log(aim: Aim, log_file: str | None) -> Found:
    if log_file is not None:
        try:
            return given(log_file)
        except OSError as error:
            give_up(
                f"--log {log_file}: {error.strerror or error}; give the file that the server writes to, or leave the option out",
                USAGE,
            )
    if aim.server is None:
        return Found()
    recorded = None
    if aim.server.mark:
        try:
            folder = find(aim.server.mark)
        except (RunNotFound, OSError):
            pass
        else:
            recorded = folder.path / "log" / "head.raw"
            if run_state(folder) == "running":
                note(f"this server is followed as run {folder.name} already: `firsttoken wait {folder.name}` tells the same")
    return find_log(aim.server, recorded=recorded)


def _introduce(attached: Attachment, said: Callable[[str], None]) -> None:
    aim = attached.aim
    what = f"pid {aim.server.process.pid}" if aim.server is not None else aim.target.base_url if aim.target is not None else ""
    if aim.server is not None and aim.server.uid != os.getuid():
        what += f" of user {aim.server.user or aim.server.uid}"
    said(f"attached to {what} ({attached.plan.engine or 'engine not recognised yet'}) as run {attached.folder.name}")
    for text in aim.notes:
        said(text)
    said(f"its log: {', '.join(source.shown for source in attached.log.sources)}" if attached.log.sources else "its log cannot be read")


def _fields(server: Server) -> dict[str, object]:
    return {
        "pid": server.process.pid,
        "user": server.user,
        "engine": server.engine,
        "age_s": server.age_s,
        "command": list(mask_argv(server.argv)),
        "run": server.mark,
    }


def _sayer(words: "Outlet | LiveView") -> Callable[[str], None]:
    return lambda text: words.line(f"firsttoken: {text}")
