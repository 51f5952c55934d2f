"""What one attempt runs with: the ports and settings of its process, and what the attempt is."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from perago.backoff import Backoff
from perago.errors import OrchestratorUnavailableError, PeragoError
from perago.flow.fences import assert_current_attempt_snapshot, assert_lease_covers
from perago.ports.environment import NoFailpoints

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from perago.declare.task import AnyTask
    from perago.declare.workspace import WorkspaceSpec
    from perago.model.attempt import AttemptSnapshot, AttemptStep, Delivery, Execution
    from perago.model.controls import PublishBudget
    from perago.ports.engine import Engine
    from perago.ports.environment import Clock, Failpoints, Journal, Lease
    from perago.ports.orchestrator import Orchestrator
    from perago.ports.store import OnTransfer, Store

BACKOFF = Backoff(first=0.2, longest=5.0)
"""Between requests that the orchestrator or the store did not answer."""
RequestedLevel = Literal["auto", "soft", "cas"]
ReplacePolicy = Literal["any", "own"]
SingleWriter = Literal["off", "warn", "enforce"]


@dataclass(frozen=True, slots=True)
class Runtime:
    """The ports and the few settings that all attempts of a process run with.

    ``store_patience_seconds``: an attempt waits that long for an unreachable store before it
    begins, because a failed attempt costs the task one of its few retries. ``warned`` holds the
    warnings that this process has logged already.
    """

    store: Store
    orchestrator: Orchestrator
    engines: Mapping[str, Engine]
    clock: Clock
    journal: Journal
    workspace_root: Path
    store_name: str = "embedded"
    fence: RequestedLevel = "auto"
    replace: ReplacePolicy = "any"
    single_writer: SingleWriter = "warn"
    store_patience_seconds: float = 0.0
    failpoints: Failpoints = field(default_factory=NoFailpoints)
    warned: set[str] = field(default_factory=set)


class Note(Protocol):
    """Adds fields to the event that a step leaves in the journal."""

    def __call__(self, **fields: object) -> None: ...


@dataclass(frozen=True, slots=True)
class AttemptContext:
    """One attempt and what it runs with; the same from its first step to its last."""

    delivery: Delivery
    task: AnyTask
    runtime: Runtime
    execution: Execution
    lease: Lease

    @property
    def spec(self) -> WorkspaceSpec:
        """The task's declared workspace; only asked for if the task has one."""
        spec = self.task.workspace
        assert spec is not None  # noqa: S101 - see above
        return spec

    @property
    def engine(self) -> Engine:
        """The engine that opens the task's workspace; only asked for if the task has one."""
        name = self.task.engine
        assert name is not None  # noqa: S101 - see above
        return self.runtime.engines[name]

    @property
    def budget(self) -> PublishBudget:
        """How long publishing and reporting may take, within the delivery's lease."""
        return self.task.controls.budget_within(self.delivery.response_seconds)

    # --- what happens, as the journal and the failpoints see it -----------------------------------
    @contextmanager
    def step(
        self, name: AttemptStep, *, then: str | None = None, within: AttemptStep | None = None
    ) -> Iterator[Note]:
        """Announce a step, time it, log it (also if it raises), and pass the failpoint ``then``.

        ``within`` is the step that this one interrupts, and that goes on afterwards.
        """
        journal, clock = self.runtime.journal, self.runtime.clock
        fields: dict[str, object] = {}
        began = clock.monotonic()
        journal.started(name)
        try:
            yield lambda **more: fields.update(more)
        except Exception as error:
            fields["error"] = error.code if isinstance(error, PeragoError) else type(error).__name__
            journal.event(name, seconds=round(clock.monotonic() - began, 6), **fields)
            raise
        journal.event(name, seconds=round(clock.monotonic() - began, 6), **fields)
        if then:
            self.reached(then)
        if within:
            journal.started(within)

    def reached(self, failpoint: str) -> None:
        """Pass a named place between or within the steps, where a test may inject a fault."""
        self.runtime.failpoints.hit(failpoint)

    def event(self, name: str, **fields: object) -> None:
        """Log something that happened within a step."""
        self.runtime.journal.event(name, **fields)

    def on_transfer(self, step: AttemptStep) -> OnTransfer:
        """What a store calls while it moves objects for this step."""
        return lambda transfer: self.runtime.journal.progress(step, transfer)

    def warn_once(self, event: str, warning: str) -> None:
        """Log a warning that is the same for all attempts of this process only the first time."""
        if warning not in self.runtime.warned:
            self.runtime.warned.add(warning)
            self.event(event, warning=warning)

    # --- whether the orchestrator still counts on this attempt ------------------------------------
    def assert_current(self) -> None:
        """The attempt fence. Raises StaleAttemptError or OrchestratorUnavailableError."""
        assert_current_attempt_snapshot(self.delivery, self._snapshot())

    def assert_lease_covers_publication(self) -> None:
        """Raises LeaseTooShortError."""
        assert_lease_covers(self.budget, self.lease.remaining())

    def assert_still_ours(self) -> None:
        """The attempt fence, and the lease covers a publication. Raises FenceError."""
        self.assert_current()
        self.assert_lease_covers_publication()

    def _snapshot(self) -> AttemptSnapshot:
        """Ask the orchestrator, and again while it doesn't answer and the lease allows it."""
        waits = iter(BACKOFF)
        while True:
            try:
                return self.runtime.orchestrator.reload(self.delivery.attempt)
            except OrchestratorUnavailableError:
                pause = next(waits)
                if self.lease.remaining() - pause < self.budget.publish_seconds:
                    raise
            self.runtime.clock.sleep(pause)
