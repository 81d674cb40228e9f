"""`firsttoken completion SHELL`: a script that teaches the shell our commands, options and runs."""

import click
from click.shell_completion import get_completion_class

from firsttoken.faces.cli.say import give_up

_VARIABLE = "_FIRSTTOKEN_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    """Print the completion script of SHELL.

    bash: eval "$(firsttoken completion bash)" in ~/.bashrc. zsh: the same in ~/.zshrc, after compinit.
    fish: firsttoken completion fish > ~/.config/fish/completions/firsttoken.fish
    """
    found = get_completion_class(shell)
    if found is None:
        give_up(f"click, which makes completion scripts, knows no {shell} here")
    click.echo(found(ctx.find_root().command, {}, "firsttoken", _VARIABLE).source())
    return 0
