"""Attempts that really run, in this process, with their news going where a supervisor's would."""

from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path

import pytest
from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, TaskFailed, WorkspaceSpec, task
from perago.flow.lifecycle import run_attempt
from perago.model.attempt import Execution
from perago.testing import Bench
from perago.wiring import system_clock
from perago.worker.attempt_log import AttemptLog, ExecutorJournal, Outbox, OutputStreams
from perago.worker.events import (
    AttemptEnded,
    AttemptStarted,
    Ending,
    StepEnded,
    StepProgressed,
    StepStarted,
)
from perago.worker.messages import SharedStep, StepEnd, StepProgress, StepStart


class Secrets(BaseModel):
    password: str = "hunter2"
    fail: bool = False


class Nothing(BaseModel):
    pass


@task(
    name="watched.write",
    owner_email="a@b.c",
    workspace=WorkspaceSpec(),
    controls=TaskControls(retry=RetryPolicy(count=3, delay_seconds=0)),
)
def write(ws: Path, params: Secrets) -> Nothing:
    (ws / "new").write_text("12345")
    if params.fail:
        raise TaskFailed(f"can't log in with {params.password}")
    return Nothing()


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path)
    bench.write({"old": "123"})
    yield bench
    bench.close()


@pytest.fixture
def attempt_under(bench, tmp_path):
    """Run an attempt of the task with this observer; the attempt itself."""

    def run(observer, *, fail=False, retry=False):
        if not retry:
            bench.start(write, params={"write": {"fail": fail}})
        delivery = bench.poll(write)
        attempt, execution = delivery.attempt, Execution.begin(delivery.attempt)

        ours, theirs = Pipe(duplex=False)
        with ours, theirs:
            outbox = Outbox(theirs, on_orphaned=lambda: pytest.fail("nobody listens"))
            log = AttemptLog(tmp_path / "events", tmp_path / "log", OutputStreams(), spool=None)
            journal = ExecutorJournal(execution, log, outbox, SharedStep.new())
            runtime = replace(bench.runtime(), journal=journal, clock=system_clock())
            observer.observe(AttemptStarted(execution))
            outcome = run_attempt(delivery, write, runtime, execution=execution)
            outbox.send()
            while ours.poll():
                for message in ours.recv():
                    observer.observe(_event_of(attempt, message))
        assert outcome.accepted
        report = outcome.report
        observer.observe(AttemptEnded(attempt, Ending.ACCEPTED, report.status, report.reason))
        return attempt

    return run


def _event_of(attempt, message):
    match message:
        case StepStart(step):
            return StepStarted(attempt, step)
        case StepEnd(fields):
            return StepEnded(attempt, fields)
        case StepProgress(step, progress):
            return StepProgressed(attempt, step, progress)
