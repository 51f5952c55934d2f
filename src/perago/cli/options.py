"""Options that every command has, and the way every command speaks."""

from __future__ import annotations

import functools
import json
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perago.cli.streams import STARTING, is_terminal, meanwhile, while_read

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console, RenderableType

    from perago.settings import Settings


@dataclass(frozen=True, slots=True)
class Speaker:
    """Says a result either as JSON on one line or laid out for a person, on standard output."""

    as_json: bool

    def say(self, data: object, layout: Callable[[], RenderableType]) -> None:
        if self.as_json:
            text = json.dumps(data, ensure_ascii=False, default=str) + "\n"
        else:
            text = _rendered(layout())
        with while_read():
            # rich has already left out what this output can't show
            click.echo(text, nl=False, color=True)


def _rendered(layout: RenderableType) -> str:
    out = console()
    with out.capture() as captured:
        # A line that leaves its breaking to the terminal is not to be cut.
        out.print(layout, crop=False)
    return captured.get()


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=not is_terminal(sys.stdout))


def common_with(
    *, default_home: Path | None = None, starts_slowly: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add --json, --debug and --home; the command gets ``speaker`` and ``settings``.

    A command that states its own default home uses that one whatever the environment says. One
    that starts slowly says so on a terminal from here on.
    """
    shown = f"./{default_home}" if default_home else "$PERAGO_HOME or .perago"

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @click.option(
            "--json", "as_json", is_flag=True, help="Print one JSON document, for programs."
        )
        @click.option("--debug", is_flag=True, help="Show the traceback of an error.")
        @click.option(
            "--home",
            type=click.Path(file_okay=False, path_type=Path),
            default=default_home,
            help=f"Where the embedded store, queue and logs live.  [default: {shown}]",
        )
        @functools.wraps(command)
        def wrapped(*, as_json: bool, debug: bool, home: Path | None, **rest: Any) -> Any:
            del debug  # main() looks for it once something went wrong
            with meanwhile(STARTING) if starts_slowly else nullcontext():
                settings = _settings(home)
            return command(speaker=Speaker(as_json), settings=settings, **rest)

        return wrapped

    return add


common = common_with()


def home_to_name() -> Path | None:
    """The --home that another command needs to find what this one made; None if it finds it so."""
    home: Path | None = click.get_current_context().params["home"]
    return home


def _settings(home: Path | None) -> Settings:
    from perago.settings import load_settings

    settings = load_settings(home=home)
    if settings.failpoints:
        from perago.wiring import check_failpoints

        check_failpoints(settings)
    return settings
