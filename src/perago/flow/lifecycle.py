"""One attempt, from delivery to report: the whole path, in the order things happen.

Each step is a function of its own elsewhere in this package; what may go wrong in it is in
:mod:`perago.errors`. Between the steps are the named failpoints of
:mod:`perago.ports.environment`. A crash anywhere leaves at most a private directory and a private
branch behind, never a half-published state.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING

from perago.declare.guardrails import FileGuardrail, check
from perago.errors import (
    CommitNotFoundError,
    FenceError,
    OrchestratorError,
    OrchestratorUnavailableError,
    PeragoError,
    RepositoryNotFoundError,
    SecondWriterError,
    StoreError,
    StoreUnavailableError,
    TaskFailed,
    TaskInputError,
    TaskTerminalError,
    WorkspaceError,
)
from perago.flow.attempt_directory import AttemptDirectory
from perago.flow.fences import (
    assert_current_attempt_snapshot,
    assert_lease_covers,
    assert_only_writer,
    resolve_level,
)
from perago.flow.publish import Publication
from perago.flow.report import (
    BACKOFF,
    body_error,
    completed,
    failed,
    hand_in,
)
from perago.flow.runtime import Steps
from perago.flow.stage import staging_area
from perago.flow.validate import check_tables, parse_input
from perago.model.attempt import AttemptStep, Execution, is_superseded
from perago.model.outcome import AttemptOutcome, Published, PublishLevel, PublishPath
from perago.model.workspace import ChangeSet
from perago.ports.environment import NoLease

if TYPE_CHECKING:
    from pydantic import BaseModel

    from perago.declare.guardrails import Phase
    from perago.declare.task import AnyTask
    from perago.declare.workspace import WorkspaceSpec
    from perago.flow.runtime import Runtime
    from perago.flow.stage import StagingArea
    from perago.model.attempt import AttemptSnapshot, Delivery
    from perago.model.outcome import StagedWorkspace
    from perago.model.workspace import WorkspaceRef
    from perago.ports.engine import OpenWorkspace
    from perago.ports.environment import Lease


WARNING_SECONDS = 1.0
"""How old may be what is known of other writers, where that ends in a warning at most."""


def run_attempt(
    delivery: Delivery,
    task: AnyTask,
    runtime: Runtime,
    *,
    lease: Lease | None = None,
    execution: Execution | None = None,
) -> AttemptOutcome:
    """Run one delivered task and report how it ended. Failures are reported, not raised.

    One that another execution of the same delivery speaks for is neither.
    """
    execution = execution or Execution.begin(delivery.attempt)
    lease = lease or NoLease()
    attempt = _Attempt(delivery, task, runtime, execution, lease)
    silent = False
    try:
        report = completed(attempt.work())
    except Exception as error:  # noqa: BLE001 - whatever went wrong is this attempt's failure
        runtime.journal.failure(error)
        report = failed(error)
        silent = (isinstance(error, PeragoError) and error.silent) or attempt.is_spoken_for()
    report = replace(report, logs=runtime.journal.printed())
    runtime.failpoints.hit("report.ready")
    with attempt.steps.step(AttemptStep.REPORT, then="report.sent") as note:
        lease.rest()
        receipt = None if silent else hand_in(runtime, delivery, report, lease)
        accepted = receipt is not None and receipt.accepted
        note(status=report.status, accepted=accepted, level=attempt.level, reason=report.reason)
        if silent:
            note(silent=True)
    attempt.remove_directory()
    return AttemptOutcome(execution.id, report, accepted, attempt.published, attempt.changed)


class _Attempt:
    """The state one attempt gathers on its way."""

    def __init__(
        self,
        delivery: Delivery,
        task: AnyTask,
        runtime: Runtime,
        execution: Execution,
        lease: Lease,
    ) -> None:
        self.delivery = delivery
        self.task = task
        self.runtime = runtime
        self.execution = execution
        self.lease = lease
        self.steps = Steps.of(runtime)
        self.budget = task.controls.budget_within(delivery.response_seconds)
        self.directory: AttemptDirectory | None = None
        self.area: StagingArea | None = None
        self.branching = threading.Lock()
        self.level: PublishLevel | None = None
        self.published: Published | None = None
        self.changed: tuple[str, ...] = ()
        self.tables: list[dict[str, object]] = []

    def work(self) -> dict[str, object]:
        with self.steps.step(AttemptStep.VALIDATE, then="input.validated"):
            workspace, params = parse_input(self.task, self.delivery.input)
        if workspace is None:
            with self.steps.step(AttemptStep.BODY, then="body.done"):
                return {"result": self.task.dump_result(self._call_body(params))}
        return self._work_in(workspace, params)

    def _work_in(self, workspace: WorkspaceRef, params: BaseModel) -> dict[str, object]:
        spec, runtime, steps = self.task.workspace, self.runtime, self.steps
        engine = self.task.engine
        assert spec and engine  # noqa: PT018, S101 - a task with a workspace has both

        with steps.step(AttemptStep.DIRECTORY, then="directory.created") as note:
            note(repository=workspace.repository, branch=workspace.branch, ref=workspace.ref)
            note(prefix=spec.prefix)
            self._await_store(workspace)
            if not spec.read_only:
                self._look_for_other_writers(workspace)
            self.directory = AttemptDirectory.create(
                runtime.workspace_root, self.execution, workspace
            )
            note(path=str(self.directory.path))

        with ExitStack() as stack:
            area = staging_area(runtime.store, steps, self.execution, workspace)
            self.area = stack.enter_context(area)
            with steps.step(AttemptStep.FETCH, then="workspace.fetched") as note:
                opened = runtime.engines[engine].open(
                    runtime.store,
                    workspace,
                    spec.prefix,
                    self.directory.files,
                    steps.progress_of(AttemptStep.FETCH),
                    staging=None if spec.read_only else self._staging_branch,
                    computing=lambda done: runtime.journal.progress(AttemptStep.BODY, done),
                    execution=self.execution,
                )
                stack.enter_context(closing(opened))  # before its branch goes
                note(
                    objects=opened.fetched.objects,
                    bytes=opened.fetched.bytes,
                    objects_moved=opened.moved.objects,
                    bytes_moved=opened.moved.bytes,
                )

            with steps.step(AttemptStep.PRE, then="pre.checked") as note:
                self._check(opened, spec, "pre")
                note(guardrails=len(spec.pre))

            with steps.step(AttemptStep.BODY, then="body.done"):
                value = self._call_body(opened.argument, params, opened=opened)

            with steps.step(AttemptStep.POST, then="post.checked") as note:
                result = self.task.dump_result(value)
                changes = self._scan(opened)
                self.changed = tuple(changes.keys)
                if spec.read_only or opened.staged_checks is None:
                    self._check(opened, spec, "post")
                    note(guardrails=len(spec.post), files=len(opened.files))
                note(changed=len(self.changed))
                if opened.notes:
                    note(notes=list(opened.notes))

            if spec.read_only:
                self.published = self._leave_unpublished(workspace, changes)
            else:
                self.published = self._publish(workspace, opened, changes)
        return {
            "workspace": workspace.moved_to(self.published.ref).model_dump(),
            "result": result,
        }

    def _publish(
        self, workspace: WorkspaceRef, opened: OpenWorkspace, changes: ChangeSet
    ) -> Published:
        spec, area, steps = self.task.workspace, self.area, self.steps
        assert spec and area  # noqa: PT018, S101 - as above
        with steps.step(AttemptStep.FENCE1, then="fence1.passed") as note:
            self._attempt_fence()
            note(verdict="current")

        staged = area.stage(changes) if changes else None
        if checks := opened.staged_checks:
            with steps.step(AttemptStep.CHECKS) as note:
                if staged:
                    checks.look_at_staged(staged.commit)
                self._check(opened, spec, "post")
                note(guardrails=len(spec.post))
        if staged:
            with steps.step(AttemptStep.FENCE2, then="fence2.passed") as note:
                self._attempt_fence()
                note(verdict="current")

        with steps.step(AttemptStep.PUBLISH, then="publish.done") as note:
            note(store=self.runtime.store_name, lease_seconds=self.delivery.response_seconds)
            level = self.level = self._level(workspace, staged)
            assert_lease_covers(self.budget, self.lease.remaining())
            published = Publication(
                self.runtime.store,
                steps,
                self.execution,
                workspace,
                staged,
                level,
                self.budget,
                self._assert_still_ours,
                self.runtime.orchestrator.accepted_ref,
                note,
                self.runtime.replace,
                self.tables,
            ).publish()
            note(level=level, path=published.path, ref=published.ref, replaced=published.replaced)
        return published

    def _staging_branch(self) -> str:
        """For a body that writes straight to the store: it is fenced before it may begin."""
        area = self.area
        assert area is not None  # noqa: S101 - the body runs inside of it
        with self.branching:  # a body may have threads
            if not area.is_open:
                self._attempt_fence()
                area.branch_off()
                self.runtime.journal.started(AttemptStep.BODY)  # is what goes on
        return self.execution.staging_branch

    def _check(self, opened: OpenWorkspace, spec: WorkspaceSpec, phase: Phase) -> None:
        """What names can tell is looked at first: it costs next to nothing."""
        if names := [g for g in spec.of(phase) if isinstance(g, FileGuardrail)]:
            check(names, opened.files, phase)
        self.tables += check_tables(opened.staged_checks, spec, phase, self.runtime.journal)

    def _level(self, workspace: WorkspaceRef, staged: StagedWorkspace | None) -> PublishLevel:
        refs = [workspace.ref, *([staged.commit] if staged else [])]
        store, trial = self.runtime.store, self.execution.trial_branch
        found = [store.atomicity(workspace.repository, ref, trial=trial) for ref in refs]
        level = resolve_level(self.runtime.fence, found)
        shortcoming = next((one.shortcoming for one in found if one.shortcoming), None)
        if level is PublishLevel.SOFT and self.runtime.fence == "auto" and shortcoming:
            self._warn_once(
                "fence.soft",
                f"publishing with the soft fence only: {shortcoming}. "
                f"`perago fence install {workspace.repository} --branch {workspace.branch}` closes "
                "that gap",
            )
        return level

    def _warn_once(self, event: str, warning: str) -> None:
        """Once for all the attempts of this process: what is said every time isn't heard."""
        if warning not in self.runtime.warned:
            self.runtime.warned.add(warning)
            self.runtime.journal.event(event, warning=warning)

    def _scan(self, opened: OpenWorkspace) -> ChangeSet:
        try:
            return opened.scan()
        except WorkspaceError as error:
            spec = self.task.workspace
            if spec is None or not spec.read_only or spec.post:
                raise
            # What can't be stored is no harm where nothing will be, unless a check has to see it.
            self.runtime.journal.event("read_only.discarded", warning=error.message)
            return ChangeSet()

    def _leave_unpublished(self, workspace: WorkspaceRef, changes: ChangeSet) -> Published:
        if changes:
            self.runtime.journal.event(
                "read_only.discarded",
                warning=f"task {self.task.name} is read_only: what it changed is discarded",
                files=changes.keys,
            )
        return Published(workspace.ref, PublishPath.READ_ONLY, level=None)

    def _call_body(self, *arguments: object, opened: OpenWorkspace | None = None) -> object:
        try:
            return self.task.body(*arguments)
        except (TaskFailed, TaskTerminalError, KeyboardInterrupt):
            raise
        except (FenceError, StoreError, WorkspaceError):  # a Spark workspace's own word
            raise
        except BaseException as error:
            said = opened.explain(error) if opened else None
            raise body_error(error, self.task.location.file, said) from error

    def is_spoken_for(self) -> bool:
        """Whether the task was delivered again since: then a failure here isn't the task's."""
        try:
            now = self.runtime.orchestrator.reload(self.delivery.attempt)
        except OrchestratorError:
            return False
        return is_superseded(self.delivery, now)

    def _attempt_fence(self) -> None:
        assert_current_attempt_snapshot(self.delivery, self._reload())

    def _reload(self) -> AttemptSnapshot:
        """How the attempt stands. One who doesn't answer is asked on while the lease allows it."""
        pause = BACKOFF.first
        while True:
            try:
                return self.runtime.orchestrator.reload(self.delivery.attempt)
            except OrchestratorUnavailableError:
                if self.lease.remaining() - pause < self.budget.publish_seconds:
                    raise
            self.runtime.clock.sleep(pause)
            pause = BACKOFF.after(pause)

    def _look_for_other_writers(self, workspace: WorkspaceRef) -> None:
        """One active workflow writes a branch at a time: checked before any work is put in."""
        if self.runtime.single_writer == "off":
            return
        is_enforced = self.runtime.single_writer == "enforce"
        try:
            writers = self.runtime.orchestrator.writers(
                workspace.repository,
                workspace.branch,
                asking=self.delivery.attempt.workflow_instance_id,
                seconds_old=0.0 if is_enforced else WARNING_SECONDS,
            )
            assert_only_writer(self.delivery.attempt, workspace, writers)
        except (SecondWriterError, OrchestratorError) as error:
            if is_enforced:
                raise
            self.runtime.journal.event("second_writer", warning=error.message)

    def _assert_still_ours(self) -> None:
        self._attempt_fence()
        assert_lease_covers(self.budget, self.lease.remaining())

    def _await_store(self, workspace: WorkspaceRef) -> None:
        """Return when the store has the input commit, which it may take a while to say."""
        clock = self.runtime.clock
        deadline = clock.monotonic() + self.runtime.store_patience_seconds
        pause, is_told = BACKOFF.first, False
        while True:
            try:
                return self._assert_input_commit(workspace)
            except StoreUnavailableError as error:
                if clock.monotonic() + pause > deadline:
                    raise
                if not is_told:
                    warning = f"waiting for the store to come back: {error.message}"
                    self.runtime.journal.event("store.away", warning=warning)
                    is_told = True
            clock.sleep(pause)
            pause = BACKOFF.after(pause)

    def _assert_input_commit(self, workspace: WorkspaceRef) -> None:
        try:
            found = self.runtime.store.get_commit(workspace.repository, workspace.ref)
        except (RepositoryNotFoundError, CommitNotFoundError) as error:
            field = "ref" if isinstance(error, CommitNotFoundError) else "repository"
            raise TaskInputError(
                f"task {self.task.name}: workspace.{field} doesn't exist: {error.message}",
                fix=error.fix,
            ) from error
        if found.id != workspace.ref:
            raise TaskInputError(
                f"task {self.task.name}: workspace.ref {workspace.ref!r} is not a commit id",
                fix=f"give the commit it stands for now: {found.id}",
            )

    def remove_directory(self) -> None:
        if self.directory is None:
            return
        try:
            if self.area is not None and self.area.is_left:
                self.directory.leave()
            else:
                self.directory.remove()
        except OSError as error:
            self.runtime.journal.event(
                "cleanup.failed", path=str(self.directory.path), error=str(error)
            )
        self.runtime.failpoints.hit("directory.removed")
