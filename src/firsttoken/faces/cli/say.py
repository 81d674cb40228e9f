"""Where words go: answers to stdout, everything said on the way to stderr. With `--json` stdout holds one document and nothing else."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from firsttoken.history.runs import RunFolder, RunNotFound, find, home, runs
from firsttoken.model.exits import USAGE
from firsttoken.model.result import Result
from firsttoken.model.words import Verdict
from firsttoken.report.document import result_document, to_json
from firsttoken.report.text import summary


def known_runs(ctx: click.Context, param: click.Parameter, part: str) -> list[CompletionItem]:
    """The names that the shell's Tab key offers: the latest first, those that begin with `part`, else those that hold it."""
    from firsttoken.session.far_files import FAR

    if FAR.far(os.path.abspath(home())):
        return []  # a key is not to wait for a network
    try:
        names = [folder.name for folder in reversed(runs())]
    except OSError:
        return []
    begun = [name for name in names if name.startswith(part)]
    return [CompletionItem(name) for name in begun or (name for name in names if part in name)]


run_argument = click.argument("run", required=False, metavar="[RUN]", shell_complete=known_runs)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout (schema firsttoken/1), nothing else.")


class Problem(click.ClickException):
    """What happened, what was tried, what to do. `exit_code` 1 unless given."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]  # click's own way; it declares a class variable

    def show(self, file: Any = None) -> None:
        click.echo(f"firsttoken: {self.message}", err=True)


def note(text: str) -> None:
    """Said on the way; a closed or full stderr never stops us."""
    with contextlib.suppress(OSError):
        click.echo(f"firsttoken: {text}", err=True)


def refuse_silent(*paths: str | Path) -> None:
    """A Problem where one of them lies on a mount that gives no answer: whoever opens it would wait for ever."""
    from firsttoken.session.far_files import FAR

    for path in paths:
        if (silence := FAR.silence(os.path.abspath(path))) is not None:
            raise Problem(silence.advice(str(path)))


def write_out(path: Path, text: str) -> int:
    """The whole file or none: it is written beside `path` first. A pipe or a device gets the bytes as it is. Bytes written; OSError, also
    where nobody reads from the pipe."""
    data = text.encode("utf8", "replace")
    if path.exists() and not path.is_file():
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(fd, True)
        with open(fd, "wb") as out:
            out.write(data)
        return len(data)
    target = path.resolve()
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        partial.write_bytes(data)
        if target.exists():
            partial.chmod(target.stat().st_mode & 0o7777)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return len(data)


def find_run(name: str | None) -> RunFolder:
    try:
        return find(name)
    except RunNotFound as error:
        raise Problem(str(error), USAGE) from error
    except OSError as error:
        why = error.strerror or str(error)
        raise Problem(f"the runs' folder cannot be read ({error.filename}: {why}); set FIRSTTOKEN_HOME to a folder of yours") from error


@contextlib.contextmanager
def open_run(name: str | None) -> Iterator[tuple[RunFolder, str]]:
    """A run as `find_run` finds it, or the one in a bundle of that path; and where it is, to be shown."""
    from firsttoken.session.bundle import BadArchive, is_archive_file, opened, run_in

    if name is None or not is_archive_file(name):
        folder = find_run(name)
        yield folder, str(folder.path)
        return
    try:
        with opened(Path(name)) as unpacked:
            run = run_in(unpacked)
            if run is None:
                raise Problem(f"{name} holds no run, but files of a bug report: `firsttoken explain {name}` reads them", USAGE)
            yield run, str(Path(name))
    except BadArchive as error:
        raise Problem(str(error), USAGE) from error


_EXPLAINED = frozenset({Verdict.FAILED, Verdict.CRASHED, Verdict.HUNG, Verdict.UNSERVING, Verdict.STALLED, Verdict.WAITING})


def explained(result: Result, folder: RunFolder) -> Result:
    """A result that somebody has to act on, with the causes that the run's own log tells."""
    from firsttoken.session.far_files import FAR

    if result.verdict not in _EXPLAINED or FAR.silence(str(folder.path)) is not None:
        return result
    from firsttoken.session.explain import explain_run  # not before there is something to explain

    return replace(result, findings=explain_run(folder).findings)


def answer(result: Result, as_json: bool, **more: Any) -> None:
    """`more`: what the document tells besides the result."""
    click.echo(to_json({**result_document(result), **more}) if as_json else summary(result))


def print_document(doc: dict[str, Any]) -> None:
    click.echo(to_json(doc))


def give_up(message: str, code: int = 1) -> NoReturn:
    raise Problem(message, code)
