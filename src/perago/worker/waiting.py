"""Waiting on connections that are mostly the same as the last time."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection


class Ears:
    """As :func:`multiprocessing.connection.wait`, which prepares anew for every call."""

    def __init__(self) -> None:
        self._connections: list[Connection] = []
        self._poll = select.poll()
        self._by_descriptor: dict[int, Connection] = {}

    def listen(self, connections: Sequence[Connection], seconds: float) -> list[Connection]:
        """Those that have something to say, or are over, once there is one or the time is up."""
        if list(connections) != self._connections:
            self._connections = list(connections)
            self._by_descriptor = {each.fileno(): each for each in connections}
            self._poll = select.poll()
            for descriptor in self._by_descriptor:
                self._poll.register(descriptor, select.POLLIN)
        ready = self._poll.poll(max(0.0, seconds) * 1000)
        return [self._by_descriptor[descriptor] for descriptor, _ in ready]
