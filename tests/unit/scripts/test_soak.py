"""The soak would notice: what its verdict calls a problem, and whom its plan kills."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts"


@pytest.fixture(scope="module", autouse=True)
def _scripts():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPTS)
        yield


@pytest.fixture
def verdict():
    return pytest.importorskip("soak_verdict")


@pytest.fixture
def chaos():
    import soak_chaos

    return soak_chaos


COMMITS = ["written", "edited", "closed"]


@pytest.fixture
def started(verdict):
    return verdict.Started(3, "wf", "repository", "branch", "base")


@pytest.fixture
def branch(verdict):
    """One commit for each changing task, newest first, each on the one before it."""
    commits = [("closed", ("edited",)), ("edited", ("written",)), ("written", ("base",))]
    return verdict.Branch(commits, sys.modules["soak_tasks"].files_after(3))


@pytest.fixture
def workflow(verdict):
    refs = verdict.refs_along("base", COMMITS)
    tasks = [
        {
            "referenceTaskName": reference,
            "seq": number,
            "status": "COMPLETED",
            "outputData": {"workspace": {"ref": refs[reference]}} if reference in refs else {},
        }
        for number, reference in enumerate(verdict.STEPS)
    ]
    return {"status": "COMPLETED", "tasks": tasks}


def problems(verdict, started, workflow, branch):
    return list(verdict.problems_with(started, workflow, branch))


def test_what_is_as_promised_is_no_problem(verdict, started, workflow, branch):
    assert problems(verdict, started, workflow, branch) == []


def test_a_retry_that_was_accepted_is_no_problem(verdict, started, workflow, branch):
    lost = {**workflow["tasks"][0], "status": "TIMED_OUT", "outputData": {}, "seq": -1}
    workflow["tasks"].append(lost)
    assert problems(verdict, started, workflow, branch) == []


def test_a_workflow_that_failed_is_one(verdict, started, workflow, branch):
    workflow |= {"status": "FAILED", "reasonForIncompletion": "no more retries"}
    (found,) = problems(verdict, started, workflow, branch)
    assert found == "is FAILED: no more retries"


def test_a_step_that_was_accepted_twice_is_one(verdict, started, workflow, branch):
    workflow["tasks"].append({**workflow["tasks"][0], "seq": 9})
    (found,) = problems(verdict, started, workflow, branch)
    assert "soak_write wasn't accepted exactly once: COMPLETED, COMPLETED" in found


def test_a_second_publication_of_a_task_is_one(verdict, started, workflow, branch):
    twice = [("again", ("closed",)), *branch.commits]
    found = problems(verdict, started, workflow, replace(branch, commits=twice))
    assert any(problem.startswith("4 commits, and 3 tasks") for problem in found)


def test_a_commit_with_two_parents_is_one(verdict, started, workflow, branch):
    merged = [("closed", ("edited", "elsewhere")), *branch.commits[1:]]
    (found,) = problems(verdict, started, workflow, replace(branch, commits=merged))
    assert "isn't a line" in found


def test_history_that_doesn_t_lead_back_to_the_beginning_is_one(verdict, started, workflow, branch):
    elsewhere = [*branch.commits[:2], ("written", ("elsewhere",))]
    (found,) = problems(verdict, started, workflow, replace(branch, commits=elsewhere))
    assert "isn't a line from base" in found


def test_an_accepted_ref_that_isn_t_on_the_branch_is_one(verdict, started, workflow, branch):
    replaced = [("other", ("edited",)), *branch.commits[1:]]
    found = problems(verdict, started, workflow, replace(branch, commits=replaced))
    assert any(problem.startswith("accepted refs are") for problem in found)


@pytest.mark.parametrize(
    "change",
    [{"edit.txt": b"before\nworkflow 3\nworkflow 3\n"}, {"drop.txt": b"dropped\n"}],
    ids=["done twice", "lost"],
)
def test_content_that_isn_t_each_task_s_work_once_is_one(
    verdict, started, workflow, branch, change
):
    other = replace(branch, files={**branch.files, **change})
    (found,) = problems(verdict, started, workflow, other)
    assert found.startswith("files are")


def plan(chaos, seed):
    servers = {"conductor": 5, "lakefs": 5}
    return chaos.planned(seed, workflows=196, workers=2, worker_kills=31, servers=servers)


def test_the_same_seed_kills_the_same(chaos):
    assert plan(chaos, 1) == plan(chaos, 1)
    assert plan(chaos, 1) != plan(chaos, 2)


def test_at_least_half_of_the_workers_are_killed_inside_publishing(chaos):
    workers = [blow for blow in plan(chaos, 1) if not blow.server]
    assert len(workers) == 31
    assert sum(bool(blow.place) for blow in workers) == 16
    assert {blow.role for blow in workers} == {"executor", "poller", "supervisor"}


def test_every_blow_falls_while_workflows_run(chaos):
    falls = [blow.after for blow in plan(chaos, 3)]
    assert falls == sorted(falls)
    assert falls[0] >= 1
    assert falls[-1] <= 0.85 * 196
