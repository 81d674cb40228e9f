"""`firsttoken check -- COMMAND`: will it start? Weights, memory and machine are looked at; nothing is launched."""

import asyncio

import click
from click.shell_completion import CompletionItem

from firsttoken.faces.cli.say import Problem, json_option, print_document
from firsttoken.model.checks import exit_status
from firsttoken.model.gpu_code import Capability


class _Gibibytes(click.ParamType[float]):
    name = "GB"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            found = float(str(value).lower().removesuffix("b").removesuffix("i").removesuffix("g"))
        except ValueError:
            found = 0.0
        if not 0 < found < 1e6:
            self.fail(f"{value!r} is no memory of a GPU; write it in GiB, like 80", param, ctx)
        return found * (1 << 30)


@click.command(context_settings={"allow_interspersed_args": False}, options_metavar="[OPTIONS] [--]")
@click.argument(
    "argv", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND…", shell_complete=lambda ctx, param, part: [CompletionItem(part, "file")]
)
@click.option("--gpu", "capability", metavar="SM", multiple=True, help="Check for this GPU (sm_120), not for those of this machine.")
@click.option("--gpu-memory", type=_Gibibytes(), metavar="GB", help="Memory of such a GPU, in GiB.")
@click.option("--quick", is_flag=True, help="Only what `run` looks at: no kernels, no GPU's memory, no network.")
@json_option
def command(argv: tuple[str, ...], capability: tuple[str, ...], gpu_memory: float | None, quick: bool, as_json: bool) -> int:
    """Say what COMMAND will meet, before it is launched: kernels for this GPU, weights, memory, machine.

    Status 0: nothing is in the way; 1: warnings; 78: the start will fail. Nothing is launched, and nothing is imported from the engine's
    environment.
    """
    from firsttoken.report.checks import checks_document, checks_text
    from firsttoken.session.checking.apart import CheckFailed, check_apart

    if not argv:
        raise click.UsageError("there is no command to check. Put it behind `--`: firsttoken check -- vllm serve MODEL")
    try:
        capabilities = tuple(Capability.parse(text) for text in capability)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--gpu") from error
    try:
        report = asyncio.run(check_apart(argv, quick=quick, gpu_memory=gpu_memory, capabilities=capabilities))
    except CheckFailed as error:
        raise Problem(str(error)) from error
    if as_json:
        print_document(checks_document(report))
    else:
        click.echo(checks_text(report))
    return exit_status(report.checks)
