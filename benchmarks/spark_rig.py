"""Spark as it ships, warm and in this process: attempts, and its session for work by hand."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from measuring import BenchmarkError, peak_mib, say, settle, stopwatch
from shipped import BRANCH, Nothing

from perago import SparkWorkspace, TaskControls, TimeoutPolicy, WorkspaceSpec, task
from perago.demo.songs.events import Amount, write_catalogue, write_events
from perago.flow.lifecycle import run_attempt
from perago.testing.bench import RecordingJournal
from perago.wiring import build_runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from measuring import Scale
    from pyspark.sql import SparkSession
    from shipped import Shipped

    from perago.adapters.spark.engine import SparkEngine
    from perago.declare.task import AnyTask
    from perago.flow.runtime import Runtime
    from perago.model.outcome import AttemptOutcome

PREFIX = "songs"
SONGS, SEED = 2_000, 7
BYTES_PER_ROW = 150
PATIENT = TaskControls(timeout=TimeoutPolicy(response_seconds=4 * 3600))
"""No heartbeats are sent here."""


def rows_of(scale: Scale) -> int:
    return scale.rows or scale.pick(quick=200_000, full=20_000_000)


def events(scale: Scale, scratch: Path, rows: int) -> Path:
    """A directory with so many of the songs' events and their catalogue, below the tasks' prefix.

    Made once for all benchmarks that are given the same directory to work in.
    """
    place = (scale.workdir or scratch) / f"events-{rows}"
    if not place.exists():
        say(f"  making {rows:,} events up")
        amount = Amount(rows, SONGS, SEED)
        unfinished = place.with_name(f"{place.name}-{secrets.token_hex(4)}")
        write_catalogue(unfinished / PREFIX / "catalogue" / "songs.jsonl", amount)
        write_events(unfinished / PREFIX / "raw", amount)
        unfinished.rename(place)
        settle()
    return place


def patient(declared: AnyTask, *, checked: bool = True) -> AnyTask:
    """The same task, which may take hours; with its guardrails, or with none."""
    spec = declared.workspace
    assert spec is not None
    decorate = task(
        name=f"bench.{declared.name}" + ("" if checked else ".unchecked"),
        owner_email="bench@example.com",
        controls=PATIENT,
        workspace=spec if checked else WorkspaceSpec(prefix=spec.prefix),
    )
    return decorate(declared.body)


def spark_task(name: str, work: Callable[[SparkWorkspace], None]) -> AnyTask:
    @task(
        name=f"bench.{name}",
        owner_email="bench@example.com",
        controls=PATIENT,
        workspace=WorkspaceSpec(prefix=PREFIX),
    )
    def working(ws: SparkWorkspace, params: Nothing) -> Nothing:
        work(ws)
        return params

    return working


@dataclass(frozen=True, slots=True)
class Attempted:
    """A whole attempt's seconds, those of its steps, and where and what it published."""

    seconds: float
    steps: dict[str, float]
    ref: str
    result: dict[str, Any]

    @property
    def checking(self) -> float:
        return self.steps["checks"]

    @property
    def unchecked(self) -> float:
        return self.seconds - self.checking

    @property
    def outside(self) -> float:
        """All that is neither the body nor the checks; the branch that a body had made is ours."""
        return self.unchecked - self.steps["body"] + self.steps["stage.branch"]

    @property
    def longest_steps(self) -> str:
        """The steps outside of the body that took longest."""
        ours = {name: s for name, s in self.steps.items() if name not in {"body", "checks"}}
        longest = sorted(ours.items(), key=lambda item: -item[1])[:5]
        return ", ".join(f"{name} {seconds:.2f}" for name, seconds in longest)


def steps_told(last: Attempted | None) -> str:
    return f": {last.longest_steps}" if last else ""


class Sparked:
    """One driver for all attempts on a repository, and for the work by hand beside them."""

    def __init__(self, shipped: Shipped) -> None:
        self.shipped = shipped
        self.runtime: Runtime = build_runtime(shipped.settings)
        self.engine = cast("SparkEngine", self.runtime.engines["spark"])

    def attempt(self, work: AnyTask, ref: str) -> Attempted:
        """One on a branch of its own, so that all rounds begin at the same commit.

        Raises BenchmarkError unless it completed and its commit is that branch's head.
        """
        shipped, branch = self.shipped, f"round-{secrets.token_hex(4)}"
        shipped.store.create_branch(shipped.repository, branch, ref)
        delivery = shipped.deliver(work, ref, branch=branch)
        journal = RecordingJournal()
        runtime = replace(self.runtime, journal=journal)
        with stopwatch() as taken:
            outcome = run_attempt(delivery, work, runtime)
        if not outcome.accepted or not outcome.report.completed:
            raise BenchmarkError(f"the measured attempt failed: {outcome.report.reason}")
        head = shipped.store.head(shipped.repository, branch)
        if not head.is_only_child_of(ref):
            raise BenchmarkError(f"the measured attempt published nothing on {ref}")
        return Attempted(taken[0], steps_of(journal), head.id, result_of(outcome))

    @contextmanager
    def by_hand(self) -> Iterator[SparkSession]:
        """A session of the same driver, so with the same settings, and as warm."""
        login = self.engine.login
        hadoop = login.bucket_settings(self.shipped.repository) if login else {}
        session = self.engine.spark.open_session("by hand", hadoop)
        try:
            yield session
        finally:
            self.engine.spark.close_session()

    @property
    def driver_peak_mib(self) -> float:
        from pyspark import SparkContext

        gateway = cast("Any", SparkContext._gateway)  # noqa: SLF001 - there is no public way
        return peak_mib(gateway.proc.pid)

    def close(self) -> None:
        self.engine.spark.stop()
        for part in (self.runtime.store, self.runtime.orchestrator, self.shipped):
            cast("Any", part).close()


@contextmanager
def sparked(shipped: Shipped) -> Iterator[Sparked]:
    here = Sparked(shipped)
    try:
        here.engine.warm_up()
        yield here
    finally:
        here.close()


def input_ref(shipped: Shipped) -> str:
    return shipped.store.head(shipped.repository, BRANCH).id


def steps_of(journal: RecordingJournal) -> dict[str, float]:
    return {
        str(event["step"]): float(str(event["seconds"]))
        for event in journal.events
        if "seconds" in event
    }


def result_of(outcome: AttemptOutcome) -> dict[str, Any]:
    output = cast("dict[str, dict[str, Any]]", outcome.report.output)
    return output["result"]
