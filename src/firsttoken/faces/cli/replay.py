"""`firsttoken replay`: the recorded events through today's judge."""

import click

from firsttoken.faces.cli.say import answer, json_option, note, open_run, run_argument
from firsttoken.judge.outcome import result
from firsttoken.session.replay import replay


@click.command()
@run_argument
@click.option("--check", is_flag=True, help="Status 1 where today's verdicts differ from the recorded ones.")
@json_option
def command(run: str | None, check: bool, as_json: bool) -> int:
    """Judge RUN, or the run in a bundle, again from its recorded events.

    The same version gives the same verdicts, another one differences that are shown.
    """
    with open_run(run) as (folder, shown):
        replayed = replay(folder.events())
    for change in replayed.changes:
        click.echo(f"{change.t:8.1f} s  {change.verdict:<10} {change.phase:<17} {change.reason}", err=as_json)
    if not replayed.same:
        then = ", ".join(f"{verdict} in {phase}" for verdict, phase in replayed.recorded)
        note(f"recorded by version {replayed.version or 'unknown'} were: {then}")
    if as_json:
        answer(result(replayed.state, shown), True)
    return 1 if check and not replayed.same else 0
