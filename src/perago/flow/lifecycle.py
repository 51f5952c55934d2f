"""One attempt, from delivery to report: the whole path, in the order things happen.

Read :func:`run_attempt`, then the functions below it, from top to bottom: each is a step or a few.
What a step produces is a value that the next steps take. Between the steps are the named failpoints
of :mod:`perago.ports.environment`. A crash anywhere leaves at most a private directory and a
private branch behind, never a half-published state.
"""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perago.errors import (
    FenceError,
    OrchestratorError,
    PeragoError,
    StoreError,
    TaskFailed,
    TaskTerminalError,
    WorkspaceError,
)
from perago.flow.attempt_directory import AttemptDirectory
from perago.flow.publish import Publication, level_in_force
from perago.flow.report import body_error, completed, failed, hand_in
from perago.flow.runtime import AttemptContext
from perago.flow.stage import StagingArea
from perago.flow.validate import (
    await_input_commit,
    check_guardrails,
    check_single_writer,
    parse_input,
)
from perago.model.attempt import AttemptStep, Execution, is_superseded
from perago.model.outcome import AttemptOutcome, Published, PublishPath
from perago.model.workspace import ChangeSet
from perago.ports.environment import NoLease

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pydantic import BaseModel

    from perago.declare.task import AnyTask
    from perago.flow.runtime import Runtime
    from perago.flow.validate import ValidatedInput
    from perago.model.attempt import Delivery
    from perago.model.outcome import PublishLevel, StagedWorkspace, TaskReport
    from perago.model.workspace import WorkspaceRef
    from perago.ports.engine import OpenWorkspace
    from perago.ports.environment import Lease

    TableDocuments = Sequence[Mapping[str, object]]
    """The results of table checks, one JSON document per table."""


@dataclass(frozen=True, slots=True)
class BodyResult:
    """What a body returned, as JSON; what it changed; what checks of its tables found so far."""

    result: Mapping[str, object]
    changes: ChangeSet
    tables: TableDocuments


@dataclass(frozen=True, slots=True)
class Staged:
    """The staging commit, None if nothing changed, and what checks of its tables found."""

    workspace: StagedWorkspace | None
    tables: TableDocuments


@dataclass(slots=True)
class _AttemptState:
    """What is known of an attempt when it ends, also if it fails half way."""

    directory: AttemptDirectory | None = None
    area: StagingArea | None = None
    changed: tuple[str, ...] = ()
    level: PublishLevel | None = None
    published: Published | None = None


def run_attempt(
    delivery: Delivery,
    task: AnyTask,
    runtime: Runtime,
    *,
    lease: Lease | None = None,
    execution: Execution | None = None,
) -> AttemptOutcome:
    """Run one delivered task and report how it ended. Failures are reported, not raised.

    If another execution of the same delivery owns the result, nothing is reported.
    """
    execution = execution or Execution.begin(delivery.attempt)
    context = AttemptContext(delivery, task, runtime, execution, lease or NoLease())
    state = _AttemptState()
    is_silent = False
    try:
        report = completed(_work(context, state))
    except Exception as error:  # noqa: BLE001 - whatever went wrong is this attempt's failure
        runtime.journal.failure(error)
        report = failed(error)
        is_silent = (isinstance(error, PeragoError) and error.silent) or _is_superseded(context)
    report = replace(report, logs=runtime.journal.printed())
    accepted = _report(context, report, state.level, is_silent=is_silent)
    _remove_directory(context, state)
    return AttemptOutcome(execution.id, report, accepted, state.published, state.changed)


def _work(context: AttemptContext, state: _AttemptState) -> Mapping[str, object]:
    """All steps before the report. Returns the output; what is raised is the attempt's failure."""
    given = _validate(context)
    if given.workspace is None:
        return {"result": _run_body_without_workspace(context, given.params)}
    workspace = given.workspace
    directory = _create_directory(context, workspace, state)
    area = state.area = StagingArea(context, workspace)
    with area, _fetch(context, workspace, directory, area) as opened:
        tables = _check_before(context, opened)
        value = _run_body(context, opened, given.params)
        done = _scan_and_check(context, opened, value, tables, state)
        if context.spec.read_only:
            state.published = _discard_changes(context, workspace, done.changes)
        else:
            staged = _stage(context, opened, area, done)
            state.published = _publish(context, workspace, staged, state)
    moved = workspace.moved_to(state.published.ref)
    return {"workspace": moved.model_dump(), "result": done.result}


def _validate(context: AttemptContext) -> ValidatedInput:
    with context.step(AttemptStep.VALIDATE, then="input.validated"):
        return parse_input(context.task, context.delivery.input)


def _run_body_without_workspace(context: AttemptContext, params: BaseModel) -> Mapping[str, object]:
    with context.step(AttemptStep.BODY, then="body.done"):
        return context.task.dump_result(_call_body(context, params))


def _create_directory(
    context: AttemptContext, workspace: WorkspaceRef, state: _AttemptState
) -> AttemptDirectory:
    with context.step(AttemptStep.DIRECTORY, then="directory.created") as note:
        note(repository=workspace.repository, branch=workspace.branch, ref=workspace.ref)
        note(prefix=context.spec.prefix)
        await_input_commit(context, workspace)
        if not context.spec.read_only:
            check_single_writer(context, workspace)
        directory = state.directory = AttemptDirectory.create(
            context.runtime.workspace_root, context.execution, workspace
        )
        note(path=str(directory.path))
    return directory


@contextmanager
def _fetch(
    context: AttemptContext,
    workspace: WorkspaceRef,
    directory: AttemptDirectory,
    area: StagingArea,
) -> Iterator[OpenWorkspace]:
    """The open workspace; it is closed before its staging branch is deleted."""
    runtime, spec = context.runtime, context.spec
    with ExitStack() as stack:
        with context.step(AttemptStep.FETCH, then="workspace.fetched") as note:
            opened = context.engine.open(
                runtime.store,
                workspace,
                spec.prefix,
                directory.files,
                context.on_transfer(AttemptStep.FETCH),
                staging=None if spec.read_only else area.open_for_body,
                computing=lambda done: runtime.journal.progress(AttemptStep.BODY, done),
                execution=context.execution,
            )
            stack.enter_context(closing(opened))
            note(
                objects=opened.fetched.objects,
                bytes=opened.fetched.bytes,
                objects_moved=opened.moved.objects,
                bytes_moved=opened.moved.bytes,
            )
        yield opened


def _check_before(context: AttemptContext, opened: OpenWorkspace) -> TableDocuments:
    with context.step(AttemptStep.PRE, then="pre.checked") as note:
        tables = check_guardrails(context, opened, "pre")
        note(guardrails=len(context.spec.pre))
    return tables


def _run_body(context: AttemptContext, opened: OpenWorkspace, params: BaseModel) -> object:
    with context.step(AttemptStep.BODY, then="body.done"):
        return _call_body(context, opened.argument, params, explain=opened.explain)


def _call_body(
    context: AttemptContext,
    *arguments: object,
    explain: Callable[[BaseException], str | None] = lambda _error: None,
) -> object:
    """Raises TaskBodyError for whatever the body raises, except what is meant for the runtime."""
    try:
        return context.task.body(*arguments)
    except (TaskFailed, TaskTerminalError, KeyboardInterrupt):
        raise
    except (FenceError, StoreError, WorkspaceError):  # raised by a Spark workspace, not by the body
        raise
    except BaseException as error:
        raise body_error(error, context.task.location.file, explain(error)) from error


def _scan_and_check(
    context: AttemptContext,
    opened: OpenWorkspace,
    value: object,
    tables: TableDocuments,
    state: _AttemptState,
) -> BodyResult:
    with context.step(AttemptStep.POST, then="post.checked") as note:
        result = context.task.dump_result(value)
        changes = _scan(context, opened)
        state.changed = tuple(changes.keys)
        if not opened.checks_staged_data:
            tables = (*tables, *check_guardrails(context, opened, "post"))
            note(guardrails=len(context.spec.post), files=len(opened.files))
        note(changed=len(state.changed))
        if opened.notes:
            note(notes=list(opened.notes))
    return BodyResult(result, changes, tables)


def _scan(context: AttemptContext, opened: OpenWorkspace) -> ChangeSet:
    try:
        return opened.scan()
    except WorkspaceError as error:
        if not context.spec.read_only or context.spec.post:
            raise
        # Files that can't be stored do no harm if nothing is stored and no check looks at them.
        context.event("read_only.discarded", warning=error.message)
        return ChangeSet()


def _discard_changes(
    context: AttemptContext, workspace: WorkspaceRef, changes: ChangeSet
) -> Published:
    if changes:
        context.event(
            "read_only.discarded",
            warning=f"task {context.task.name} is read_only: what it changed is discarded",
            files=changes.keys,
        )
    return Published(workspace.ref, PublishPath.READ_ONLY, level=None)


def _stage(
    context: AttemptContext, opened: OpenWorkspace, area: StagingArea, done: BodyResult
) -> Staged:
    _attempt_fence(context, AttemptStep.FENCE1, then="fence1.passed")
    staged = area.stage(done.changes) if done.changes else None
    tables = done.tables
    if opened.checks_staged_data:
        with context.step(AttemptStep.CHECKS) as note:
            if staged:
                opened.look_at_staged(staged.commit)
            tables = (*tables, *check_guardrails(context, opened, "post"))
            note(guardrails=len(context.spec.post))
    if staged:
        _attempt_fence(context, AttemptStep.FENCE2, then="fence2.passed")
    return Staged(staged, tables)


def _attempt_fence(context: AttemptContext, step: AttemptStep, *, then: str) -> None:
    with context.step(step, then=then) as note:
        context.assert_current()
        note(verdict="current")


def _publish(
    context: AttemptContext,
    workspace: WorkspaceRef,
    staged: Staged,
    state: _AttemptState,
) -> Published:
    with context.step(AttemptStep.PUBLISH, then="publish.done") as note:
        note(store=context.runtime.store_name, lease_seconds=context.delivery.response_seconds)
        level = state.level = level_in_force(context, workspace, staged.workspace)
        context.assert_lease_covers_publication()
        published = Publication(
            context=context,
            workspace=workspace,
            staged=staged.workspace,
            level=level,
            tables=staged.tables,
            note=note,
        ).publish()
        note(level=level, path=published.path, ref=published.ref, replaced=published.replaced)
    return published


def _is_superseded(context: AttemptContext) -> bool:
    """Whether the task was delivered again since: then a failure here isn't the task's."""
    try:
        now = context.runtime.orchestrator.reload(context.delivery.attempt)
    except OrchestratorError:
        return False
    return is_superseded(context.delivery, now)


def _report(
    context: AttemptContext, report: TaskReport, level: PublishLevel | None, *, is_silent: bool
) -> bool:
    """Whether the orchestrator accepted the report."""
    context.reached("report.ready")
    with context.step(AttemptStep.REPORT, then="report.sent") as note:
        context.lease.stop_heartbeats()
        receipt = None
        if not is_silent:
            receipt = hand_in(context.runtime, context.delivery, report, context.lease)
        accepted = receipt is not None and receipt.accepted
        note(status=report.status, accepted=accepted, level=level, reason=report.reason)
        if is_silent:
            note(silent=True)
    return accepted


def _remove_directory(context: AttemptContext, state: _AttemptState) -> None:
    if state.directory is None:
        return
    try:
        if state.area is not None and state.area.may_remain:
            state.directory.leave()
        else:
            state.directory.remove()
    except OSError as error:
        context.event("cleanup.failed", path=str(state.directory.path), error=str(error))
    context.reached("directory.removed")
