"""Several runners at once, on one run, on one branch and on one store."""

from __future__ import annotations

import json
import os
import signal

import pytest

UNDISTURBED = [None, None, "chain_grow", "chain_prune"]


@pytest.fixture
def busy(chain, until):
    """A project with a runner that is in the middle of a body."""
    flag = chain.directory / "held"
    chain.runner = chain.start("run", "--json", "chain:chain", HOLD=f"grow:{flag}")
    until(flag.exists, "the body to begin")
    return chain


def refusal_of(project, *arguments):
    process = project.start("run", "--json", *arguments)
    project.ended(process, expect=4)
    return json.loads(project.output_of(process)[1])["error"]


@pytest.mark.process
def test_a_run_has_one_runner(busy):
    error = refusal_of(busy, "--resume")
    assert error["code"] == "run_busy"
    assert str(busy.runner.pid) in error["message"]
    assert [record.status for record in busy.only_run.attempts] == ["IN_PROGRESS"]


@pytest.mark.process
def test_a_branch_has_one_run(busy):
    error = refusal_of(busy, "chain:chain")
    assert error["code"] == "branch_busy"
    assert busy.only_run.id in error["message"]


@pytest.mark.process
def test_another_runner_leaves_the_living_alone(busy):
    busy.store.create_branch("chain", "other", busy.only_run.workspace.ref)
    (working,) = busy.settings.attempts.iterdir()

    busy.run("chain:chain", "--branch", "other")
    assert busy.published("other") == UNDISTURBED
    assert list(busy.settings.attempts.iterdir()) == [working]

    os.killpg(busy.runner.pid, signal.SIGINT)
    busy.ended(busy.runner, expect=130)
    busy.assert_nothing_left()


@pytest.mark.process
def test_runs_on_different_branches_of_one_store_go_on_side_by_side(chain):
    seed = chain.store.head("chain", "main").id
    branches = ["main", "one", "two"]
    for branch in branches[1:]:
        chain.store.create_branch("chain", branch, seed)

    runners = [chain.start("run", "--json", "chain:chain", "--branch", b) for b in branches]
    for runner in runners:
        assert chain.ended(runner)["status"] == "COMPLETED"
    assert [chain.published(branch) for branch in branches] == [UNDISTURBED] * 3
    assert chain.tree("one") == chain.tree("two") == chain.tree("main")
    chain.assert_nothing_left()
