"""`firsttoken rehearse`: the embedded engine, which reads its own arguments."""

import click


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> int:
    """The embedded engine: a real, small server, with faults on demand (`firsttoken rehearse --help`)."""
    from firsttoken.rehearsal.__main__ import main

    return main(list(arguments))
