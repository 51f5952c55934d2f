"""A server for as long as a test needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from perago.stack.server import address_of, launch, stop

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from perago.stack.processes import Process
    from perago.stack.server import Server


class Running:
    """One server that ends with this object: a context manager, for tests."""

    def __init__(self, server: Server, process: Process) -> None:
        self._server = server
        self._process = process

    def __repr__(self) -> str:
        return f"<{self._server.name} on port {self._server.port}, pid {self.pid}>"

    @property
    def settings(self) -> Mapping[str, str]:
        """The environment variables that its clients read."""
        return self._server.settings

    @property
    def endpoint(self) -> str:
        """Its address, without a path."""
        return address_of(self._server.health_url)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> Path:
        return self._server.log

    @property
    def is_running(self) -> bool:
        return self._process.is_alive

    def stop(self) -> None:
        stop(self._server.directory)

    def kill(self) -> None:
        """End it as a crash would: SIGKILL."""
        self._process.kill()

    def restart(self) -> None:
        """The same server again: same address, same data, same credentials."""
        self.stop()
        self._process = launch(self._server)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
