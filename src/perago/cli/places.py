"""Where a command works: what ``--on`` says, as settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perago.errors import RuntimeConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from perago.settings import Settings

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
    from perago.stack.lifecycle import KINDS
    from perago.stack.server import read_record

    records = {kind.title: read_record(directory / kind.name) for kind in KINDS}
    stopped = [title for title, record in records.items() if not (record and record.is_running)]
    if stopped or not (directory / STACK_SETTINGS).is_file():
        which = f"{' and '.join(stopped)} of " if 0 < len(stopped) < len(records) else ""
        raise RuntimeConfigError(
            f"--on stack: {which}the stack in {directory} isn't running",
            fix="`perago stack up`; for one of another directory, set PERAGO_STACK to its "
            ".perago/stack",
        )
