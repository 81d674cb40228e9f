"""`firsttoken stacks`: where every process stands now, equal stacks merged."""

import asyncio

import click

from firsttoken.faces.cli.say import Problem, find_run, json_option, known_runs, print_document
from firsttoken.model.exits import USAGE
from firsttoken.model.plan import Sizes
from firsttoken.report.picture import Picture, picture_document, picture_text


@click.command()
@click.argument("target", required=False, metavar="[RUN|PID]", shell_complete=known_runs)
@click.option("--all-threads", is_flag=True, help="All threads; otherwise the main thread of each process.")
@click.option(
    "--native", is_flag=True, help="With native frames. This stops each process for about a second; a server that serves is refused."
)
@json_option
def command(target: str | None, all_threads: bool, native: bool, as_json: bool) -> int:
    """Show the stacks of all processes of RUN, or of process PID and its children, once.

    Without --native nothing is stopped for it, and the server need not have been started by firsttoken. Without a target: the latest run.
    """
    from firsttoken.session.stacks import NothingToSee

    try:
        picture = asyncio.run(_picture(target, all_threads, native))
    except NothingToSee as error:
        raise Problem(str(error), USAGE) from error
    if as_json:
        print_document(picture_document(picture))
    else:
        click.echo(picture_text(picture))
    if not picture.groups and not any(one.waits for one in picture.seen):
        why = next((one.error for one in picture.seen if one.error is not None), "no process was left to look at")
        raise Problem(f"no stack could be read: {why}. `firsttoken doctor` says what is missing on this machine")
    return 0


async def _picture(target: str | None, all_threads: bool, native: bool) -> Picture:
    from firsttoken.session.stacks import run_stacks, tree_stacks

    if target is None or not target.isdecimal() or len(target) > 7:  # a pid has at most seven digits, a date eight
        return await run_stacks(find_run(target), all_threads=all_threads, native=native)
    from firsttoken.wiring import finder, plan_of_server, title_patterns

    finder_ = finder()
    server = finder_.server(finder_.root_of(int(target)))
    plan = plan_of_server(server) if server is not None else None
    patterns = title_patterns(plan.engine if plan is not None else None)
    sizes = plan.sizes if plan is not None else Sizes()
    return await tree_stacks(int(target), patterns, sizes, all_threads=all_threads, native=native)
