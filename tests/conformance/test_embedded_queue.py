"""The embedded queue keeps every promise of the orchestrator port."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perago.adapters.embedded.queue import EmbeddedQueue
from perago.model.run import RunPlan
from perago.testing.bench import ManualClock
from perago.testing.conformance.orchestrator import OrchestratorConformance

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from perago.model.attempt import Delivery
    from perago.model.run import RunStatus, StepPlan
    from perago.model.workspace import WorkspaceRef


class QueueBench:
    def __init__(self, path: Path) -> None:
        self._clock = ManualClock()
        self.orchestrator = EmbeddedQueue(path, clock=self._clock, durable=False)

    def start(self, *steps: StepPlan, workspace: WorkspaceRef | None) -> str:
        return self.orchestrator.start(RunPlan("chain", "chains:chain", steps), workspace)

    def run_status(self, run_id: str) -> RunStatus:
        return self.orchestrator.get(run_id).status

    def requeue(self, delivery: Delivery) -> None:
        assert self.orchestrator.give_back(delivery)

    def advance(self, seconds: float) -> None:
        self._clock.advance(seconds)
        self.orchestrator.poll([], worker_id="idle")


class TestEmbeddedQueue(OrchestratorConformance):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> Iterator[QueueBench]:
        bench = QueueBench(tmp_path / "queue.db")
        yield bench
        bench.orchestrator.close()
