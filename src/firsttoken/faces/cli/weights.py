"""`firsttoken weights`: how long they take to load, how the load of a run went, and a prefetch into memory."""

import asyncio
import os
import sys
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from firsttoken.faces.cli.say import Problem, find_run, give_up, json_option, note, print_document
from firsttoken.model.exits import INTERRUPTED, USAGE

if TYPE_CHECKING:
    from firsttoken.session.loading.prefetch import PrefetchProcess

_FAILED = 1


@click.command(context_settings={"allow_interspersed_args": False}, options_metavar="[OPTIONS] [--]")
@click.argument(
    "what",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="[PATH|RUN|COMMAND…]",
    shell_complete=lambda ctx, param, part: [CompletionItem(part, "file")],
)
@click.option("--prefetch", is_flag=True, help="Read the weights into the page cache, as fast as the storage gives them.")
@click.option("--measure", is_flag=True, help="Measure the storage anew, also where its rate is remembered.")
@json_option
def command(what: tuple[str, ...], prefetch: bool, measure: bool, as_json: bool) -> int:
    """Say how long the weights of a model take to load: PATH is a folder, or a file with its other parts, or COMMAND one that loads them.
    Of a RUN (the latest where nothing is named): at what rate they were loaded, from where, and why not faster.

    The page cache is looked at, and the storage measured for a moment, past the cache; its rate is remembered for a day. Nothing is
    launched. A mount that gives no answer is told within 10 s. With --prefetch, Ctrl-C stops. Status 1 where a file is broken or nothing
    can be told.
    """
    behind = set(what[1:])
    if behind and behind <= {"--prefetch", "--measure", "--json"}:  # options of ours behind a path or a run: no server has just these
        what, prefetch, measure, as_json = (
            what[:1],
            prefetch or "--prefetch" in behind,
            measure or "--measure" in behind,
            as_json or "--json" in behind,
        )
    from firsttoken.report.weights import forecast_document, forecast_text, load_document, load_text
    from firsttoken.session.loading.weights import WeightsUnknown, forecast, load_of

    if what[:1] == ("",):
        raise click.UsageError("the first word is empty (a variable that is not set?): give a PATH, a RUN or a command")
    run = _run_name(what)
    if run is not None and not prefetch:
        folder = find_run(run or None)
        row = asyncio.run(load_of(folder, anew=measure))
        if as_json:
            print_document(load_document(row, folder.name))
        else:
            click.echo(load_text(row))
        return 0 if row.says else _FAILED
    if len(what) > 1 and _is_folder(what[0]):
        raise click.UsageError(f"{what[0]} is a folder, and more words follow: give one PATH at a time, or a command behind `--`")
    if not what:
        raise click.UsageError("nothing to prefetch is named: firsttoken weights --prefetch PATH, or -- COMMAND")
    request = {"path": what[0]} if len(what) == 1 else {"argv": list(what)}
    try:
        found, told = asyncio.run(forecast(request, anew=measure))
    except WeightsUnknown as error:
        give_up(str(error), USAGE if "nothing is there" in str(error) else _FAILED)
    if not as_json:
        click.echo(forecast_text(told))
    if not prefetch:
        if as_json:
            print_document(forecast_document(told))
        return _FAILED if found.problems else 0
    from firsttoken.report.weights import size
    from firsttoken.session.loading.prefetch import PrefetchProcess

    with PrefetchProcess(found) as process:
        try:
            _follow(process)
        except KeyboardInterrupt:
            process.stop()
            for _ in process.updates():
                pass
    last = process.last
    rate = f" at {size(last.bytes_per_s)}/s" if last.bytes_per_s else ""
    note(f"{size(last.done)} of {size(last.bytes)} are in memory; {size(last.read)} came from storage in {last.seconds:.1f} s{rate}")
    if last.ended == "room":
        note("memory (or the cgroup's limit) has no room for more: the rest will be read when the engine wants it")
    if as_json:
        # of a load that is now warm: what was told before the prefetch, and what the prefetch did
        done = {name: getattr(last, name) for name in ("done", "read", "seconds", "way", "ended", "problem")}
        print_document({**forecast_document(told), "prefetch": done})
    if last.ended == "error":
        raise Problem(f"the prefetch broke off: {last.problem}", _FAILED)
    return INTERRUPTED if last.ended == "stopped" else 0


def _run_name(what: tuple[str, ...]) -> str | None:
    """The name of a run, "" for the latest, None where something else is meant. A path is not looked for: its mount may be dead."""
    if not what:
        return ""
    if len(what) > 1 or what[0].startswith((".", "~")):
        return None
    from firsttoken.history.runs import home, runs

    if what[0].startswith(str(home())):
        return what[0]
    if os.sep in what[0]:
        return None
    if not any(what[0] in run.name for run in runs()):
        return None
    from firsttoken.session.far_files import FAR

    return what[0] if not FAR.far(os.path.abspath(what[0])) and not os.path.lexists(what[0]) else None


def _is_folder(path: str) -> bool:
    """Of this machine: a mount may be dead. A bare word is a program, whatever lies beside us."""
    from firsttoken.session.far_files import FAR

    return os.sep in path and not FAR.far(os.path.abspath(path)) and os.path.isdir(path)


def _follow(process: "PrefetchProcess") -> None:
    """The bar on stderr where that is a terminal."""
    if not sys.stderr.isatty():
        for _ in process.updates():
            pass
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("into memory"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("prefetch", total=process.last.bytes)
        for now in process.updates():
            bar.update(task, completed=now.done)
