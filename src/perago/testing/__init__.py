"""What test authors import: run a task without a server, inject faults, check an adapter.

For tests of a task: ``run_task`` and the ``TaskTrial`` it returns; in pytest also as the fixture
``perago_run_task``.

For tests of what happens when something breaks:

* ``Bench``: a store, a queue and a ``ManualClock``, to run attempts on in one process;
  ``RecordingJournal`` keeps what they log;
* ``FaultyStore`` makes named requests fail, each with a fault: ``lose_answer``, ``lose_request``,
  ``refuse``, ``refuse_after_applying``, ``duplicate``, ``unavailable``, ``after``, ``followed_by``,
  ``healthy``;
* ``InjectedFaults`` and ``parse_faults`` crash or delay an attempt at a failpoint.

For tests of an adapter, a suite for each port:

* ``StoreConformance``, with ``ConditionalUpdates`` (``ConditionalMerges`` and
  ``ConditionalRelocations``) for a store that compares and swaps, ``UnconditionalUpdates``
  (``UnconditionalMerges`` and ``UnconditionalRelocations``) for one that doesn't, and
  ``CanonicalTrees`` if equal content has an equal tree;
* ``OrchestratorConformance``, whose fixture is an ``OrchestratorBench``;
* ``EngineConformance``, with ``PathArgument`` if the body gets a directory.

These names are public; import them from here. Names are resolved on first use: pytest imports this
package in every session on the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perago.lazy_exports import import_export

if TYPE_CHECKING:
    from perago.adapters.local.faults import InjectedFaults, parse_faults
    from perago.testing.bench import Bench, ManualClock, RecordingJournal
    from perago.testing.conformance.engine import EngineConformance, PathArgument
    from perago.testing.conformance.orchestrator import OrchestratorConformance
    from perago.testing.conformance.orchestrator_bench import OrchestratorBench
    from perago.testing.conformance.store import StoreConformance
    from perago.testing.conformance.store_updates import (
        CanonicalTrees,
        ConditionalMerges,
        ConditionalRelocations,
        ConditionalUpdates,
        UnconditionalMerges,
        UnconditionalRelocations,
        UnconditionalUpdates,
    )
    from perago.testing.faulty_store import (
        FaultyStore,
        after,
        duplicate,
        followed_by,
        healthy,
        lose_answer,
        lose_request,
        refuse,
        refuse_after_applying,
        unavailable,
    )
    from perago.testing.trial import TaskTrial, run_task

__all__ = [
    "Bench",
    "CanonicalTrees",
    "ConditionalMerges",
    "ConditionalRelocations",
    "ConditionalUpdates",
    "EngineConformance",
    "FaultyStore",
    "InjectedFaults",
    "ManualClock",
    "OrchestratorBench",
    "OrchestratorConformance",
    "PathArgument",
    "RecordingJournal",
    "StoreConformance",
    "TaskTrial",
    "UnconditionalMerges",
    "UnconditionalRelocations",
    "UnconditionalUpdates",
    "after",
    "duplicate",
    "followed_by",
    "healthy",
    "lose_answer",
    "lose_request",
    "parse_faults",
    "refuse",
    "refuse_after_applying",
    "run_task",
    "unavailable",
]

_HOMES = {
    "perago.adapters.local.faults": (
        "InjectedFaults",
        "parse_faults",
    ),
    "perago.testing.bench": (
        "Bench",
        "ManualClock",
        "RecordingJournal",
    ),
    "perago.testing.conformance.engine": (
        "EngineConformance",
        "PathArgument",
    ),
    "perago.testing.conformance.orchestrator": ("OrchestratorConformance",),
    "perago.testing.conformance.orchestrator_bench": ("OrchestratorBench",),
    "perago.testing.conformance.store": ("StoreConformance",),
    "perago.testing.conformance.store_updates": (
        "CanonicalTrees",
        "ConditionalMerges",
        "ConditionalRelocations",
        "ConditionalUpdates",
        "UnconditionalMerges",
        "UnconditionalRelocations",
        "UnconditionalUpdates",
    ),
    "perago.testing.faulty_store": (
        "FaultyStore",
        "after",
        "duplicate",
        "followed_by",
        "healthy",
        "lose_answer",
        "lose_request",
        "refuse",
        "refuse_after_applying",
        "unavailable",
    ),
    "perago.testing.trial": (
        "TaskTrial",
        "run_task",
    ),
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
    for module, names in _MOVED.items():
        if name in names:
            raise AttributeError(
                f"perago.testing.{name} is no longer part of the package: it is in the "
                f"repository's tests/support/{module}.py"
            )
    return import_export(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted(__all__)
