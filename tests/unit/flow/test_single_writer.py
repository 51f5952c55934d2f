"""Two active runs on one branch: what a worker makes of the operators' broken promise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perago.errors import OrchestratorUnavailableError
from perago.flow.lifecycle import run_attempt
from perago.model.attempt import TaskStatus


@pytest.fixture
def second_writer(atomic, edits):
    """Run an attempt of a run that was started elsewhere, with the first run's branch as input.

    The embedded queue starts no second run on a branch: only a task's input can name it.
    """
    bench = atomic.bench
    bench.store.create_branch("bench", "spare", atomic.A)
    elsewhere = bench.workspace(atomic.A).model_copy(update={"branch": "spare"})

    def attempt(single_writer, *, orchestrator=None, **spec):
        step = atomic.declare(edits, **spec)
        bench.start(step)
        bench.queue.start(bench.plan(step), elsewhere)
        _, second = bench.queue.poll([step.name], worker_id="worker-1", limit=2)
        here = {**second.input, "workspace": bench.workspace(atomic.A).model_dump()}
        runtime = bench.runtime(
            journal=atomic.journal, single_writer=single_writer, orchestrator=orchestrator
        )
        return run_attempt(replace(second, input=here), step, runtime)

    return attempt


def first_run(stage):
    return stage.bench.queue.active_on("bench", "main").id


def test_enforced_the_attempt_fails_before_anything_is_fetched_and_names_the_other_run(
    atomic, second_writer
):
    outcome = second_writer("enforce")
    assert (outcome.report.status, outcome.accepted) == (TaskStatus.FAILED, True)
    assert outcome.report.reason.startswith("second_writer: branch 'main' of 'bench'")
    assert first_run(atomic) in outcome.report.reason
    assert "fetch" not in atomic.journal.steps()
    assert atomic.bench.head == atomic.A
    atomic.assert_nothing_left()


def test_warned_of_the_attempt_goes_on_and_the_log_names_the_other_run(
    atomic, second_writer, edited
):
    outcome = second_writer("warn")
    assert outcome.accepted
    assert first_run(atomic) in atomic.journal.of("second_writer")["warning"]
    assert atomic.bench.read() == edited


def test_switched_off_nobody_is_asked(atomic, second_writer):
    unasked = OrchestratorUnavailableError("it was asked")
    errors = [unasked]
    assert second_writer("off", orchestrator=atomic.flaky_queue(writers=errors)).accepted
    assert errors == [unasked]
    assert "second_writer" not in atomic.journal.steps()


def test_a_read_only_task_writes_nothing_and_needs_no_branch_of_its_own(atomic, second_writer):
    assert second_writer("enforce", read_only=True).accepted


@pytest.mark.parametrize("single_writer", ["warn", "enforce"])
def test_a_run_is_no_second_writer_to_itself(stage, edits, single_writer):
    assert stage.attempt(edits, single_writer=single_writer).accepted
    assert "second_writer" not in stage.journal.steps()


def test_an_orchestrator_that_does_not_answer_is_enough_to_warn_of(stage, edits):
    down = stage.flaky_queue(writers=[OrchestratorUnavailableError("no answer")])
    assert stage.attempt(edits, orchestrator=down, single_writer="warn").accepted
    assert stage.journal.of("second_writer")["warning"] == "no answer"


def test_and_enough_to_fail_where_one_writer_is_enforced(stage, edits):
    down = stage.flaky_queue(writers=[OrchestratorUnavailableError("no answer")])
    outcome = stage.attempt(edits, orchestrator=down, single_writer="enforce")
    assert outcome.report.status is TaskStatus.FAILED
    assert outcome.report.reason.startswith("orchestrator_unavailable")
    assert stage.bench.head == stage.A
    stage.assert_nothing_left()
