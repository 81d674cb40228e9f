"""`firsttoken report`: a run to be read by others: text, Markdown for an issue, one HTML page."""

from pathlib import Path

import click

from firsttoken.faces.cli.say import Problem, answer, open_run, run_argument, write_out

_FORMATS = {".html": "html", ".htm": "html", ".md": "markdown", ".markdown": "markdown", ".json": "json"}


@click.command()
@run_argument
@click.option("--format", "form", type=click.Choice(["text", "markdown", "html", "json"]), help="Else by the name of FILE, else text.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Where to; else stdout.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json: the result document.")
def command(run: str | None, form: str | None, output: Path | None, as_json: bool) -> int:
    """Report on RUN, or on the run in a bundle: what happened, the proof, causes, phases by rank, stacks, counters, the lines of the log.

    Markdown is made to be pasted into the engine's issue template. HTML is one page that works offline. Secrets that are known by name,
    shape or value are masked in all of them.
    """
    from firsttoken.report.document import result_document, to_json
    from firsttoken.report.html import html
    from firsttoken.report.markdown import markdown
    from firsttoken.report.report_text import report_text
    from firsttoken.session.report import report_of

    form = form or ("json" if as_json else _FORMATS.get(output.suffix.lower(), "text") if output is not None else "text")
    try:
        with open_run(run) as (folder, shown):
            report = report_of(folder, shown, here=str(folder.path) == shown)
    except OSError as error:
        raise Problem(f"{error.filename or run}: {error.strerror or error}; the run cannot be read") from error
    if form == "json" and output is None:
        answer(report.result, True)
        return 0
    forms = {"html": html, "markdown": markdown, "text": report_text}
    written = to_json(result_document(report.result)) if form == "json" else forms[form](report)
    if output is None:
        click.echo(written)
        return 0
    try:
        size = write_out(output, written + ("" if written.endswith("\n") else "\n"))
    except OSError as error:
        raise Problem(f"the report cannot be written to {output}: {error.strerror or error}; name another place with -o") from error
    click.echo(f"{output}  {size / 1e3:.0f} kB", err=True)
    return 0
