"""What a command opens is closed when it ends, however it ends."""

from __future__ import annotations

from typing import Protocol, TypeVar

import click


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
