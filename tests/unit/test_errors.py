"""The tree people read is the tree that is raised, and its codes never change."""

from __future__ import annotations

import pickle
import re

import pytest

from perago import errors
from perago.errors import PeragoError

CODES = {
    "perago": "PeragoError",
    "task_definition": "TaskDefinitionError",
    "unsafe_workflow": "UnsafeWorkflowError",
    "runtime_config": "RuntimeConfigError",
    "task_input": "TaskInputError",
    "guardrail": "GuardrailViolation",
    "pre_guardrail": "PreGuardrailViolation",
    "post_guardrail": "PostGuardrailViolation",
    "task_execution": "TaskExecutionError",
    "task_failed": "TaskFailed",
    "task_terminal": "TaskTerminalError",
    "task_body": "TaskBodyError",
    "task_result": "TaskResultError",
    "executor_lost": "ExecutorLostError",
    "workspace": "WorkspaceError",
    "unsafe_key": "UnsafeKeyError",
    "unsupported_file": "UnsupportedFileError",
    "spark_path": "SparkPathError",
    "spark_failed": "SparkFailedError",
    "workspace_changed": "WorkspaceChangedError",
    "fence": "FenceError",
    "stale_attempt": "StaleAttemptError",
    "superseded": "SupersededError",
    "publish_fence": "PublishFenceError",
    "twin_published": "TwinPublishedError",
    "second_writer": "SecondWriterError",
    "unsettled_publish": "UnsettledPublishError",
    "wrong_landing": "WrongLandingError",
    "lease_too_short": "LeaseTooShortError",
    "publish_unknown": "PublishUnknownError",
    "store": "StoreError",
    "repository_not_found": "RepositoryNotFoundError",
    "branch_not_found": "BranchNotFoundError",
    "commit_not_found": "CommitNotFoundError",
    "repository_exists": "RepositoryExistsError",
    "branch_exists": "BranchExistsError",
    "store_refused": "StoreRefusedError",
    "head_moved": "HeadMovedError",
    "store_access": "StoreAccessError",
    "answer_lost": "AnswerLostError",
    "store_unavailable": "StoreUnavailableError",
    "store_format": "StoreFormatError",
    "store_full": "StoreFullError",
    "corrupt_object": "CorruptObjectError",
    "orchestrator": "OrchestratorError",
    "orchestrator_unavailable": "OrchestratorUnavailableError",
    "orchestrator_refused": "OrchestratorRefusedError",
    "orchestrator_access": "OrchestratorAccessError",
    "definition_differs": "DefinitionDiffersError",
    "unknown_attempt": "UnknownAttemptError",
    "run": "RunError",
    "run_not_found": "RunNotFoundError",
    "branch_busy": "BranchBusyError",
    "run_busy": "RunBusyError",
}

EVERY_ERROR = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, PeragoError)
]


def drawn_tree():
    """Child and parent names, as the module's docstring draws them."""
    edges, above = {}, {}
    for line in errors.__doc__.splitlines():
        branch = re.match(r"    (?P<indent>[│├└─ ]*)(?P<names>[A-Z]\w+(, [A-Z]\w+)*)", line)
        if not branch:
            continue
        depth = len(branch["indent"]) // 4
        for name in branch["names"].split(", "):
            edges[name] = above.get(depth - 1)
            above[depth] = name
    return edges


def test_the_tree_in_the_docstring_is_the_real_one():
    assert drawn_tree() == {
        kind.__name__: None if kind is PeragoError else kind.__base__.__name__
        for kind in EVERY_ERROR
    }


def test_every_code_is_what_it_always_was_and_belongs_to_one_error():
    assert {kind.code: kind.__name__ for kind in EVERY_ERROR} == CODES
    assert len(EVERY_ERROR) == len(CODES)


def test_only_these_make_a_retry_pointless():
    terminal = {kind.__name__ for kind in EVERY_ERROR if kind.terminal}
    assert terminal == {"PreGuardrailViolation", "TaskTerminalError"}


def test_only_these_leave_the_word_to_another_execution():
    silent = {kind.__name__ for kind in EVERY_ERROR if kind.silent}
    assert silent == {"SupersededError", "TwinPublishedError"}


@pytest.mark.parametrize("kind", EVERY_ERROR, ids=lambda kind: kind.__name__)
def test_an_error_survives_the_way_between_processes(kind):
    error = pickle.loads(pickle.dumps(kind("what happened", fix="what to do")))  # noqa: S301 - ours
    assert type(error) is kind
    assert (error.message, error.fix) == ("what happened", "what to do")
    assert str(error) == "what happened\n  fix: what to do"


def test_an_error_without_a_fix_is_its_message():
    assert str(PeragoError("what happened")) == "what happened"
