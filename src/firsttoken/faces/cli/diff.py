"""`firsttoken diff`: what changed between two runs."""

import click

from firsttoken.faces.cli.say import find_run, json_option, known_runs, print_document


@click.command()
@click.argument("before", metavar="RUN", shell_complete=known_runs)
@click.argument("after", metavar="RUN", shell_complete=known_runs)
@json_option
def command(before: str, after: str, as_json: bool) -> int:
    """Show what changed from the first RUN to the second: verdict, versions, flags, environment, machine, times of phases."""
    from firsttoken.report.difference import Side, compare, difference_document, difference_text
    from firsttoken.session.follow import Follower

    sides = [Side(result=Follower(folder=folder).stored(), spec=folder.spec()) for folder in (find_run(before), find_run(after))]
    found = compare(*sides)
    if as_json:
        print_document(difference_document(found))
    else:
        click.echo(difference_text(found))
    return 0
