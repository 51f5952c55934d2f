"""What a failure becomes: a status, a short reason, no output, and nothing left behind."""

from __future__ import annotations

import asyncio
import shutil
import sys

import pytest
from pydantic import BaseModel

from perago import TaskFailed, TaskTerminalError, forbid_glob, require_file, task
from perago.flow.report import short_reason
from perago.model.attempt import TaskStatus
from perago.model.outcome import REASON_LIMIT
from perago.testing import RecordingJournal

FAILED, TERMINAL = TaskStatus.FAILED, TaskStatus.FAILED_WITH_TERMINAL_ERROR


class Empty(BaseModel):
    pass


class Total(BaseModel):
    total: float = 0.0


def assert_nothing_happened(stage, outcome):
    assert outcome.report.output == {}
    assert outcome.published is None
    assert len(outcome.report.reason) <= REASON_LIMIT
    assert stage.bench.head == stage.A
    stage.assert_nothing_left()


def raising(error):
    def body(workspace):
        (workspace / "half").write_text("done")
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (TaskFailed("no rows today"), FAILED, "task_failed: no rows today"),
        (TaskTerminalError("wrong file"), TERMINAL, "task_terminal: wrong file"),
        (ZeroDivisionError("by zero"), FAILED, "task_body: ZeroDivisionError: by zero"),
        (SystemExit(3), FAILED, "task_body: SystemExit: 3"),
        (asyncio.CancelledError(), FAILED, "task_body: CancelledError"),
        (BaseExceptionGroup("several", [SystemExit(1)]), FAILED, "task_body: BaseExceptionGroup"),
        (UnicodeError("name \udcff"), FAILED, r"task_body: UnicodeError: name \udcff"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_what_a_body_raises(stage, error, status, reason):
    outcome = stage.attempt(raising(error))
    assert outcome.accepted
    assert outcome.report.status is status
    assert reason in outcome.report.reason
    assert_nothing_happened(stage, outcome)


def test_the_whole_traceback_with_its_cause_is_in_the_journal(atomic):
    def body(workspace):
        try:
            {}["song_id"]
        except KeyError as error:
            raise TaskFailed("a song without an id") from error

    atomic.attempt(body)
    (traceback,) = atomic.journal.tracebacks
    assert "KeyError: 'song_id'" in traceback
    assert "a song without an id" in traceback
    assert __file__ in traceback


class RecordingQueue:
    """The queue, and the reports it got."""

    def __init__(self, queue):
        self._queue, self.reports = queue, []

    def report(self, delivery, report):
        self.reports.append(report)
        return self._queue.report(delivery, report)

    def __getattr__(self, name):
        return getattr(self._queue, name)


class Printing(RecordingJournal):
    """Of an attempt whose body printed one line."""

    def printed(self):
        return ("3 songs", *super().printed())


@pytest.mark.parametrize(
    ("body", "last_line"),
    [
        (lambda _workspace: None, "3 songs"),
        (raising(TaskFailed("no rows today")), "perago.errors.TaskFailed: no rows today"),
    ],
    ids=["completed", "failed"],
)
def test_what_the_attempt_printed_and_its_traceback_go_to_the_orchestrator(atomic, body, last_line):
    queue = RecordingQueue(atomic.bench.queue)
    atomic.journal = Printing()
    outcome = atomic.attempt(body, orchestrator=queue)
    (report,) = queue.reports
    assert (report.logs[0], report.logs[-1]) == ("3 songs", last_line)
    assert not any("\n" in line for line in report.logs)
    assert outcome.report == report


def test_a_reason_is_one_line_of_at_most_500_characters():
    reason = short_reason(TaskFailed("line one\nline two " + "x" * 1000, fix="never shown"))
    assert reason.startswith("task_failed: line one line two xxx")
    assert (len(reason), reason[-1]) == (500, "…")


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ({"note": "a dict"}, "which is not a Done"),
        (Total(), "which is not a Done"),
        (0, "returned 0, which is not a Done"),
    ],
    ids=["a dict", "another model", "a number"],
)
def test_a_result_of_the_wrong_type_fails(stage, returned, reason):
    outcome = stage.attempt(lambda _workspace: returned)
    assert outcome.report.status is FAILED
    assert reason in outcome.report.reason
    assert_nothing_happened(stage, outcome)


def test_a_result_that_is_not_json_fails(atomic):
    @task(name="bench.nan", owner_email="data@example.com")
    def divide(params: Empty) -> Total:
        return Total(total=float("nan"))

    atomic.bench.start(divide)
    outcome = atomic.again(divide)
    assert outcome.report.status is FAILED
    assert "isn't JSON" in outcome.report.reason


def test_a_pre_guardrail_is_terminal_and_the_body_does_not_run(stage, edits):
    ran = []
    outcome = stage.attempt(ran.append, spec={"pre": [require_file("absent.csv")]})
    assert ran == []
    assert outcome.report.status is TERMINAL
    assert "require_file('absent.csv')" in outcome.report.reason
    assert "body" not in stage.journal.steps()
    assert_nothing_happened(stage, outcome)


def test_a_post_guardrail_is_an_ordinary_failure(stage, edits):
    outcome = stage.attempt(edits, spec={"post": [forbid_glob("new")]})
    assert outcome.report.status is FAILED
    assert "forbid_glob('new')" in outcome.report.reason
    assert_nothing_happened(stage, outcome)


def test_the_result_is_judged_before_the_post_guardrails(atomic):
    outcome = atomic.attempt(lambda _ws: 0, spec={"post": [require_file("absent")]})
    assert "task_result" in outcome.report.reason


def symlink(workspace):
    (workspace / "link").symlink_to("keep")


def test_a_symlink_is_refused_at_staging(stage):
    outcome = stage.attempt(symlink)
    assert outcome.report.status is FAILED
    assert "'link'" in outcome.report.reason
    assert "symlink" in outcome.report.reason
    assert_nothing_happened(stage, outcome)


def test_a_name_that_is_not_text_fails_with_a_reason_that_is(stage):
    def body(workspace):
        (workspace / "caf\udce9").write_text("latin-1")

    outcome = stage.attempt(body)
    assert outcome.accepted
    assert r"caf\udce9" in outcome.report.reason
    assert_nothing_happened(stage, outcome)


def test_a_body_that_removes_its_workspace_fails(stage):
    outcome = stage.attempt(shutil.rmtree)
    assert "removed its workspace directory" in outcome.report.reason
    assert_nothing_happened(stage, outcome)


def test_a_workspace_free_task_takes_params_only_and_publishes_nothing(stage):
    @task(name="bench.plain", owner_email="data@example.com")
    def plain(params: Empty) -> Total:
        return Total(total=2.5)

    stage.bench.start(plain)
    outcome = stage.again(plain)
    assert outcome.accepted
    assert outcome.report.output == {"result": {"total": 2.5}}
    assert stage.journal.steps() == ["validate", "body", "report"]
    assert not stage.bench.attempts.exists()


def test_a_workspace_free_task_that_fails_keeps_the_reason(stage):
    @task(name="bench.plain", owner_email="data@example.com")
    def plain(params: Empty) -> Total:
        sys.exit("the API is down")

    stage.bench.start(plain)
    outcome = stage.again(plain)
    assert outcome.report.status is FAILED
    assert "the API is down" in outcome.report.reason


def test_a_read_only_task_completes_at_its_input_and_names_what_it_discards(stage, edits):
    outcome = stage.attempt(edits, spec={"read_only": True})
    assert outcome.accepted
    assert outcome.report.output["workspace"]["ref"] == stage.A == stage.bench.head
    discarded = stage.journal.of("read_only.discarded")
    assert discarded["files"] == ["drop", "edit", "new"]
    assert "discarded" in discarded["warning"]
    stage.assert_nothing_left()


def test_a_read_only_task_does_not_ask_where_the_branch_is(stage, no_edits):
    stage.someone_writes()
    stage.bench.write({"foreign": "twice"})
    outcome = stage.attempt(
        no_edits, spec={"read_only": True}, faults={"body.done": stage.time_out}
    )
    assert outcome.report.completed
    assert outcome.report.output["workspace"]["ref"] == stage.A
    assert not {"fence1", "fence2", "publish", "read_only.discarded"} & {*stage.journal.steps()}


def test_a_read_only_task_works_even_when_the_branch_is_gone(stage, no_edits):
    stage.bench.store.create_branch("bench", "spare", stage.A)
    stage.bench.store.delete_branch("bench", "main")
    assert stage.attempt(no_edits, spec={"read_only": True}).accepted


def test_the_target_branch_being_gone_fails_closed(stage, edits):
    def drop_the_branch():
        stage.bench.store.delete_branch("bench", "main")

    outcome = stage.attempt(edits, faults={"fence2.passed": drop_the_branch})
    assert outcome.report.status is FAILED
    assert "publish_fence" in outcome.report.reason
    assert "'main'" in outcome.report.reason
    assert [b.name for b in stage.bench.store.branches("bench")] == []
    assert list(stage.bench.attempts.iterdir()) == []
