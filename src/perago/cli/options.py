"""Options that every command has, and the way every command speaks."""

from __future__ import annotations

import functools
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

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
            click.echo(json.dumps(data, ensure_ascii=False, default=str))
        else:
            console().print(layout())


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=not sys.stdout.isatty())


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --json, --debug and --home; the command gets ``speaker`` and ``settings``."""

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document, for programs.")
    @click.option("--debug", is_flag=True, help="Show the traceback of an error.")
    @click.option(
        "--home",
        type=click.Path(file_okay=False, path_type=Path),
        help="Where the embedded store, queue and logs live.  [default: $PERAGO_HOME or .perago]",
    )
    @functools.wraps(command)
    def wrapped(*, as_json: bool, debug: bool, home: Path | None, **rest: Any) -> Any:
        del debug  # main() looks for it once something went wrong
        return command(speaker=Speaker(as_json), settings=_settings(home), **rest)

    return wrapped


def _settings(home: Path | None) -> Settings:
    from perago.settings import load_settings

    return load_settings(home=home)
