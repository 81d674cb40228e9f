"""`firsttoken bundle`: one archive with all that a run recorded, for somebody on another machine."""

from pathlib import Path

import click

from firsttoken.faces.cli.say import Problem, find_run, json_option, print_document, run_argument


@click.command()
@run_argument
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Where to; else RUN.tar.gz here.")
@json_option
def command(run: str | None, output: Path | None, as_json: bool) -> int:
    """Pack RUN into one redacted archive: events, log, plan, result and a manifest.

    Secrets in the log are masked at equal length. `explain` and `replay` read the archive as they read the run.
    """
    from firsttoken.session.bundle import bundle

    folder = find_run(run)
    target = output or Path(f"{folder.name}.tar.gz")
    try:
        manifest = bundle(folder, target)
        size = target.stat().st_size
    except OSError as error:
        raise Problem(f"the bundle cannot be written to {target}: {error.strerror or error}; name another place with -o") from error
    if as_json:
        print_document({**manifest, "path": str(target.resolve())})
    else:
        click.echo(f"{target}  {size / 1e6:.1f} MB, {len(manifest['files'])} files")
        click.echo("secrets that are known by name, shape or value are masked; look through it before you make it public")
        click.echo(f"to read it: firsttoken explain {target}")
    return 0
