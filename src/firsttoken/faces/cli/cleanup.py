"""`firsttoken cleanup`: what a killed keeper left behind is found by mark, cgroup and process key, and ended."""

import asyncio

import click

from firsttoken.faces.cli.say import find_run, json_option, print_document, run_argument
from firsttoken.history.runs import runs
from firsttoken.report.document import document
from firsttoken.session.tend import cleanup, run_state


@click.command()
@run_argument
@click.option("--dry-run", is_flag=True, help="Say what is left, end nothing.")
@json_option
def command(run: str | None, dry_run: bool, as_json: bool) -> int:
    """End what is left of RUN, or of all runs whose keeper is gone. Runs with a living keeper are never touched."""
    folders = [find_run(run)] if run is not None else runs()
    rows = []
    for folder in folders:
        state = run_state(folder)
        if state == "running":
            if run is not None:
                click.echo(f"{folder.name} still runs under its keeper; `firsttoken stop {folder.name}` ends it", err=as_json)
            continue
        ended, left = asyncio.run(cleanup(folder, dry_run=dry_run))
        if ended or left or run is not None:
            rows.append({"run": folder.name, "ended": list(ended), "left": list(left)})
    if as_json:
        print_document(document("cleanup", runs=rows, dry_run=dry_run))
        return 1 if any(row["left"] for row in rows) and not dry_run else 0
    for row in rows:
        done = ", ".join(map(str, row["ended"])) or "nothing"
        click.echo(f"{row['run']}: {'would end' if dry_run else 'ended'} {done}" + (f"; still there: {row['left']}" if row["left"] else ""))
    if not rows:
        click.echo("nothing is left of any run")
    return 1 if any(row["left"] for row in rows) and not dry_run else 0
