"""A whole attempt on a real lakeFS, one of whose requests is lost, repeated or answered wrongly.

It publishes once, directly on its input and with the right files, or it fails and nothing is half
published; and then the retry publishes.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import BaseModel
from support.wire import (
    FaultyWire,
    answer,
    answer_after_applying,
    cut_answer,
    drop_answer,
    drop_request,
    duplicate,
)

from perago import RetryPolicy, TaskControls, WorkspaceSpec, task
from perago.adapters.embedded.queue import EmbeddedQueue
from perago.adapters.lakefs.client import LakeFSConfig
from perago.adapters.lakefs.fence import FENCE_ACTION, FENCE_KEY
from perago.adapters.lakefs.store import LakeFSStore
from perago.adapters.local.engine import LocalEngine
from perago.declare.pipeline import pipeline
from perago.flow.lifecycle import run_attempt
from perago.flow.runtime import Runtime
from perago.model.attempt import execution_id_of
from perago.model.workspace import WorkspaceRef
from perago.testing import ManualClock, RecordingJournal
from perago.testing.conformance.store import StoreBench

BEFORE = {"keep": b"kept", "edit": b"before", "drop": b"dropped"}
AFTER = {"keep": b"kept", "edit": b"after", "new": b"new"}


class Nothing(BaseModel):
    pass


@task(
    name="wire.edit",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(),
    controls=TaskControls(retry=RetryPolicy(delay_seconds=0)),
)
def edit(workspace: Path, params: Nothing) -> Nothing:
    (workspace / "edit").write_text("after")
    (workspace / "new").write_text("new")
    (workspace / "drop").unlink()
    return params


@dataclass
class Stage:
    """A branch with one commit, ``A``; attempts reach it through the wire, we look without it."""

    bench: StoreBench
    store: LakeFSStore
    queue: EmbeddedQueue
    clock: ManualClock
    root: Path
    fenced: bool

    def __post_init__(self):
        self.journal = RecordingJournal()
        hook = {FENCE_KEY: FENCE_ACTION} if self.fenced else {}
        self.A = self.bench.commit("main", BEFORE | hook).id
        workspace = WorkspaceRef(
            repository=self.bench.repository, branch="main", ref_type="commit", ref=self.A
        )
        self.queue.start(pipeline("wire", [edit]).plan(), workspace)

    def attempt(self):
        runtime = Runtime(
            store=self.store,
            orchestrator=self.queue,
            engines={"local": LocalEngine()},
            clock=self.clock,
            journal=self.journal,
            workspace_root=self.root / "attempts",
            fence="cas" if self.fenced else "soft",
        )
        (delivery,) = self.queue.poll([edit.name], worker_id="worker")
        return run_attempt(delivery, edit, runtime)

    @property
    def history(self):
        """The branch's commits back to A, newest first."""
        ids = [found.id for found in self.bench.store.history(self.bench.repository, "main")]
        return ids[: ids.index(self.A) + 1]

    @property
    def files(self):
        found = self.bench.content("main")
        found.pop(FENCE_KEY, None)
        return found

    @property
    def staging_branches(self):
        branches = self.bench.store.branches(self.bench.repository)
        return [one.name for one in branches if execution_id_of(one.name)]

    def assert_published(self, outcome):
        """Once, on A, with the right files."""
        assert outcome.accepted, outcome.report.reason
        assert outcome.report.completed, outcome.report.reason
        assert self.history == [outcome.published.ref, self.A]
        assert self.files == AFTER

    def assert_untouched(self, outcome):
        """Failed, and the branch is as it was."""
        assert not outcome.report.completed
        assert outcome.report.output == {}
        assert self.history == [self.A]
        assert self.files == BEFORE


@pytest.fixture
def wire(lakefs_server):
    with FaultyWire(lakefs_server.endpoint) as wire:
        yield wire
        assert not wire.unfired, "a fault that met nothing proves nothing"


@pytest.fixture(params=["soft", "cas"])
def stage(request, lakefs_server, wire, tmp_path):
    def connect(endpoint):
        return LakeFSStore(
            LakeFSConfig(
                endpoint,
                lakefs_server.access_key_id,
                lakefs_server.secret_access_key,
                storage_namespace=lakefs_server.storage_namespace,
            )
        )

    files = tmp_path / "files"
    files.mkdir()
    clock = ManualClock()
    direct, wired = connect(lakefs_server.endpoint), connect(wire.endpoint)
    queue = EmbeddedQueue(tmp_path / "queue.db", clock=clock, durable=False)
    yield Stage(StoreBench(direct, files), wired, queue, clock, tmp_path, request.param == "cas")
    queue.close()
    wired.close()
    direct.close()


# Where the fence is tried out, the trial's own branch is none of these.
BRANCH = {"method": "POST", "path": r"/branches$"}
UPLOAD = {"method": "PUT", "path": r"/perago-staging-[^/]*/new$"}
DELETE = {"method": "POST", "path": r"/objects/delete"}
COMMIT = {"method": "POST", "path": r"/commits$"}
MERGE = {"method": "POST", "path": r"/merge/main$"}
RESET = {"method": "PUT", "path": r"/branches/main/hard_reset"}
CLEANUP = {"method": "DELETE", "path": r"/branches/perago-staging-(?!trial)"}

APPLIED_UNHEARD = [
    pytest.param(drop_answer, id="answer dropped"),
    pytest.param(answer_after_applying(502), id="502 after applying"),
]
NEVER_APPLIED = [
    pytest.param(drop_request, id="request dropped"),
    pytest.param(answer(503), id="503 without applying"),
]
SECOND = pytest.param(duplicate("second"), id="duplicated, second answer")
FIRST = pytest.param(duplicate("first"), id="duplicated, first answer")


# --- staging ------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_", [BRANCH, DELETE, COMMIT], ids=["branch", "delete", "commit"])
@pytest.mark.parametrize("fault", [*APPLIED_UNHEARD, *NEVER_APPLIED])
def test_staging_without_a_clear_answer_fails_and_the_retry_publishes(stage, wire, request_, fault):
    wire.on(fault, **request_)
    stage.assert_untouched(stage.attempt())
    assert wire.counts(**request_) == 1, "no mutation is sent twice"
    assert wire.counts(**MERGE) == 0
    assert stage.staging_branches == []
    stage.assert_published(stage.attempt())
    assert stage.staging_branches == []


@pytest.mark.parametrize("request_", [BRANCH, COMMIT], ids=["branch", "commit"])
def test_staging_that_is_refused_for_a_second_copy_fails_and_the_retry_publishes(
    stage, wire, request_
):
    wire.on(duplicate("second"), **request_)
    stage.assert_untouched(stage.attempt())
    assert stage.staging_branches == []
    stage.assert_published(stage.attempt())


@pytest.mark.parametrize(
    ("request_", "fault"),
    [
        pytest.param(BRANCH, duplicate("first"), id="branch"),
        pytest.param(DELETE, duplicate("first"), id="delete, first"),
        pytest.param(DELETE, duplicate("second"), id="delete, second"),
        pytest.param(COMMIT, duplicate("first"), id="commit"),
    ],
)
def test_staging_whose_request_arrives_twice_does_no_harm(stage, wire, request_, fault):
    wire.on(fault, **request_)
    stage.assert_published(stage.attempt())
    assert stage.staging_branches == []


@pytest.mark.parametrize("fault", [*APPLIED_UNHEARD, *NEVER_APPLIED, FIRST, SECOND])
def test_an_upload_is_sent_again_and_the_attempt_publishes(stage, wire, fault):
    wire.on(fault, **UPLOAD)
    stage.assert_published(stage.attempt())
    assert stage.staging_branches == []


# --- the merge ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        *APPLIED_UNHEARD,
        pytest.param(cut_answer(10), id="answer cut"),
        pytest.param(answer_after_applying(412, b'{"message": "no"}'), id="refused after applying"),
    ],
)
def test_a_merge_that_was_applied_is_found_and_counts_as_published(stage, wire, fault):
    wire.on(fault, **MERGE)
    stage.assert_published(stage.attempt())
    assert wire.counts(**MERGE) == 1
    assert stage.staging_branches == []


@pytest.mark.parametrize("stage", ["soft"], indirect=True)
@pytest.mark.parametrize("fault", NEVER_APPLIED)
def test_a_merge_that_never_arrived_is_unknown_at_soft_and_the_retry_publishes(stage, wire, fault):
    wire.on(fault, **MERGE)
    outcome = stage.attempt()
    stage.assert_untouched(outcome)
    assert outcome.report.reason.startswith("publish_unknown")
    assert wire.counts(**MERGE) == 1
    assert stage.staging_branches == []
    stage.assert_published(stage.attempt())


@pytest.mark.parametrize("stage", ["cas"], indirect=True)
@pytest.mark.parametrize("fault", NEVER_APPLIED)
def test_a_merge_that_never_arrived_is_sent_again_at_cas(stage, wire, fault):
    wire.on(fault, **MERGE)
    stage.assert_published(stage.attempt())
    assert wire.counts(**MERGE) == 2
    assert stage.staging_branches == []


@pytest.mark.parametrize("stage", ["cas"], indirect=True)
@pytest.mark.parametrize("fault", [FIRST, SECOND])
def test_a_merge_that_arrives_twice_is_published_once_at_cas(stage, wire, fault):
    wire.on(fault, **MERGE)
    stage.assert_published(stage.attempt())


@pytest.mark.parametrize("stage", ["soft"], indirect=True)
def test_a_merge_that_arrives_twice_at_soft_is_told_as_a_wrong_landing(stage, wire):
    """The server adds an empty commit for the second copy, and its answer names that one."""
    wire.on(duplicate("second"), **MERGE)
    outcome = stage.attempt()
    assert outcome.report.reason.startswith("wrong_landing")
    assert outcome.report.output == {}
    assert len(stage.history) == 3
    assert stage.files == AFTER
    assert stage.staging_branches == []


@pytest.mark.parametrize("stage", ["soft"], indirect=True)
def test_a_merge_that_arrives_twice_at_soft_unheard_leaves_an_empty_commit_on_top(stage, wire):
    """What was published is right; the first answer can't tell what the second copy adds."""
    wire.on(duplicate("first"), **MERGE)
    outcome = stage.attempt()
    assert outcome.report.completed
    empty, published, _ = (
        stage.bench.store.get_commit(stage.bench.repository, ref) for ref in stage.history
    )
    assert published.id == outcome.published.ref
    assert published.is_only_child_of(stage.A)
    assert empty.tree == published.tree
    assert stage.files == AFTER


# --- the reset ------------------------------------------------------------------------------------


@pytest.fixture
def abandoned(stage):
    """A commit on top of A that no task was accepted with."""
    return stage.bench.commit("main", {"abandoned": b""}).id


@pytest.mark.parametrize("fault", [*APPLIED_UNHEARD, FIRST, SECOND])
def test_a_reset_that_was_applied_counts_as_published(stage, wire, abandoned, fault):
    wire.on(fault, **RESET)
    outcome = stage.attempt()
    stage.assert_published(outcome)
    assert outcome.published.replaced == abandoned
    assert wire.counts(**RESET) == 1
    assert stage.staging_branches == []


@pytest.mark.parametrize("fault", NEVER_APPLIED)
def test_a_reset_that_never_arrived_is_unknown_and_the_retry_publishes(
    stage, wire, abandoned, fault
):
    wire.on(fault, **RESET)
    outcome = stage.attempt()
    assert outcome.report.reason.startswith("publish_unknown")
    assert stage.history == [abandoned, stage.A]
    assert wire.counts(**RESET) == 1
    stage.assert_published(stage.attempt())
    assert stage.staging_branches == []


# --- cleaning up ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [*APPLIED_UNHEARD, *NEVER_APPLIED, FIRST, SECOND])
def test_cleaning_up_never_changes_what_was_published(stage, wire, fault):
    wire.on(fault, **CLEANUP)
    stage.assert_published(stage.attempt())
    assert wire.counts(**CLEANUP) == 1
    told = [event for event in stage.journal.steps() if event == "cleanup.failed"]
    assert len(stage.staging_branches) <= len(told), "a branch that is left is in the log"
