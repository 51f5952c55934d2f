"""Every error Perago raises, in one tree, grouped by what the person who meets it does next.

::

    PeragoError
    ├── TaskDefinitionError        fix the code: a declaration is wrong
    │   └── UnsafeWorkflowError        … a workflow definition breaks what operators promise
    ├── RuntimeConfigError         fix a setting, a command line or the machine
    ├── TaskInputError             fix whoever scheduled the task: its input is malformed
    ├── GuardrailViolation         the data breaks the task's contract
    │   ├── PreGuardrailViolation      … on the way in; a retry can't help (terminal)
    │   └── PostGuardrailViolation     … on the way out
    ├── TaskExecutionError         the task's own code
    │   ├── TaskFailed                 said so; a retry may help
    │   ├── TaskTerminalError          said so; a retry can't help (terminal)
    │   ├── TaskBodyError              raised something else
    │   ├── TaskResultError            returned something that isn't its declared result
    │   └── ExecutorLostError          its process died or was stopped
    ├── WorkspaceError             files or object keys that can't be a workspace
    │   ├── UnsafeKeyError             an object key can't be a file below the prefix
    │   ├── UnsupportedFileError       a symlink, socket, device, unreadable or reserved file
    │   ├── SparkPathError             a path, table or format that a Spark task can't be given
    │   └── WorkspaceChangedError      a file moved under the runtime while it was being staged
    ├── SparkFailedError           Spark failed at what the runtime asked of it
    ├── FenceError                 this attempt may not publish
    │   ├── StaleAttemptError          the orchestrator no longer counts on it
    │   │   └── SupersededError            … because it was delivered again: that one speaks now
    │   ├── PublishFenceError          the branch is not where the attempt started from
    │   │   └── TwinPublishedError         … because another execution of this delivery published
    │   ├── SecondWriterError          another active workflow writes the same branch
    │   └── LeaseTooShortError         too little of the lease is left to publish within
    ├── UnsettledPublishError      the branch may have changed: look at it, then go on
    │   ├── WrongLandingError          a merge landed on somebody else's commit
    │   └── PublishUnknownError        the answer was lost and can't be read back
    ├── StoreError                 the versioned store
    │   ├── RepositoryNotFoundError, BranchNotFoundError, CommitNotFoundError
    │   ├── RepositoryExistsError, BranchExistsError
    │   ├── StoreRefusedError          a definite no: nothing was changed
    │   │   ├── HeadMovedError             … because the branch's head was another
    │   │   └── StoreAccessError           … to these credentials: wrong, or lacking a permission
    │   ├── AnswerLostError            sent, and no telling whether it was applied
    │   ├── StoreUnavailableError      not now; safe to try again
    │   ├── StoreFormatError           written by another version
    │   ├── StoreFullError             no room or no permission to write
    │   └── CorruptObjectError         bytes that don't match their hash
    ├── OrchestratorError          the queue
    │   ├── OrchestratorUnavailableError   not now; safe to ask again
    │   ├── OrchestratorRefusedError       a definite no: nothing was changed
    │   │   └── OrchestratorAccessError        … to these credentials
    │   ├── UnknownAttemptError
    │   └── DefinitionDiffersError     what is registered isn't what the code declares
    └── RunError                   a pipeline run
        ├── RunNotFoundError
        ├── BranchBusyError            another active run writes this branch
        └── RunBusyError               another process is working on this run

``code`` is stable and goes into logs and ``--json`` output; ``fix`` says what to do next.
``terminal`` is the retry semantics: a terminal error makes the attempt
``FAILED_WITH_TERMINAL_ERROR``, any other one ``FAILED``. An execution that fails with a ``silent``
one isn't reported at all: another execution of the same delivery speaks for the task.
"""

from __future__ import annotations

from typing import ClassVar


class PeragoError(Exception):
    """Base of the tree. ``message`` says what happened to what; ``fix`` what to do about it."""

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
    """A task, guardrail, control or pipeline is declared wrongly."""

    code = "task_definition"


class UnsafeWorkflowError(TaskDefinitionError):
    """A workflow in which one branch of a workspace could be written twice at a time."""

    code = "unsafe_workflow"


class RuntimeConfigError(PeragoError):
    """A setting, a command line argument or the machine keeps Perago from working."""

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
    """The task left its workspace in a state its own contract forbids."""

    code = "post_guardrail"


class TaskExecutionError(PeragoError):
    """The task's own code failed; ``reason`` is what the orchestrator is told."""

    code = "task_execution"

    def __init__(self, reason: str, *, fix: str | None = None) -> None:
        # A body may well hand over the error that it caught.
        super().__init__(str(reason), fix=fix)

    @property
    def reason(self) -> str:
        return self.message


class TaskFailed(TaskExecutionError):
    """Raised by a task body: this attempt failed, another one may succeed."""

    code = "task_failed"


class TaskTerminalError(TaskExecutionError):
    """Raised by a task body: no retry can help."""

    code = "task_terminal"
    terminal = True


class TaskBodyError(TaskExecutionError):
    """The task body raised something of its own."""

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
    """A Spark task asked for a path, a table or a format that its workspace can't give it."""

    code = "spark_path"


class WorkspaceChangedError(WorkspaceError):
    """A file changed between the checks and its upload, so it isn't what was checked."""

    code = "workspace_changed"


class SparkFailedError(PeragoError):
    """Spark failed at what the runtime asked of it, not at the task's own code."""

    code = "spark_failed"


class FenceError(PeragoError):
    """This attempt may not publish."""

    code = "fence"


class StaleAttemptError(FenceError):
    """The orchestrator no longer counts on this attempt."""

    code = "stale_attempt"


class SupersededError(StaleAttemptError):
    """The task was handed out again: whoever got it last speaks for it, and this one is silent."""

    code = "superseded"
    silent = True


class PublishFenceError(FenceError):
    """The target branch is in a state this attempt may not publish onto."""

    code = "publish_fence"


class TwinPublishedError(PublishFenceError):
    """Another execution of this same delivery published, and may still be accepted."""

    code = "twin_published"
    silent = True


class SecondWriterError(FenceError):
    """Another active workflow writes the same branch, and PERAGO_SINGLE_WRITER is ``enforce``."""

    code = "second_writer"


class LeaseTooShortError(FenceError):
    """What is left of the lease doesn't cover the publish budget."""

    code = "lease_too_short"


class UnsettledPublishError(PeragoError):
    """A publication failed in a way that may have changed the branch."""

    code = "unsettled_publish"


class WrongLandingError(UnsettledPublishError):
    """A merge was applied, but not as the direct successor of the input commit."""

    code = "wrong_landing"


class PublishUnknownError(UnsettledPublishError):
    """A publication's answer was lost and the branch doesn't tell whether it happened."""

    code = "publish_unknown"


class StoreError(PeragoError):
    """The versioned store."""

    code = "store"


class RepositoryNotFoundError(StoreError):
    """No repository of that name."""

    code = "repository_not_found"


class BranchNotFoundError(StoreError):
    """No branch of that name."""

    code = "branch_not_found"


class CommitNotFoundError(StoreError):
    """No commit of that id."""

    code = "commit_not_found"


class RepositoryExistsError(StoreError):
    """A repository of that name exists."""

    code = "repository_exists"


class BranchExistsError(StoreError):
    """A branch of that name exists."""

    code = "branch_exists"


class StoreRefusedError(StoreError):
    """The store said no. It changed nothing."""

    code = "store_refused"


class HeadMovedError(StoreRefusedError):
    """A conditional update was refused: the branch's head isn't the expected one."""

    code = "head_moved"


class StoreAccessError(StoreRefusedError):
    """The store doesn't know these credentials, or doesn't let them do what was asked."""

    code = "store_access"


class AnswerLostError(StoreError):
    """A mutation was sent and its answer never came: it may or may not have been applied."""

    code = "answer_lost"


class StoreUnavailableError(StoreError):
    """The store didn't answer, and nothing was asked of it that could have changed it."""

    code = "store_unavailable"


class StoreFormatError(StoreError):
    """The store on disk was written by another version of Perago."""

    code = "store_format"


class StoreFullError(StoreError):
    """The store can't be written: no room left, or no permission."""

    code = "store_full"


class CorruptObjectError(StoreError):
    """Stored bytes don't match the hash they are stored under."""

    code = "corrupt_object"


class OrchestratorError(PeragoError):
    """The queue that decides what runs and what succeeded."""

    code = "orchestrator"


class OrchestratorUnavailableError(OrchestratorError):
    """The orchestrator didn't answer; asking again is safe."""

    code = "orchestrator_unavailable"


class OrchestratorRefusedError(OrchestratorError):
    """The orchestrator said no. It changed nothing."""

    code = "orchestrator_refused"


class OrchestratorAccessError(OrchestratorRefusedError):
    """The orchestrator doesn't know these credentials, or doesn't let them do what was asked."""

    code = "orchestrator_access"


class DefinitionDiffersError(OrchestratorError):
    """A task or workflow isn't registered, or not as the code declares it."""

    code = "definition_differs"


class UnknownAttemptError(OrchestratorError):
    """The orchestrator has no task of that id."""

    code = "unknown_attempt"


class RunError(PeragoError):
    """A pipeline run."""

    code = "run"


class RunNotFoundError(RunError):
    """No run of that id."""

    code = "run_not_found"


class BranchBusyError(RunError):
    """Another active run writes this branch: one at a time."""

    code = "branch_busy"


class RunBusyError(RunError):
    """Another process is working on this run."""

    code = "run_busy"
