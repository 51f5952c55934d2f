"""A staging branch is removed when it is nobody's, and never one that might be alive."""

import pytest

from perago.errors import UnknownAttemptError
from perago.model.attempt import Attempt, Execution, new_execution_id, task_id_of
from perago.operations.leftover_gc import ENDED_SECONDS, ORPHAN_SECONDS, collect_leftovers
from perago.testing import Bench

HOUR = 3600
TASK = "3fa0c1de-5b1f-4a53-9a9e-7a1d7d6b1c11"


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path / "bench")
    yield made
    made.close()


@pytest.fixture
def staged(bench):
    """A staging branch of an execution on another machine, and when that began."""

    def stage(began_at, task_id=TASK, reference="songs_clean"):
        identity = f"{int(began_at * 1000):012x}{new_execution_id()[12:]}"
        attempt = Attempt("run", reference, 1, 0, task_id, 0, "songs.clean")
        branch = Execution(attempt, identity).staging_branch
        bench.store.create_branch(bench.repository, branch, bench.head)
        return branch

    return stage


@pytest.fixture
def collect(bench):
    def collected(end_of_task=None):
        found = collect_leftovers(
            bench.store, bench.attempts, now=bench.clock.now(), end_of_task=end_of_task
        )
        assert sorted(bench.staging_branches()) == sorted(name for _, name in found.too_young)
        return [name for _, name in found.branches]

    return collected


def unknown(task_id):
    raise UnknownAttemptError(f"no task {task_id}")


def test_without_an_orchestrator_to_ask_its_age_decides(bench, staged, collect):
    now = bench.clock.now()
    old = staged(now - ORPHAN_SECONDS - 1)
    staged(now - ORPHAN_SECONDS + 1)
    assert collect() == [old]


def test_a_task_that_ended_long_ago_needs_it_no_more(bench, staged, collect):
    now = bench.clock.now()
    branch = staged(now - 2 * HOUR)
    assert collect(lambda _: now - ENDED_SECONDS + 1) == []
    assert collect(lambda _: now - ENDED_SECONDS - 1) == [branch]


def test_a_task_that_is_still_going_on_keeps_it_however_old_it_is(bench, staged, collect):
    staged(bench.clock.now() - 1000 * HOUR)
    assert collect(lambda _: None) == []


def test_of_a_task_that_isnt_known_its_age_decides(bench, staged, collect):
    now = bench.clock.now()
    old = staged(now - ORPHAN_SECONDS - 1)
    staged(now)
    assert collect(unknown) == [old]


@pytest.mark.parametrize(
    ("task_id", "reference"),
    [(TASK, "songs_clean"), (TASK, "a-task-b-retry-1-exec-c"), ("42", "x"), ("a_b", "task-1")],
)
def test_the_branch_names_its_task(staged, task_id, reference):
    assert task_id_of(staged(0, task_id, reference)) == task_id


@pytest.mark.parametrize(
    "name", ["main", "perago-staging-of-somebody-else", "perago-staging--exec-"]
)
def test_a_branch_that_isnt_ours_names_no_task(name):
    assert task_id_of(name) is None
