"""`firsttoken wait`: one blocking call in place of many polls. It returns at a decision, or with the state so far."""

import asyncio

import click

from firsttoken.faces.cli.patience import Patience, Seconds, patience_options
from firsttoken.faces.cli.say import answer, find_run, json_option, run_argument
from firsttoken.model.exits import TIMED_OUT
from firsttoken.session.follow import Follower, Seen


@click.command()
@run_argument
@click.option("--max-wait", type=Seconds(), metavar="S", help="Return after S seconds with the state so far (status 124).")
@patience_options
@json_option
def command(run: str | None, max_wait: float | None, max_waiting: float | None, stall_patience: float | None, as_json: bool) -> int:
    """Wait for the decision on RUN (the latest where none is named).

    Statuses: 0 ready, 69 failed or crashed, 70 hung, 71 unserving, 75 waiting or stalled beyond patience, 76 unknown, 124 time is up.
    """
    follower = Follower(folder=find_run(run), patience=Patience(max_waiting, stall_patience))

    async def follow() -> Seen:
        try:
            return await follower.until_decided(max_wait=max_wait)
        finally:
            await follower.leave()

    seen = asyncio.run(follow())
    answer(seen.result, as_json)
    return seen.code if seen.code is not None else TIMED_OUT
