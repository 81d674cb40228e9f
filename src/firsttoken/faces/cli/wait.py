"""`firsttoken wait`: one blocking call in place of many polls. It returns at a decision, or with the state so far."""

import asyncio
from contextlib import nullcontext
from pathlib import Path

import click

from firsttoken.faces.cli.amounts import Seconds
from firsttoken.faces.cli.outlet import Outlet
from firsttoken.faces.cli.patience import Patience, patience_options
from firsttoken.faces.cli.run import live_view_on
from firsttoken.faces.cli.say import answer, explained, find_run, json_option, note, run_argument
from firsttoken.faces.cli.signposts import Signposts, ready_file_option, termination_log_option
from firsttoken.model.exits import TIMED_OUT
from firsttoken.session.follow import Follower, Seen
from firsttoken.session.tend import run_state


@click.command()
@run_argument
@click.option("--max-wait", type=Seconds(), metavar="S", help="Return after S seconds with the state so far (status 124).")
@patience_options
@ready_file_option
@termination_log_option
@json_option
def command(
    run: str | None,
    max_wait: float | None,
    max_waiting: float | None,
    stall_patience: float | None,
    ready_file: Path | None,
    termination_log: Path | None,
    as_json: bool,
) -> int:
    """Wait for the decision on RUN (the latest where none is named).

    Statuses: 0 ready, 69 failed or crashed, 70 hung, 71 unserving, 75 waiting or stalled beyond patience, 76 unknown, 124 time is up.
    """
    follower = Follower(folder=find_run(run), patience=Patience(max_waiting, stall_patience))
    signposts = Signposts(ready_file=ready_file, termination_log=termination_log, said=note)
    signposts.begin()
    words = Outlet(2)
    view = None if as_json else live_view_on(words, prints=False)

    async def follow() -> Seen:
        try:
            return await follower.until_decided(max_wait=max_wait)
        finally:
            await follower.leave()

    try:
        with view.watching(follower) if view is not None else nullcontext():
            seen = asyncio.run(follow())
    finally:
        words.close()
    signposts.ended(seen.result, serves=seen.result.exit.code is None and seen.result.exit.signal is None)
    state = run_state(follower.folder)
    answer(explained(seen.result, follower.folder), as_json, state=state)
    if not as_json and state != "running":
        click.echo(f"\n  state     {state}")
    return seen.code if seen.code is not None else TIMED_OUT
