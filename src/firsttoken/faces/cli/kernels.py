"""`firsttoken kernels`: which GPUs the libraries of an engine have code for."""

import click

from firsttoken.faces.cli.say import give_up, json_option, note, print_document, refuse_silent
from firsttoken.model.exits import USAGE
from firsttoken.model.gpu_code import Capability, Fit, coverage


class _Gpu(click.ParamType):  # type: ignore[type-arg]  # generic in late versions of click only
    name = "GPU"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Capability:
        try:
            return Capability.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command()
@click.argument("what", nargs=-1, required=True, metavar="FILE|PACKAGE|VENV…")
@click.option("--gpu", "gpus", type=_Gpu(), multiple=True, metavar="SM", help="GPU to tell for, like sm_120; else those of this machine.")
@click.option("--names", is_flag=True, help="Look at every kernel by its name; reads the code itself, which takes seconds.")
@json_option
def command(what: tuple[str, ...], gpus: tuple[Capability, ...], names: bool, as_json: bool) -> int:
    """Show which GPU architectures libraries hold code for, and what of it runs on a GPU.

    Reads shared libraries, objects, archives, fat binaries, cubins and PTX directly; needs no GPU, driver or CUDA, and imports nothing.
    Status 1 where a library has nothing that runs on one of the GPUs, or could not be read whole.
    """
    from firsttoken.report.kernels import kernels_document, kernels_text
    from firsttoken.session.kernels import NothingFound, capabilities_of, named_libraries
    from firsttoken.survey.gpus import read_gpus

    if "" in what:
        raise click.UsageError("a word is empty (a variable that is not set?): give a FILE, a PACKAGE or a VENV")
    refuse_silent(*what)
    try:
        found = [named_libraries(item, names=names) for item in what]
    except NothingFound as error:
        give_up(str(error), USAGE)
    seen = tuple(dict.fromkeys(gpus)) or capabilities_of(read_gpus(details=False).found)
    libraries = [library for item in found for library in item.libraries]
    if as_json:
        print_document(kernels_document(libraries, seen, names=names))
    elif libraries:
        click.echo("\n".join(kernels_text(item.libraries, seen, root=str(item.root), names=names) for item in found if item.libraries))
    else:
        click.echo(f"no GPU code in {', '.join(str(item.root) for item in found)}")
    if libraries and not seen:
        note("no GPU is seen here; --gpu sm_120 tells what runs on one")
    nothing_runs = any(library.modules and coverage(library, gpu).fit is Fit.NONE for library in libraries for gpu in seen)
    return 1 if nothing_runs or any(library.problems for library in libraries) else 0
