"""Who is killed in a soak, where and when: decided from a seed, then done."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, get_args

from soak_workers import PUBLISHING, Role, Worker

ROLES: tuple[Role, ...] = get_args(Role)
LAST_BLOW = 0.85
"""The part of the workflows after which nothing is killed any more, so that all ends in time."""

LONGEST_OUTAGE_SECONDS = 3.0
"""Of a server, before it is started again; its start comes on top."""


@dataclass(frozen=True, slots=True, order=True)
class Blow:
    """One kill, due when ``after`` workflows have ended.

    On a server by its name; or on a process of a worker wherever it is; or, with a ``place``
    inside publishing, on the first worker whose executor comes there.
    """

    after: int
    server: str = ""
    worker: int = 0
    role: Role = "executor"
    place: str = ""
    outage_seconds: float = 0.0


def planned(
    seed: int, *, workflows: int, workers: int, worker_kills: int, servers: Mapping[str, int]
) -> list[Blow]:
    """All blows in the order they fall: half of those on workers inside publishing."""
    dice = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret

    def after() -> int:
        return dice.randint(1, max(1, int(LAST_BLOW * workflows)))

    blows = [
        Blow(
            after(),
            worker=dice.randrange(workers),
            role=dice.choice(ROLES),
            place=dice.choice(PUBLISHING) if number < (worker_kills + 1) // 2 else "",
        )
        for number in range(worker_kills)
    ]
    for server, kills in servers.items():
        blows += [
            Blow(after(), server, outage_seconds=dice.uniform(0, LONGEST_OUTAGE_SECONDS))
            for _ in range(kills)
        ]
    return sorted(blows)


class Mortal(Protocol):
    """A server that can be killed, and started again as the same one."""

    def kill(self) -> None: ...
    def restart(self) -> None: ...


@dataclass
class Chaos:
    """Deals the blows. ``away`` are the servers that are down right now."""

    blows: list[Blow]
    workers: Sequence[Worker]
    servers: Mapping[str, Mortal]
    dealt: list[Blow] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _trap: Blow | None = None
    _outages: dict[str, threading.Thread] = field(default_factory=dict)

    @property
    def away(self) -> set[str]:
        return {name for name, outage in self._outages.items() if outage.is_alive()}

    @property
    def is_over(self) -> bool:
        return not (self.blows or self._trap or self.away)

    def counted(self) -> Counter[str]:
        """How often each role or server was killed, and how many of these inside publishing."""
        counts = Counter(blow.server or blow.role for blow in self.dealt)
        counts["publishing"] = sum(bool(blow.place) for blow in self.dealt)
        return counts

    def deal(self, ended: int) -> None:
        """Strike all who are due and there; who isn't is struck the next time."""
        self._spring_trap()
        while self.blows and self.blows[0].after <= ended and self._deal(self.blows[0]):
            del self.blows[0]

    def end(self) -> None:
        """Leave no worker in a trap, and every server up."""
        self._put_traps_away()
        for outage in self._outages.values():
            outage.join()

    def _deal(self, blow: Blow) -> bool:
        if blow.server:
            return self._strike_server(blow)
        if blow.place:
            return self._set_trap(blow)
        if not self.workers[blow.worker].kill(blow.role):
            return False
        self.dealt.append(blow)
        return True

    def _set_trap(self, blow: Blow) -> bool:
        if self._trap is not None:
            return False
        self._trap = blow
        for worker in self.workers:
            worker.set_trap(blow.place)
        return True

    def _spring_trap(self) -> None:
        blow = self._trap
        if blow is None:
            return
        for worker in self.workers:
            if executor := worker.trapped():
                worker.kill_trapped(executor, blow.role)
                self.dealt.append(blow)
                self._trap = None
                break
        if self._trap is None:
            self._put_traps_away()

    def _put_traps_away(self) -> None:
        for worker in self.workers:
            worker.put_traps_away()

    def _strike_server(self, blow: Blow) -> bool:
        if blow.server in self.away:
            return False
        server = self.servers[blow.server]
        server.kill()
        self.dealt.append(blow)
        outage = threading.Thread(target=self._restart, args=(blow, server))
        outage.start()
        self._outages[blow.server] = outage
        return True

    def _restart(self, blow: Blow, server: Mortal) -> None:
        time.sleep(blow.outage_seconds)
        try:
            server.restart()
        except Exception as error:  # noqa: BLE001 - reported at the end, whatever it is
            self.failures.append(f"{blow.server} didn't start again: {error}")
