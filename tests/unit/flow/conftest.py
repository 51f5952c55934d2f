"""One attempt on the embedded pieces, with everything a test may want to know about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, TimeoutPolicy, WorkspaceSpec, task
from perago.testing import Bench, InjectedFaults, RecordingJournal
from perago.testing.bench import delivery_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from perago.adapters.embedded.queue import EmbeddedQueue
    from perago.declare.task import AnyTask
    from perago.model.attempt import Delivery
    from perago.model.outcome import AttemptOutcome

RETRIED_AFTER_TIMEOUT = TaskControls(
    retry=RetryPolicy(delay_seconds=0),
    timeout=TimeoutPolicy(policy="RETRY", response_seconds=600),
)


class Nothing(BaseModel):
    pass


class Done(BaseModel):
    note: str = ""


class FlakyQueue:
    """A queue of whose methods some answer with errors first, as often as there are any."""

    def __init__(self, queue: EmbeddedQueue, errors: Mapping[str, list[Exception]]) -> None:
        self._queue, self._errors = queue, errors

    def __getattr__(self, name: str) -> object:
        if self._errors.get(name):
            raise self._errors[name].pop(0)
        return getattr(self._queue, name)


@dataclass
class Stage:
    """A branch with one commit, ``A``, and tasks that work on it."""

    bench: Bench
    journal: RecordingJournal = field(default_factory=RecordingJournal)

    def __post_init__(self) -> None:
        self.A = self.bench.write({"keep": "kept", "edit": "before", "drop": "dropped"})

    @property
    def level(self) -> str:
        return "cas" if self.bench.semantics == "atomic" else "soft"

    def declare(
        self,
        body: Callable[[Path], object],
        *,
        controls: TaskControls = RETRIED_AFTER_TIMEOUT,
        **workspace: object,
    ) -> AnyTask:
        """A task of this body; what the body returns is its result, None stands for a right one."""

        @task(
            name="bench.step",
            owner_email="data@example.com",
            workspace=WorkspaceSpec(**workspace),
            controls=controls,
        )
        def step(workspace: Path, params: Nothing) -> Done:
            returned = body(workspace)
            return Done(note="ok") if returned is None else returned

        return step

    def attempt(
        self,
        body: Callable[[Path], object],
        *,
        faults: Mapping[str, Callable[[], object]] | None = None,
        lease: object = None,
        input_ref: str | None = None,
        spec: Mapping[str, object] | None = None,
        controls: TaskControls = RETRIED_AFTER_TIMEOUT,
        **runtime: object,
    ) -> AttemptOutcome:
        """Start a run of this one task from A and make its first attempt."""
        step = self.declare(body, controls=controls, **(spec or {}))
        self.bench.start(step, ref=input_ref or self.A)
        return self.again(step, faults=faults, lease=lease, **runtime)

    def again(
        self,
        step: AnyTask,
        *,
        faults: Mapping[str, Callable[[], object]] | None = None,
        lease: object = None,
        **runtime: object,
    ) -> AttemptOutcome:
        """Poll for the task and make that attempt."""
        actions = {name: (lambda _name, act=act: act()) for name, act in (faults or {}).items()}
        return self.bench.attempt(
            step,
            self.bench.runtime(journal=self.journal, failpoints=InjectedFaults(actions), **runtime),
            lease=lease,
        )

    def flaky_queue(self, **errors: list[Exception]) -> FlakyQueue:
        """The bench's queue, with these errors as the first answers of the methods they name."""
        return FlakyQueue(self.bench.queue, errors)

    def deliver_again(self, *, worker_id: str = "worker-2") -> Delivery:
        """Hand out the attempt in progress once more, while its first worker still has it."""
        record = self.bench.queue.runs()[0].attempts[-1]
        assert self.bench.queue.give_back(delivery_of(record))
        (delivery,) = self.bench.queue.poll([record.attempt.task_name], worker_id=worker_id)
        return delivery

    def time_out(self) -> None:
        """Let every lease run out."""
        self.bench.clock.advance(601)
        self.bench.queue.poll([], worker_id="nobody")

    def cancel(self) -> None:
        self.bench.queue.cancel(self.bench.queue.runs()[0].id, "a person said so")

    def someone_writes(self) -> str:
        return self.bench.write({"foreign": "not ours"})

    def assert_nothing_left(self) -> None:
        """No staging branch and no attempt directory."""
        assert self.bench.staging_branches() == []
        assert not self.bench.attempts.exists() or list(self.bench.attempts.iterdir()) == []


def edit(workspace: Path) -> None:
    """Change one file, add one, remove one."""
    (workspace / "edit").write_text("after")
    (workspace / "new").write_text("new")
    (workspace / "drop").unlink()


def touch_nothing(workspace: Path) -> None:
    """Read, and write nothing."""
    (workspace / "keep").read_bytes()


@pytest.fixture
def edits() -> Callable[[Path], None]:
    return edit


@pytest.fixture
def no_edits() -> Callable[[Path], None]:
    return touch_nothing


@pytest.fixture
def edited() -> dict[str, bytes]:
    """What the branch holds after ``edits``."""
    return {"keep": b"kept", "edit": b"after", "new": b"new"}


def _stage(root: Path, semantics: str) -> Iterator[Stage]:
    bench = Bench(root, semantics=semantics)
    yield Stage(bench)
    bench.close()


@pytest.fixture(params=["atomic", "lakefs"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """On a store that compares and swaps, and on one that can't."""
    yield from _stage(tmp_path, request.param)


@pytest.fixture
def atomic(tmp_path: Path) -> Iterator[Stage]:
    """On the store that compares and swaps."""
    yield from _stage(tmp_path / "atomic", "atomic")


@pytest.fixture
def lakefs_like(tmp_path: Path) -> Iterator[Stage]:
    """On the store whose merges land on whatever the head is by then."""
    yield from _stage(tmp_path / "lakefs", "lakefs")
