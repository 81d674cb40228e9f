"""`firsttoken history`: past runs with their outcomes and times; `history prune` forgets old ones."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from firsttoken.faces.cli.say import Problem, json_option, print_document
from firsttoken.faces.cli.status import list_runs, row
from firsttoken.history.runs import remove, runs
from firsttoken.report.document import document


@click.group(invoke_without_command=True)
@click.option("--last", "-n", type=click.IntRange(min=1), metavar="N", help="Only the last N runs.")
@json_option
@click.pass_context
def command(ctx: click.Context, last: int | None, as_json: bool) -> int:
    """Past runs, the latest last."""
    if ctx.invoked_subcommand is not None:
        return 0
    return list_runs(runs()[-(last or 0) :], as_json)


@command.command()
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="Keep the last N runs.")
@click.option("--older-than", type=click.FloatRange(min=0), metavar="DAYS", help="Only runs older than DAYS.")
@click.option("--dry-run", is_flag=True, help="Say what would go, delete nothing.")
@json_option
def prune(keep: int | None, older_than: float | None, dry_run: bool, as_json: bool) -> int:
    """Delete the folders of ended runs. Runs that are still there are never touched."""
    if keep is None and older_than is None:
        raise Problem("say which runs may go: --keep N, --older-than DAYS, or both", 2)
    known = runs()
    old = known[: len(known) - keep] if keep is not None else known
    if older_than is not None:
        limit = datetime.now(UTC) - timedelta(days=older_than)
        old = [run for run in old if datetime.fromtimestamp(Path(run.path).stat().st_mtime, UTC) < limit]
    gone = [run for run in old if row(run)["state"] in ("ended", "none")]
    freed = sum(0 if dry_run else remove(run) for run in gone)
    if as_json:
        print_document(document("pruned", runs=[run.name for run in gone], bytes=freed, dry_run=dry_run))
    else:
        for run in gone:
            click.echo(f"{'would delete' if dry_run else 'deleted'} {run.name}")
        click.echo(f"{len(gone)} runs, {freed / 1e6:.1f} MB freed; {len(old) - len(gone)} kept because they have not ended")
    return 0
