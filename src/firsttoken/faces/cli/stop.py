"""`firsttoken stop`: the end of a run and of everything that it started."""

import asyncio

import click

from firsttoken.faces.cli.amounts import Seconds
from firsttoken.faces.cli.say import find_run, give_up, json_option, print_document, run_argument
from firsttoken.history.runs import RunFolder, runs
from firsttoken.model.exits import USAGE
from firsttoken.report.document import document
from firsttoken.session.tend import NotOurs, run_state, stop


@click.command()
@run_argument
@click.option("--force", is_flag=True, help="Escalate to SIGKILL also where the server was ready and drains.")
@click.option("--max-wait", type=Seconds(), default=120, show_default=True, metavar="S", help="Give up waiting after S seconds.")
@json_option
def command(run: str | None, force: bool, max_wait: float, as_json: bool) -> int:
    """End RUN (where none is named: the latest that still runs); returns when no process of it is left.

    A server that starts is ended by a ladder of signals; one that was ready gets a single SIGTERM and may drain (--force cuts that short).
    """
    folder = find_run(run) if run is not None else _latest_running()
    try:
        stopped = asyncio.run(stop(folder, force=force, max_wait=max_wait))
    except NotOurs as error:
        give_up(str(error), USAGE)
    if as_json:
        print_document(document("stopped", run=folder.name, was=stopped.was, ended=stopped.ended, left=list(stopped.left)))
    else:
        click.echo(f"{folder.name}: {stopped.text}")
    if stopped.left:
        give_up(
            f"processes of the run are still there: {', '.join(map(str, stopped.left))}; `firsttoken stop --force {folder.name}` ends them",
            75,
        )
    return 0


def _latest_running() -> RunFolder:
    """A run that ended, or a launch that failed, since then is not what somebody wants to stop."""
    return next((folder for folder in reversed(runs()) if run_state(folder) in ("running", "left")), None) or find_run(None)
