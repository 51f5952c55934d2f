"""Is everything as the task declared it: its input, before any work; its data, before and after.

Errors name the field, file or table and say what was expected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import ValidationError

from perago.declare.guardrails import FileGuardrail, check, violated
from perago.errors import (
    CommitNotFoundError,
    OrchestratorError,
    RepositoryNotFoundError,
    SecondWriterError,
    StoreUnavailableError,
    TaskInputError,
)
from perago.flow.fences import assert_only_writer
from perago.flow.runtime import BACKOFF
from perago.model.tables import describe
from perago.model.workspace import WorkspaceRef

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic import BaseModel

    from perago.declare.guardrails import Phase
    from perago.declare.task import AnyTask
    from perago.flow.runtime import AttemptContext
    from perago.ports.engine import OpenWorkspace

WARNING_SECONDS = 1.0
"""How old the list of active writers may be where a second writer only causes a warning."""


@dataclass(frozen=True, slots=True)
class ValidatedInput:
    """A delivery's input as declared. A workspace-free task has no ``workspace``."""

    workspace: WorkspaceRef | None
    params: BaseModel


def parse_input(task: AnyTask, raw: Mapping[str, object]) -> ValidatedInput:
    """Raises TaskInputError, naming the field and its value, unless it is exactly as declared."""
    expected = {"workspace", "params"} if task.workspace else {"params"}
    _require_keys(task.name, raw, expected)
    workspace = _parse_workspace(task.name, raw["workspace"]) if task.workspace else None
    return ValidatedInput(workspace, task.parse_params(raw["params"]))


def _require_keys(task_name: str, raw: Mapping[str, object], expected: set[str]) -> None:
    missing, extra = expected - raw.keys(), raw.keys() - expected
    if not missing and not extra:
        return
    problems = [f"{key!r} is missing" for key in sorted(missing)]
    problems += [f"{key!r} is not expected" for key in sorted(extra)]
    raise TaskInputError(
        f"task {task_name}: input has exactly the keys {_spell(expected)}: {'; '.join(problems)}",
        fix=f"schedule it with {_spell(expected)} and nothing else at the top level",
    )


def _parse_workspace(task_name: str, raw: object) -> WorkspaceRef:
    try:
        return WorkspaceRef.model_validate(raw)
    except ValidationError as error:
        details = "; ".join(
            f"{'.'.join(map(str, ('workspace', *e['loc'])))}: {e['msg']}, got {e['input']!r:.80}"
            for e in error.errors()
        )
        raise TaskInputError(
            f"task {task_name}: {details}",
            fix='give workspace as {"repository": …, "branch": …, "ref_type": "commit", "ref": …}',
        ) from None


def _spell(keys: set[str]) -> str:
    return " and ".join(repr(key) for key in sorted(keys, reverse=True))


def await_input_commit(context: AttemptContext, workspace: WorkspaceRef) -> None:
    """Return when the store has the input commit; wait for a store that doesn't answer.

    Raises TaskInputError if there is no such commit, and StoreUnavailableError if the store still
    doesn't answer after ``store_patience_seconds``.
    """
    clock = context.runtime.clock
    deadline = clock.monotonic() + context.runtime.store_patience_seconds
    waits, has_warned = iter(BACKOFF), False
    while True:
        try:
            return _assert_input_commit(context, workspace)
        except StoreUnavailableError as error:
            pause = next(waits)
            if clock.monotonic() + pause > deadline:
                raise
            if not has_warned:
                warning = f"waiting for the store to come back: {error.message}"
                context.event("store.away", warning=warning)
                has_warned = True
        clock.sleep(pause)


def _assert_input_commit(context: AttemptContext, workspace: WorkspaceRef) -> None:
    task_name = context.task.name
    try:
        found = context.runtime.store.get_commit(workspace.repository, workspace.ref)
    except (RepositoryNotFoundError, CommitNotFoundError) as error:
        field = "ref" if isinstance(error, CommitNotFoundError) else "repository"
        raise TaskInputError(
            f"task {task_name}: workspace.{field} doesn't exist: {error.message}", fix=error.fix
        ) from error
    if found.id != workspace.ref:
        raise TaskInputError(
            f"task {task_name}: workspace.ref {workspace.ref!r} is not a commit id",
            fix=f"give the commit it stands for now: {found.id}",
        )


def check_single_writer(context: AttemptContext, workspace: WorkspaceRef) -> None:
    """Only one active workflow may write a branch: warn, or raise, before any work is done.

    Raises SecondWriterError or OrchestratorError only if PERAGO_SINGLE_WRITER is ``enforce``.
    """
    runtime, attempt = context.runtime, context.delivery.attempt
    if runtime.single_writer == "off":
        return
    is_enforced = runtime.single_writer == "enforce"
    try:
        writers = runtime.orchestrator.writers(
            workspace.repository,
            workspace.branch,
            asking=attempt.workflow_instance_id,
            seconds_old=0.0 if is_enforced else WARNING_SECONDS,
        )
        assert_only_writer(attempt, workspace, writers)
    except (SecondWriterError, OrchestratorError) as error:
        if is_enforced:
            raise
        context.event("second_writer", warning=error.message)


def check_guardrails(
    context: AttemptContext, opened: OpenWorkspace, phase: Phase
) -> Sequence[Mapping[str, object]]:
    """Check a phase's guardrails; return one JSON document per table that was checked.

    File names first: they cost next to nothing. Raises GuardrailViolation, naming all that is
    wrong with the files, or with the tables.
    """
    if names := [rule for rule in context.spec.of(phase) if isinstance(rule, FileGuardrail)]:
        check(names, opened.files, phase)
    return check_tables(context, opened, phase)


def check_tables(
    context: AttemptContext, opened: OpenWorkspace, phase: Phase
) -> Sequence[Mapping[str, object]]:
    """The tables' part of :func:`check_guardrails`. The results go into the log as well."""
    rules = context.spec.tables_of(phase)
    if not rules:
        return ()
    reports = opened.check_tables(rules, context.spec.sources(phase))
    documents = [{"phase": phase, **report.document()} for report in reports]
    for document in documents:
        context.event("table", **document)
    if sentences := [sentence for report in reports for sentence in describe(report)]:
        raise violated(sentences, phase)
    return documents
