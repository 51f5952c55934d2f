"""Public: run a task in a test with no server, conformance suites, fault injection.

For task authors: ``run_task`` and the ``TaskTrial`` it returns; in pytest also as the fixture
``perago_run_task``.

For adapter authors, and for tests of what happens when something breaks:

* the suites of :mod:`perago.testing.conformance`, one per port;
* ``Bench``: a store, a queue and a ``ManualClock``, to run attempts on in one process;
  ``RecordingJournal`` keeps what they log;
* ``FaultyStore`` loses, repeats and refuses requests (:mod:`perago.testing.faulty_store` has the
  faults); ``InjectedFaults`` and ``parse_faults`` crash or delay an attempt at a failpoint.

Names are resolved on first use: pytest imports this package in every session on the machine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perago.adapters.local.faults import InjectedFaults, parse_faults
    from perago.testing.bench import Bench, ManualClock, RecordingJournal
    from perago.testing.faulty_store import FaultyStore
    from perago.testing.run_task import TaskTrial, run_task

__all__ = [
    "Bench",
    "FaultyStore",
    "InjectedFaults",
    "ManualClock",
    "RecordingJournal",
    "TaskTrial",
    "parse_faults",
    "run_task",
]

_HOMES = {
    "perago.adapters.local.faults": ("InjectedFaults", "parse_faults"),
    "perago.testing.bench": ("Bench", "ManualClock", "RecordingJournal"),
    "perago.testing.faulty_store": ("FaultyStore",),
    "perago.testing.run_task": ("TaskTrial", "run_task"),
}

# Perago's own harnesses, which the package once had: they are in its repository only.
_MOVED = {
    "invariants": ("ATOMIC_STORE", "AT_THE_END", "EVERY_STORE", "InvariantViolated", "invariants"),
    "one_attempt": ("one_attempt",),
    "racing": ("racing",),
    "schedule": ("Schedule", "ledger", "schedule"),
    "exchange": ("exchange", "framing"),
    "wire": ("FaultyWire", "wire"),
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            value: object = getattr(import_module(module), name)
            globals()[name] = value
            return value
    for module, names in _MOVED.items():
        if name in names:
            raise AttributeError(
                f"perago.testing.{name} is no longer part of the package: it is in the "
                f"repository's tests/support/{module}.py"
            )
    raise AttributeError(f"module 'perago.testing' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
