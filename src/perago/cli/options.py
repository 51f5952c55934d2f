"""Options that every command has, and the way every command speaks."""

from __future__ import annotations

import functools
import json
import re
import shlex
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from perago.cli.output import STARTING, is_terminal, meanwhile, while_read
from perago.errors import PeragoError, RuntimeConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console, RenderableType

    from perago.settings import Settings


# --- What a command opens is closed when it ends, however it ends ---


class Closable(Protocol):
    """A store, a queue."""

    def close(self) -> None:
        """Let go of its files."""
        ...


T = TypeVar("T", bound=Closable)


def for_this_command(resource: T) -> T:
    """The resource itself, closed at the end of the running command."""
    click.get_current_context().call_on_close(resource.close)
    return resource


# --- Where a command works: what ``--on`` says, as settings ---
PLACES = {
    # each has all that the one before it has
    "embedded": {"store": "embedded", "orchestrator": "embedded"},
    "lakefs": {"store": "lakefs", "orchestrator": "embedded"},
    "conductor": {"store": "lakefs", "orchestrator": "conductor"},
    "stack": {"store": "lakefs", "orchestrator": "conductor"},
}
STACK = "stack"


def places_from(least: str | None) -> list[str]:
    """The places that have at least what ``least`` has; all of them without."""
    names = list(PLACES)
    return names[names.index(least) if least else 0 :]


def settings_at(home: Path | None, on: str | None, least: str | None) -> Settings:
    """The settings in force where ``on`` says; without it where the environment does.

    A command that needs at least the servers of one place gets them whatever the environment says.
    Raises RuntimeConfigError for a setting that is wrong, and for a stack that isn't up.
    """
    from perago.settings import load_settings

    needed = {k: v for k, v in PLACES.get(least or "", {}).items() if v != "embedded"}
    given: dict[str, object] = {"home": home, **(PLACES[on] if on else needed)}
    settings = load_settings(**given)
    return _with_the_stacks_servers(settings, given) if on == STACK else settings


def place_of(settings: Settings) -> str:
    """The name by which --on finds the same servers, as long as the environment stays."""
    said = {"store": settings.store, "orchestrator": settings.orchestrator}
    return next((name for name, place in PLACES.items() if place == said), "conductor")


def _with_the_stacks_servers(settings: Settings, given: dict[str, object]) -> Settings:
    """Its servers, whatever the environment names: a key of another one's is of no use there."""
    from pydantic_settings import DotEnvSettingsSource

    from perago.settings import SERVERS_FIELDS, STACK_SETTINGS, load_settings, variable_of

    _assert_up(settings.stack.absolute())
    said = DotEnvSettingsSource(type(settings), env_file=settings.stack / STACK_SETTINGS)()
    ours = load_settings(**given, **said)
    foreign = {
        name: None
        for fields in SERVERS_FIELDS
        for name in fields
        if variable_of(name) not in said and getattr(ours, name) is not None
    }
    return ours.model_copy(update=foreign)


def _assert_up(directory: Path) -> None:
    from perago.settings import STACK_SETTINGS
    from perago.stack.server import read_record
    from perago.stack.stack import KINDS

    records = {kind.title: read_record(directory / kind.name) for kind in KINDS}
    stopped = [title for title, record in records.items() if not (record and record.is_running)]
    if stopped or not (directory / STACK_SETTINGS).is_file():
        which = f"{' and '.join(stopped)} of " if 0 < len(stopped) < len(records) else ""
        raise RuntimeConfigError(
            f"--on stack: {which}the stack in {directory} isn't running",
            fix="`perago stack up`; for one of another directory, set PERAGO_STACK to its "
            ".perago/stack",
        )


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
    *,
    default_home: Path | None = None,
    starts_slowly: bool = False,
    on: bool = False,
    least: str | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add --json, --debug and --home; the command gets ``speaker`` and ``settings``.

    A command that states its own default home uses that one whatever the environment says. One
    that starts slowly says so on a terminal from here on. ``on`` adds --on, by which a person says
    who schedules tasks and where workspaces live. A command that can't do without certain servers
    states the place that has the ``least`` of them, which is its default, too.
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
        def wrapped(
            *, as_json: bool, debug: bool, home: Path | None, on: str | None = None, **rest: Any
        ) -> Any:
            del debug  # main() looks for it once something went wrong
            with meanwhile(STARTING) if starts_slowly else nullcontext():
                settings = _settings(home, on, least)
            place = on or (place_of(settings) if least else None)
            click.get_current_context().meta[_PLACE] = (("--on", place), ("--home", home))
            with _fixes_that_find_this_place():
                return command(speaker=Speaker(as_json), settings=settings, **rest)

        return _on_option(least)(wrapped) if on else wrapped

    return add


common = common_with()
_PLACE = "perago.place"


def _on_option(least: str | None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    default = least or "$PERAGO_ORCHESTRATOR and $PERAGO_STORE, or embedded"
    return click.option(
        "--on",
        type=click.Choice(places_from(least)),
        help="Who schedules and where workspaces live: this machine, this machine with lakeFS, "
        f"Conductor with lakeFS, or those of `perago stack`.  [default: {default}]",
    )


def place_to_name() -> tuple[str, ...]:
    """The --home and --on that another command needs to find what this one worked on.

    Empty if it finds it without.
    """
    said = click.get_current_context().meta[_PLACE]
    return tuple(word for name, value in said if value for word in (name, str(value)))


def _settings(home: Path | None, on: str | None, least: str | None) -> Settings:
    settings = settings_at(home, on, least)
    if settings.failpoints:
        from perago.wiring import open_failpoints

        open_failpoints(settings)
    return settings


@contextmanager
def _fixes_that_find_this_place() -> Iterator[None]:
    """Complete the commands that an error proposes with the --home and --on of this one."""
    try:
        yield
    except PeragoError as error:
        if error.fix:
            error.fix = naming_this_place(error.fix)
        raise


def naming_this_place(words: str) -> str:
    """The same words, with the commands in them completed by the --home and --on of this one."""
    place = place_to_name()
    return re.sub(r"`perago (\w+)[^`]*`", lambda m: _completed(m, place), words)


def _completed(proposed: re.Match[str], place: tuple[str, ...]) -> str:
    context = click.get_current_context()
    root = context.find_root()
    assert isinstance(root.command, click.Group)  # noqa: S101 - every command of ours is in one
    other = root.command.get_command(root, proposed[1])
    understood = {flag for param in other.params for flag in param.opts} if other else set()
    said = proposed[0].strip("`")
    pairs = zip(place[::2], place[1::2], strict=True)
    missing = [(n, value) for n, value in pairs if n in understood and f" {n} " not in said]
    return f"`{' '.join([said, *(shlex.join(pair) for pair in missing)])}`"
