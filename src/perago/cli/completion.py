"""``perago completion``: the script that makes a shell complete our commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from perago.cli.options import common

if TYPE_CHECKING:
    from perago.cli.options import Speaker
    from perago.settings import Settings


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@common
def command(*, shell: str, speaker: Speaker, settings: Settings) -> None:
    """Print the completion script for a shell.

    \b
    bash: eval "$(perago completion bash)"        in ~/.bashrc
    zsh:  eval "$(perago completion zsh)"         in ~/.zshrc
    fish: perago completion fish > ~/.config/fish/completions/perago.fish

    \b
    JSON: {"shell", "script"}
    """
    from click.shell_completion import get_completion_class
    from rich.text import Text

    from perago.cli.main import cli

    del settings
    kind = get_completion_class(shell)
    if kind is None:  # the choice above lists what click has; a plugin could have taken it away
        raise click.UsageError(f"click has no completion for {shell}.")
    script = kind(cli, {}, "perago", "_PERAGO_COMPLETE").source()
    speaker.say({"shell": shell, "script": script}, lambda: Text(script))
