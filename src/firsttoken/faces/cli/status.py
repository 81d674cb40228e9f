"""`firsttoken status`: the state of a run from its recorded events; without a run, the list of runs."""

import shlex
from typing import Any

import click

from firsttoken.faces.cli.say import answer, explained, find_run, json_option, note, print_document, run_argument
from firsttoken.history.runs import RunFolder, runs
from firsttoken.model.words import OPEN_VERDICTS, Verdict
from firsttoken.report.document import document
from firsttoken.report.text import visible
from firsttoken.session.follow import Follower
from firsttoken.session.tend import run_state


@click.command()
@run_argument
@json_option
def command(run: str | None, as_json: bool) -> int:
    """What RUN is doing now. Without RUN: all runs, the latest last.

    A run is running, ended, left (its keeper was killed, processes of it still live) or none (its launch was broken off).
    """
    if run is None:
        return list_runs(runs(), as_json)
    folder = find_run(run)
    state = run_state(folder)
    answer(explained(Follower(folder=folder).stored(), folder), as_json, state=state)
    if not as_json:
        click.echo(f"\n  state     {state}")
    if state == "left":
        note(f"the keeper of this run is gone and processes of it still live; `firsttoken cleanup {folder.name}` ends them")
    return 0


def list_runs(folders: list[RunFolder], as_json: bool) -> int:
    rows = [row(folder) for folder in folders]
    if as_json:
        print_document(document("runs", runs=rows))
        return 0
    if not rows:
        click.echo("no runs yet; `firsttoken run -- COMMAND` makes one")
    for fields in rows:
        said = f"{fields['run']:<46} {fields['state']:<8} {fields['verdict'] or '-':<10} {fields['phase'] or '-':<17}"
        click.echo(f"{said} {visible(shlex.join(fields['command']))[:60]}")
    return 0


def row(folder: RunFolder) -> dict[str, Any]:
    """From the last result that its observer wrote; an observer that was killed may have left an open verdict of a run that is over."""
    known, state = folder.result(), run_state(folder)
    verdict = known.get("verdict")
    if state not in ("running", "left") and verdict in OPEN_VERDICTS:
        verdict = Verdict.UNKNOWN
    engine = known.get("engine")
    return {
        "run": folder.name,
        "state": state,
        "verdict": verdict,
        "phase": known.get("phase"),
        "engine": engine.get("name") if isinstance(engine, dict) else None,
        "elapsed_s": known.get("elapsed_s"),
        "command": known.get("command") or folder.spec().get("command") or [],
        "started_at": known.get("started_at"),
        "folder": str(folder.path),
    }
