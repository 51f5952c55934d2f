"""Public: run a task in a test with no server, conformance suites, fault injection.

For task authors: ``run_task`` and the ``TaskTrial`` it returns; in pytest also as the fixture
``perago_run_task``.

For adapter authors, and for tests of what happens when something breaks:

* the suites of :mod:`perago.testing.conformance`, one per port;
* ``Bench``: a store, a queue and a ``ManualClock``, to run attempts on in one process;
  ``RecordingJournal`` remembers what they said;
* ``FaultyStore`` loses, repeats and refuses requests (:mod:`perago.testing.faulty_store` has the
  faults), and ``FaultyWire`` does it to any HTTP server's (:mod:`perago.testing.wire`);
  ``InjectedFaults`` and ``parse_faults`` crash or delay an attempt at a failpoint;
* ``Schedule`` interleaves attempts step by step, and the invariants ``EVERY_STORE``,
  ``ATOMIC_STORE`` and ``AT_THE_END`` say what must hold whatever the order, or raise
  ``InvariantViolated``.

Names are resolved on first use: pytest imports this package in every session on the machine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perago.adapters.local.faults import InjectedFaults, parse_faults
    from perago.testing.bench import Bench, ManualClock, RecordingJournal
    from perago.testing.faulty_store import FaultyStore
    from perago.testing.invariants import (
        AT_THE_END,
        ATOMIC_STORE,
        EVERY_STORE,
        InvariantViolated,
    )
    from perago.testing.run_task import TaskTrial, run_task
    from perago.testing.schedule import Schedule
    from perago.testing.wire import FaultyWire

__all__ = [
    "ATOMIC_STORE",
    "AT_THE_END",
    "EVERY_STORE",
    "Bench",
    "FaultyStore",
    "FaultyWire",
    "InjectedFaults",
    "InvariantViolated",
    "ManualClock",
    "RecordingJournal",
    "Schedule",
    "TaskTrial",
    "parse_faults",
    "run_task",
]

_HOMES = {
    "perago.adapters.local.faults": ("InjectedFaults", "parse_faults"),
    "perago.testing.bench": ("Bench", "ManualClock", "RecordingJournal"),
    "perago.testing.faulty_store": ("FaultyStore",),
    "perago.testing.invariants": (
        "ATOMIC_STORE",
        "AT_THE_END",
        "EVERY_STORE",
        "InvariantViolated",
    ),
    "perago.testing.schedule": ("Schedule",),
    "perago.testing.run_task": ("TaskTrial", "run_task"),
    "perago.testing.wire": ("FaultyWire",),
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            value: object = getattr(import_module(module), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'perago.testing' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
