"""`firsttoken explain`: a run, a log, a case folder or an archive, read as somebody who has seen many bug reports would read it."""

import gc
import sys
from pathlib import Path

import click

from firsttoken.faces.cli.say import Problem, answer, find_run, json_option, refuse_silent

_ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")


@click.command()
@click.argument("target", metavar="[TARGET]", required=False)
@json_option
def command(target: str | None, as_json: bool) -> int:
    """Explain TARGET: a run (name or folder; the latest where nothing is named), a log file (`-`: stdin), a folder as attached to a bug
    report, or a bundle or other archive (.tar.gz, .zip) of either.
    """
    gc.set_threshold(100_000)  # one answer and the end: loading makes much, and no garbage (saves a tenth of the time)
    from firsttoken.model.attached import Attached
    from firsttoken.session.bundle import BadArchive, explain_archive, is_archive_file
    from firsttoken.session.explain import explain, explain_path, explain_run
    from firsttoken.survey.case_folder import LOG_LIMIT, is_case

    if target is None:
        answer(explain_run(find_run(None)), as_json)
        return 0
    path = Path(target)
    refuse_silent(path)
    try:
        if target == "-":
            answer(explain(Attached(log=sys.stdin.buffer.read(LOG_LIMIT))), as_json)
        elif is_archive_file(target):
            answer(explain_archive(path), as_json)
        elif path.is_file() and path.name.lower().endswith(_ARCHIVES):
            raise Problem(f"{target} is named as an archive and is none: it is damaged, or was renamed; send it again", 2)
        elif path.is_file() or (path.is_dir() and is_case(path) and not (path / "events.jsonl").exists()):
            answer(explain_path(path), as_json)
        elif path.exists() and not path.is_dir():
            raise Problem(f"{target} is a pipe or a device, not a file; hand its text over on stdin: firsttoken explain - < {target}", 2)
        elif path.is_dir() and not (path / "events.jsonl").exists():
            names = "command.txt, server.log, stacks/, processes.txt, gpus.csv, probes.txt, flight_recorder/"
            raise Problem(f"{target} holds nothing to explain; put any of {names} there", 2)
        else:
            answer(explain_run(find_run(target)), as_json)
    except BadArchive as error:
        raise Problem(str(error), 2) from error
    except OSError as error:
        raise Problem(f"{target} cannot be read: {error.strerror or error}", 2) from error
    return 0
