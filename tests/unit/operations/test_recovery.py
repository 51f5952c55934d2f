"""After a run that stopped, a new one goes on from the branch as it is, and says what it finds."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, WorkspaceSpec, task
from perago.errors import BranchBusyError, BranchNotFoundError, RunError
from perago.operations.recovery import assert_recoverable, branch_since_run, recover
from perago.testing import Bench


class Params(BaseModel):
    text: str = "x"
    fail: bool = False


class Nothing(BaseModel):
    pass


CONTROLS = TaskControls(retry=RetryPolicy(count=0))


@task(name="write", owner_email="d@example.com", workspace=WorkspaceSpec(), controls=CONTROLS)
def write(ws: Path, params: Params) -> Nothing:
    (ws / "out.txt").write_text(params.text)
    if params.fail:
        raise ValueError("as told")
    return Nothing()


@task(name="fail", owner_email="d@example.com", workspace=WorkspaceSpec(), controls=CONTROLS)
def fail(ws: Path, params: Nothing) -> Nothing:
    raise ValueError("as ever")


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path / "bench")
    made.write({"a.txt": "a"})
    yield made
    made.close()


@pytest.fixture
def stopped(bench):
    """A run whose first step was accepted, and whose second one ended it."""
    run = bench.start(write, fail, params={"write": {"text": "hello"}})
    bench.attempt(write)
    bench.attempt(fail)
    return bench.queue.get(run)


def test_nothing_was_written_since(bench, stopped):
    left = branch_since_run(bench.store, stopped)
    assert left.leads_back
    assert (left.accepted, left.head.id, left.since) == (bench.head, bench.head, ())


def test_what_was_written_since_is_told_newest_first(bench, stopped):
    accepted = bench.head
    one, two = bench.write({"b.txt": "b"}), bench.write({"c.txt": "c"})
    left = branch_since_run(bench.store, stopped)
    assert (left.accepted, left.head.id) == (accepted, two)
    assert [commit.id for commit in left.since] == [two, one]


def test_a_branch_that_doesnt_lead_back_is_told(bench, stopped):
    start = stopped.workspace.ref
    bench.store.delete_branch(bench.repository, bench.branch)
    bench.store.create_branch(bench.repository, bench.branch, start)
    left = branch_since_run(bench.store, stopped)
    assert not left.leads_back
    assert (left.head.id, left.since) == (start, ())


def test_a_branch_that_is_gone_isnt_made_anew(bench, stopped):
    bench.store.delete_branch(bench.repository, bench.branch)
    with pytest.raises(BranchNotFoundError):
        branch_since_run(bench.store, stopped)


def test_the_new_run_is_the_old_one_from_where_the_branch_is_now(bench, stopped):
    head = bench.write({"b.txt": "b"})
    new = bench.queue.get(recover(bench.queue, bench.store, stopped))
    assert new.plan == stopped.plan
    assert new.workspace.ref == head
    assert bench.attempt(write).accepted
    assert bench.read()["out.txt"] == b"hello", "with the old one's params"


def test_an_active_run_has_to_be_cancelled_first(bench):
    run = bench.queue.get(bench.start(write))
    with pytest.raises(BranchBusyError, match="RUNNING") as refused:
        assert_recoverable(bench.queue, run)
    assert f"`perago cancel {run.id}`" in refused.value.fix
    bench.queue.cancel(run.id, "enough")
    assert recover(bench.queue, bench.store, bench.queue.get(run.id))


def test_another_active_run_on_the_branch_comes_first(bench, stopped):
    other = bench.start(write)
    with pytest.raises(BranchBusyError, match=other):
        recover(bench.queue, bench.store, stopped)


def test_a_completed_run_needs_no_recovery(bench):
    run = bench.start(write)
    bench.attempt(write)
    with pytest.raises(RunError, match="nothing to recover"):
        assert_recoverable(bench.queue, bench.queue.get(run))


def test_a_run_without_a_workspace_is_just_started_again(bench):
    @task(name="compute", owner_email="d@example.com")
    def compute(params: Nothing) -> Nothing:
        return params

    run = bench.queue.get(bench.start(compute))
    bench.queue.cancel(run.id, "enough")
    ended = bench.queue.get(run.id)
    assert branch_since_run(bench.store, ended) is None
    assert bench.queue.get(recover(bench.queue, bench.store, ended)).plan == run.plan
