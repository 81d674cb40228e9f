"""`firsttoken wait`: one blocking call in place of many polls. It returns at a decision, or with the state so far."""

import asyncio

import click

from firsttoken.faces.cli.patience import Patience
from firsttoken.faces.cli.say import answer, find_run, json_option, run_argument
from firsttoken.model.exits import TIMED_OUT
from firsttoken.session.follow import Follower


@click.command()
@run_argument
@click.option("--max-wait", type=click.FloatRange(min=0), metavar="S", help="Return after S seconds with the state so far (status 124).")
@click.option(
    "--max-waiting", type=click.FloatRange(min=0), metavar="S", help="Patience with a start that waits for something outside (600)."
)
@click.option(
    "--stall-patience", type=click.FloatRange(min=0), metavar="S", help="Patience with a stalled start (120; 300 in weights, compile)."
)
@json_option
def command(run: str | None, max_wait: float | None, max_waiting: float | None, stall_patience: float | None, as_json: bool) -> int:
    """Wait for the decision on RUN (the latest where none is named).

    Statuses: 0 ready, 69 failed or crashed, 70 hung, 71 unserving, 75 waiting or stalled beyond patience, 76 unknown, 124 time is up.
    """
    follower = Follower(folder=find_run(run), patience=Patience(max_waiting, stall_patience))
    seen = asyncio.run(follower.until_decided(max_wait=max_wait))
    answer(seen.result, as_json)
    return seen.code if seen.code is not None else TIMED_OUT
