"""Every error that Perago raises, in one tree, grouped by what to do about it.

::

    PeragoError
    ├── TaskDefinitionError        fix the code: a declaration is wrong
    │   └── UnsafeWorkflowError        … a workflow lets two tasks write one branch at a time
    ├── RuntimeConfigError         fix a setting, a command line or the machine
    ├── TaskInputError             fix what scheduled the task: its input is malformed
    ├── GuardrailViolation         the data breaks the task's contract
    │   ├── PreGuardrailViolation      … before the task ran; a retry can't help (terminal)
    │   └── PostGuardrailViolation     … after the task ran
    ├── TaskExecutionError         the task's own code failed
    │   ├── TaskFailed                 it said so; a retry may help
    │   ├── TaskTerminalError          it said so; a retry can't help (terminal)
    │   ├── TaskBodyError              it raised something else
    │   ├── TaskResultError            it returned something that isn't its declared result
    │   └── ExecutorLostError          its process died or was stopped
    ├── WorkspaceError             files or object keys that can't be a workspace
    │   ├── UnsafeKeyError             an object key can't be a file below the prefix
    │   ├── UnsupportedFileError       a symlink, socket, device, unreadable or reserved file
    │   ├── SparkPathError             a path, table or format that a Spark task can't use
    │   └── WorkspaceChangedError      a file changed while it was being staged
    ├── SparkFailedError           Spark failed at a request of the runtime
    ├── FenceError                 this attempt may not publish
    │   ├── StaleAttemptError          the orchestrator no longer counts on it
    │   │   └── SupersededError            … because the task was delivered again
    │   ├── PublishFenceError          the branch is not where the attempt started from
    │   │   └── TwinPublishedError         … because another execution of this delivery published
    │   ├── SecondWriterError          another active workflow writes the same branch
    │   └── LeaseTooShortError         too little of the lease is left to publish
    ├── UnsettledPublishError      the branch may have changed: look at it, then go on
    │   ├── WrongLandingError          a merge landed on another commit than the input
    │   └── PublishUnknownError        the answer was lost, and the branch doesn't show it
    ├── StoreError                 the versioned store
    │   ├── RepositoryNotFoundError, BranchNotFoundError, CommitNotFoundError
    │   ├── RepositoryExistsError, BranchExistsError
    │   ├── StoreRefusedError          it refused: nothing was changed
    │   │   ├── HeadMovedError             … because the branch's head was another
    │   │   └── StoreAccessError           … these credentials: wrong, or without permission
    │   ├── AnswerLostError            a request was sent; unknown whether it was applied
    │   ├── StoreUnavailableError      no answer to a read; safe to repeat
    │   ├── StoreFormatError           another version wrote it
    │   ├── StoreFullError             no space or no permission to write
    │   └── CorruptObjectError         stored bytes don't match their hash
    ├── OrchestratorError          the queue
    │   ├── OrchestratorUnavailableError   no answer; safe to repeat
    │   ├── OrchestratorRefusedError       it refused: nothing was changed
    │   │   └── OrchestratorAccessError        … these credentials
    │   ├── UnknownAttemptError
    │   └── DefinitionDiffersError     a registered definition isn't what the code declares
    └── RunError                   a pipeline run
        ├── RunNotFoundError
        ├── BranchBusyError            another active run writes this branch
        └── RunBusyError               another process is working on this run

``code`` is stable; it goes into logs and ``--json`` output. ``fix`` says what to do next.
``terminal`` says that a retry can't help: a terminal error makes the attempt
``FAILED_WITH_TERMINAL_ERROR``, any other one ``FAILED``. A ``silent`` error isn't reported, because
another execution of the same delivery reports the result.
"""

from __future__ import annotations

from typing import ClassVar


class PeragoError(Exception):
    """The base of all. ``message`` says what happened, and to what; ``fix`` what to do next."""

    code: ClassVar[str] = "perago"
    terminal: ClassVar[bool] = False
    silent: ClassVar[bool] = False

    def __init__(self, message: str, *, fix: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return self.message if self.fix is None else f"{self.message}\n  fix: {self.fix}"

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments don't survive Exception's own pickling, and errors cross processes.
        return (_rebuild, (type(self), self.message, self.fix))


def _rebuild(kind: type[PeragoError], message: str, fix: str | None) -> PeragoError:
    return kind(message, fix=fix)


class TaskDefinitionError(PeragoError):
    """The declaration of a task, guardrail, control or pipeline is wrong."""

    code = "task_definition"


class UnsafeWorkflowError(TaskDefinitionError):
    """A workflow in which two tasks could write one branch of a workspace at the same time."""

    code = "unsafe_workflow"


class RuntimeConfigError(PeragoError):
    """A setting, a command-line argument or this machine keeps Perago from working."""

    code = "runtime_config"


class TaskInputError(PeragoError):
    """The input delivered with a task isn't ``{workspace, params}`` as declared."""

    code = "task_input"


class GuardrailViolation(PeragoError):
    """A workspace doesn't meet a guardrail."""

    code = "guardrail"


class PreGuardrailViolation(GuardrailViolation):
    """The input workspace is wrong, so running the task again can't help."""

    code = "pre_guardrail"
    terminal = True


class PostGuardrailViolation(GuardrailViolation):
    """The task left its workspace in a state that its own contract forbids."""

    code = "post_guardrail"


class TaskExecutionError(PeragoError):
    """The task's own code failed; the worker reports ``reason`` to the orchestrator."""

    code = "task_execution"

    def __init__(self, reason: str, *, fix: str | None = None) -> None:
        # A body may pass the exception that it caught instead of a text.
        super().__init__(str(reason), fix=fix)

    @property
    def reason(self) -> str:
        """The same as ``message``."""
        return self.message


class TaskFailed(TaskExecutionError):
    """Raise it in a task body: this attempt failed, another one may succeed."""

    code = "task_failed"


class TaskTerminalError(TaskExecutionError):
    """Raise it in a task body: the task failed, and no retry can help."""

    code = "task_terminal"
    terminal = True


class TaskBodyError(TaskExecutionError):
    """The task body raised an exception of its own."""

    code = "task_body"


class TaskResultError(TaskExecutionError):
    """The task body returned something that isn't its declared result, or isn't JSON."""

    code = "task_result"


class ExecutorLostError(TaskExecutionError):
    """The process that ran the task died, or was stopped for running too long."""

    code = "executor_lost"


class WorkspaceError(PeragoError):
    """Something that can't be part of a workspace."""

    code = "workspace"


class UnsafeKeyError(WorkspaceError):
    """An object key that can't be, exactly, a file below the workspace's prefix."""

    code = "unsafe_key"


class UnsupportedFileError(WorkspaceError):
    """A file that can't be stored: a link, a socket, a device, unreadable, or a reserved name."""

    code = "unsupported_file"


class SparkPathError(WorkspaceError):
    """A Spark task asked for a path, table or format that its workspace doesn't offer."""

    code = "spark_path"


class WorkspaceChangedError(WorkspaceError):
    """A file changed after the checks and before its upload, so it was not checked."""

    code = "workspace_changed"


class SparkFailedError(PeragoError):
    """Spark failed at a request of the runtime, not in the task's own code."""

    code = "spark_failed"


class FenceError(PeragoError):
    """This attempt may not publish."""

    code = "fence"


class StaleAttemptError(FenceError):
    """The orchestrator no longer counts on this attempt."""

    code = "stale_attempt"


class SupersededError(StaleAttemptError):
    """The task was delivered again. The last delivery reports; this one reports nothing."""

    code = "superseded"
    silent = True


class PublishFenceError(FenceError):
    """The target branch is in a state that this attempt may not publish to."""

    code = "publish_fence"


class TwinPublishedError(PublishFenceError):
    """Another execution of this same delivery published, and may still be accepted."""

    code = "twin_published"
    silent = True


class SecondWriterError(FenceError):
    """Another active workflow writes the same branch, and PERAGO_SINGLE_WRITER is ``enforce``."""

    code = "second_writer"


class LeaseTooShortError(FenceError):
    """The rest of the lease is shorter than the publish budget."""

    code = "lease_too_short"


class UnsettledPublishError(PeragoError):
    """A publication failed in a way that may have changed the branch."""

    code = "unsettled_publish"


class WrongLandingError(UnsettledPublishError):
    """A merge was applied, but not as the direct successor of the input commit."""

    code = "wrong_landing"


class PublishUnknownError(UnsettledPublishError):
    """A publication's answer was lost, and the branch doesn't show whether it happened."""

    code = "publish_unknown"


class StoreError(PeragoError):
    """A request to the versioned store failed."""

    code = "store"


class RepositoryNotFoundError(StoreError):
    """There is no repository of that name."""

    code = "repository_not_found"


class BranchNotFoundError(StoreError):
    """There is no branch of that name."""

    code = "branch_not_found"


class CommitNotFoundError(StoreError):
    """There is no commit with that id."""

    code = "commit_not_found"


class RepositoryExistsError(StoreError):
    """A repository of that name exists already."""

    code = "repository_exists"


class BranchExistsError(StoreError):
    """A branch of that name exists already."""

    code = "branch_exists"


class StoreRefusedError(StoreError):
    """The store refused the request and changed nothing."""

    code = "store_refused"


class HeadMovedError(StoreRefusedError):
    """The store refused a conditional update: the branch's head isn't the expected one."""

    code = "head_moved"


class StoreAccessError(StoreRefusedError):
    """The store rejected the credentials, or they lack a permission for this request."""

    code = "store_access"


class AnswerLostError(StoreError):
    """A change was sent and its answer never came: it may or may not have been applied."""

    code = "answer_lost"


class StoreUnavailableError(StoreError):
    """The store didn't answer a request that changes nothing; repeating it is safe."""

    code = "store_unavailable"


class StoreFormatError(StoreError):
    """Another version of Perago wrote the store on this disk."""

    code = "store_format"


class StoreFullError(StoreError):
    """The store can't be written: no space left, or no permission."""

    code = "store_full"


class CorruptObjectError(StoreError):
    """Stored bytes don't match their hash."""

    code = "corrupt_object"


class OrchestratorError(PeragoError):
    """A request to the orchestrator, the queue that schedules tasks, failed."""

    code = "orchestrator"


class OrchestratorUnavailableError(OrchestratorError):
    """The orchestrator didn't answer; repeating the request is safe."""

    code = "orchestrator_unavailable"


class OrchestratorRefusedError(OrchestratorError):
    """The orchestrator refused the request and changed nothing."""

    code = "orchestrator_refused"


class OrchestratorAccessError(OrchestratorRefusedError):
    """The orchestrator rejected the credentials, or they lack a permission for this request."""

    code = "orchestrator_access"


class DefinitionDiffersError(OrchestratorError):
    """A task or workflow isn't registered, or is registered with another definition."""

    code = "definition_differs"


class UnknownAttemptError(OrchestratorError):
    """The orchestrator has no task with that id."""

    code = "unknown_attempt"


class RunError(PeragoError):
    """A pipeline run can't do what was asked."""

    code = "run"


class RunNotFoundError(RunError):
    """There is no run with that id."""

    code = "run_not_found"


class BranchBusyError(RunError):
    """Another active run writes this branch; only one may at a time."""

    code = "branch_busy"


class RunBusyError(RunError):
    """Another process is working on this run."""

    code = "run_busy"
