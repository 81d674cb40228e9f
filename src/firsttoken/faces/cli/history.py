"""`firsttoken history`: past runs with their outcomes and times; `history prune` forgets old ones."""

import time

import click

from firsttoken.faces.cli.amounts import Count
from firsttoken.faces.cli.say import json_option, print_document
from firsttoken.faces.cli.status import list_runs
from firsttoken.history.runs import RunFolder, remove, runs
from firsttoken.report.document import document
from firsttoken.session.tend import run_state


@click.group(invoke_without_command=True)
@click.option("--last", "-n", type=Count(), metavar="N", help="Only the last N runs.")
@json_option
@click.pass_context
def command(ctx: click.Context, last: int | None, as_json: bool) -> int:
    """Past runs, the latest last."""
    if ctx.invoked_subcommand is not None:
        return 0
    known = runs()
    return list_runs(known if last is None else known[max(len(known) - last, 0) :], as_json)


@command.command()
@click.option("--keep", type=Count(), metavar="N", help="Keep the last N runs.")
@click.option("--older-than", type=click.FLOAT, metavar="DAYS", help="Only runs older than DAYS.")
@click.option("--dry-run", is_flag=True, help="Say what would go, delete nothing.")
@json_option
def prune(keep: int | None, older_than: float | None, dry_run: bool, as_json: bool) -> int:
    """Delete the folders of ended runs. Runs that are still there are never touched."""
    if keep is None and older_than is None:
        raise click.UsageError("say which runs may go: --keep N, --older-than DAYS, or both")
    known = runs()
    old = known[: max(len(known) - keep, 0)] if keep is not None else known
    if older_than is not None:
        old = [run for run in old if _age(run) > older_than * 86400]
    gone = [run for run in old if _may_go(run)]
    freed = sum(0 if dry_run else remove(run) for run in gone)
    if as_json:
        print_document(document("pruned", runs=[run.name for run in gone], bytes=freed, dry_run=dry_run))
    else:
        for run in gone:
            click.echo(f"{'would delete' if dry_run else 'deleted'} {run.name}")
        click.echo(f"{len(gone)} runs, {freed / 1e6:.1f} MB freed; {len(old) - len(gone)} kept because they have not ended")
    return 0


_BEING_LAUNCHED = 300.0
"""Seconds. A folder without a keeper may be that of a launch that has just begun."""


def _may_go(run: RunFolder) -> bool:
    state = run_state(run)
    return state == "ended" or (state == "none" and _age(run) > _BEING_LAUNCHED)


def _age(run: RunFolder) -> float:
    """Seconds since something was last put into the folder."""
    return time.time() - run.path.stat().st_mtime
