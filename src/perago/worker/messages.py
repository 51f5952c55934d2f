"""What a supervisor and its executors say to each other, over a private socket pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from perago.model.attempt import Delivery, Execution
    from perago.model.outcome import AttemptOutcome, Transfer


@dataclass(frozen=True, slots=True)
class Assignment:
    """To an executor: run this. Its lease counts from ``leased_at`` on the machine's clock."""

    delivery: Delivery
    execution: Execution
    module: str
    leased_at: float
    events_log: Path
    output_log: Path


@dataclass(frozen=True, slots=True)
class LeaseRenewed:
    """To an executor: a heartbeat sent at ``at`` was accepted."""

    at: float


@dataclass(frozen=True, slots=True)
class Ready:
    """From an executor: it is up."""


@dataclass(frozen=True, slots=True)
class StepStarted:
    step: str


@dataclass(frozen=True, slots=True)
class StepEnded:
    """From an executor: a step's event, as it stands in the journal."""

    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Progressed:
    step: str
    transfer: Transfer


@dataclass(frozen=True, slots=True)
class Finished:
    """From an executor: the attempt was reported (or given up) and cleaned up after."""

    outcome: AttemptOutcome


FromExecutor = Ready | StepStarted | StepEnded | Progressed | Finished
