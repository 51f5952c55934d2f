"""Options that every command has, and what follows from them: settings, output, backend.

A backend is what ``--on`` names: which orchestrator schedules tasks, and which store has the
workspaces.
"""

from __future__ import annotations

import functools
import re
import shlex
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from perago.cli.output import STARTING, Output, status_line
from perago.errors import PeragoError, RuntimeConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from perago.settings import Settings

    Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

BACKENDS = {
    # each has all that the one before it has
    "embedded": {"store": "embedded", "orchestrator": "embedded"},
    "lakefs": {"store": "lakefs", "orchestrator": "embedded"},
    "conductor": {"store": "lakefs", "orchestrator": "conductor"},
    "stack": {"store": "lakefs", "orchestrator": "conductor"},
}
_STACK = "stack"
_BACKEND_OPTIONS = "perago.backend_options"


def common_options(
    *,
    default_home: Path | None = None,
    starts_slowly: bool = False,
    on: bool = False,
    minimum: str | None = None,
    log_format: bool = False,
) -> Decorator:
    """Add --json, --debug and --home; the command gets ``output`` and ``settings``.

    ``default_home`` wins over PERAGO_HOME. ``starts_slowly`` shows on a terminal that the command
    is starting. ``on`` adds --on. ``minimum`` is the least backend that the command can work with,
    and its default. ``log_format`` adds --log-format.
    """
    shown_home = f"./{default_home}" if default_home else "$PERAGO_HOME or .perago"

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @click.option(
            "--json", "as_json", is_flag=True, help="Print one JSON document, for programs."
        )
        @click.option("--debug", is_flag=True, help="Show the traceback of an error.")
        @click.option(
            "--home",
            type=click.Path(file_okay=False, path_type=Path),
            default=default_home,
            help="Directory of the embedded store, the queue and the logs.  "
            f"[default: {shown_home}]",
        )
        @functools.wraps(command)
        def wrapped(
            *,
            as_json: bool,
            debug: bool,
            home: Path | None,
            on: str | None = None,
            log_format: str | None = None,
            **rest: Any,
        ) -> Any:
            del debug  # main() looks for it if something goes wrong
            with status_line(STARTING) if starts_slowly else nullcontext():
                settings = _checked_settings(home, on, minimum, log_format)
            backend = on or (backend_of(settings) if minimum else None)
            click.get_current_context().meta[_BACKEND_OPTIONS] = (
                ("--on", backend),
                ("--home", home),
            )
            output = Output(as_json, json_lines=as_json or settings.log_format == "json")
            with _complete_fixes():
                return command(output=output, settings=settings, **rest)

        result: Callable[..., Any] = wrapped
        if log_format:
            result = _log_format_option(result)
        return _on_option(minimum)(result) if on else result

    return add


common = common_options()


def _on_option(minimum: str | None) -> Decorator:
    default = minimum or "$PERAGO_ORCHESTRATOR and $PERAGO_STORE, or embedded"
    return click.option(
        "--on",
        type=click.Choice(backends_from(minimum)),
        help="Where tasks are scheduled and workspaces live: this machine; this machine with "
        f"lakeFS; Conductor with lakeFS; the servers of `perago stack`.  [default: {default}]",
    )


def _log_format_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        help="Lines about attempts on standard error: text for people, JSON for programs (as with "
        "--json).  [default: $PERAGO_LOG_FORMAT or text]",
    )(command)


def backends_from(minimum: str | None) -> list[str]:
    """The backends that have at least what ``minimum`` has; without it, all of them."""
    names = list(BACKENDS)
    return names[names.index(minimum) if minimum else 0 :]


def backend_of(settings: Settings) -> str:
    """The name by which --on finds the same servers, as long as the environment stays the same."""
    chosen = {"store": settings.store, "orchestrator": settings.orchestrator}
    return next((name for name, backend in BACKENDS.items() if backend == chosen), "conductor")


def settings_for(
    home: Path | None, on: str | None, minimum: str | None, log_format: str | None = None
) -> Settings:
    """The settings for the backend ``on``; without it, for the one that the environment names.

    ``minimum`` wins over an environment that names less. Raises RuntimeConfigError for a wrong
    setting, and for a stack that is not running.
    """
    from perago.settings import load_settings

    needed = {k: v for k, v in BACKENDS.get(minimum or "", {}).items() if v != "embedded"}
    given: dict[str, object] = {
        "home": home,
        "log_format": log_format,
        **(BACKENDS[on] if on else needed),
    }
    settings = load_settings(**given)
    return _with_stack_servers(settings, given) if on == _STACK else settings


def _with_stack_servers(settings: Settings, given: dict[str, object]) -> Settings:
    """Use the stack's servers and no credentials that the environment has for other servers."""
    from pydantic_settings import DotEnvSettingsSource

    from perago.settings import SERVER_FIELDS, STACK_SETTINGS, load_settings, variable_of

    _assert_stack_is_up(settings.stack.absolute())
    of_stack = DotEnvSettingsSource(type(settings), env_file=settings.stack / STACK_SETTINGS)()
    ours = load_settings(**given, **of_stack)
    foreign = {
        name: None
        for fields in SERVER_FIELDS
        for name in fields
        if variable_of(name) not in of_stack and getattr(ours, name) is not None
    }
    return ours.model_copy(update=foreign)


def _assert_stack_is_up(directory: Path) -> None:
    from perago.settings import STACK_SETTINGS
    from perago.stack.server import read_record
    from perago.stack.stack import KINDS

    records = {kind.title: read_record(directory / kind.name) for kind in KINDS}
    stopped = [title for title, record in records.items() if not (record and record.is_running)]
    if stopped or not (directory / STACK_SETTINGS).is_file():
        which = f"{' and '.join(stopped)} of " if 0 < len(stopped) < len(records) else ""
        raise RuntimeConfigError(
            f"--on stack: {which}the stack in {directory} isn't running",
            fix="`perago stack up`; for a stack in another directory, set PERAGO_STACK to its "
            ".perago/stack",
        )


def _checked_settings(
    home: Path | None, on: str | None, minimum: str | None, log_format: str | None
) -> Settings:
    settings = settings_for(home, on, minimum, log_format)
    if settings.failpoints:
        from perago.wiring import open_failpoints

        open_failpoints(settings)
    return settings


class Closable(Protocol):
    """A store, a queue, a client."""

    def close(self) -> None:
        """Release files and connections."""
        ...


T = TypeVar("T", bound=Closable)


def close_with_command(resource: T) -> T:
    """Close the resource when the running command ends, however it ends; returns it."""
    click.get_current_context().call_on_close(resource.close)
    return resource


def backend_options() -> tuple[str, ...]:
    """The --home and --on that another command needs to find what this one works on.

    Empty if it needs none.
    """
    given = click.get_current_context().meta[_BACKEND_OPTIONS]
    return tuple(word for name, value in given if value for word in (name, str(value)))


def with_backend_options(text: str) -> str:
    """Add this command's --home and --on to the `perago …` commands that ``text`` proposes."""
    options = backend_options()
    return re.sub(r"`perago (\w+)[^`]*`", lambda match: _completed(match, options), text)


@contextmanager
def _complete_fixes() -> Iterator[None]:
    """Add this command's --home and --on to the commands that an error's fix proposes."""
    try:
        yield
    except PeragoError as error:
        if error.fix:
            error.fix = with_backend_options(error.fix)
        raise


def _completed(proposed: re.Match[str], options: tuple[str, ...]) -> str:
    root = click.get_current_context().find_root()
    assert isinstance(root.command, click.Group)  # noqa: S101 - every command of ours is in one
    other = root.command.get_command(root, proposed[1])
    understood = {flag for param in other.params for flag in param.opts} if other else set()
    command = proposed[0].strip("`")
    pairs = zip(options[::2], options[1::2], strict=True)
    missing = [(n, value) for n, value in pairs if n in understood and f" {n} " not in command]
    return f"`{' '.join([command, *(shlex.join(pair) for pair in missing)])}`"
