"""``perago run`` killed with SIGKILL, then resumed: as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time

import pytest

UNDISTURBED = {
    "a.txt": b"a grew\n" * 3,
    "folder/c.txt": b"folder/c.txt as it was\n",
    "folder/count.txt": b"21\n",
    "folder/new.txt": b"new\n",
}
HISTORY = [None, None, "chain_grow", "chain_prune"]
"""The empty root, the seed, and one commit for each step that changes something."""

HELD_AT = {
    # failpoint: (the step whose end comes just before it, of which task)
    "workspace.fetched": ("fetch", "chain_grow"),
    "body.done": ("body", "chain_grow"),
    "staging.branch_created": ("stage.branch", "chain_grow"),
    "staging.uploaded": ("stage.upload", "chain_grow"),
    "fence2.passed": ("fence2", "chain_grow"),
    "publish.decided": ("publish.decided", "chain_grow"),
    "publish.done": ("publish", "chain_grow"),
    "report.sent": ("report", "chain_grow"),
}


def exported(project):
    """The branch's files as a person gets them out again."""
    directory = project.directory.parent / "exported"
    project.ended(project.start("export", "--json", "main", directory))
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def assert_as_if_undisturbed(project):
    assert project.tree() == UNDISTURBED
    assert project.published() == HISTORY
    assert [run.status for run in project.queue.runs()] == ["COMPLETED"]
    project.assert_nothing_left()


def test_an_undisturbed_run_gives_the_expected_tree_and_history(chain):
    chain.run("chain:chain")
    assert_as_if_undisturbed(chain)
    assert exported(chain) == UNDISTURBED


@pytest.mark.process
@pytest.mark.parametrize("failpoint", HELD_AT)
def test_a_runner_killed_while_its_executor_is_at(failpoint, chain, until):
    step, reference = HELD_AT[failpoint]
    runner = chain.start("run", "--json", "chain:chain", failpoints=f"{failpoint}=delay:600")
    chain.wait_for_step(step, reference=reference)

    os.kill(runner.pid, signal.SIGKILL)
    runner.wait()
    until(lambda: not chain.processes(), "the orphaned executor to end by itself")

    ended = chain.run("--resume")
    assert ended["status"] == "COMPLETED"
    assert_as_if_undisturbed(chain)


@pytest.mark.process
def test_children_of_a_body_end_with_its_orphaned_executor(chain, until):
    flag = chain.directory / "child"
    runner = chain.start("run", "chain:chain", HOLD=f"child:{flag}")
    until(flag.exists, "the body to have started its child")

    os.kill(runner.pid, signal.SIGKILL)
    runner.wait()
    until(lambda: not chain.processes(), "the executor and the body's child to end")


@pytest.mark.process
@pytest.mark.parametrize("seed", range(8))
def test_a_runner_killed_at_a_random_moment(seed, chain, until):
    runner = chain.start("run", "chain:chain")
    try:
        runner.wait(random.Random(seed).uniform(0.1, 2.0))
    except subprocess.TimeoutExpired:
        os.kill(runner.pid, signal.SIGKILL)
        runner.wait()
    # What was being reported at that moment still counts.
    until(lambda: not chain.processes(), "the executor to end")

    if not chain.queue.runs():  # killed before there was a run
        chain.run("chain:chain")
    elif chain.only_run.status != "COMPLETED":
        chain.run("--resume")
    assert_as_if_undisturbed(chain)


@pytest.mark.process
def test_a_run_killed_over_and_over_still_ends_as_if_undisturbed(chain, until):
    dice = random.Random(20)
    runner = chain.start("run", "chain:chain")
    for _ in range(6):
        time.sleep(dice.uniform(0.4, 1.2))  # the moment of the kill is what is being varied
        os.kill(runner.pid, signal.SIGKILL)
        runner.wait()
        started = bool(chain.queue.runs())
        if started and chain.only_run.status == "COMPLETED":
            break
        runner = chain.start("run", *(["--resume"] if started else ["chain:chain"]))
    runner.wait()
    # The last kill may have come after completion, or its orphan have outlived the last runner:
    # then no runner is left that could remove what they had.
    until(lambda: not chain.processes(), "the orphaned executors to end")
    chain.ended(chain.start("gc", "--json"))
    assert_as_if_undisturbed(chain)
    assert exported(chain) == UNDISTURBED


@pytest.mark.process
def test_a_run_whose_executor_cannot_start_says_so_and_can_be_resumed(chain):
    broken = chain.directory / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(
        "import sys\nif 'perago.worker.executor' in sys.orig_argv:\n    sys.exit('out of order')\n"
    )
    runner = chain.start("run", "chain:chain", PYTHONPATH=str(broken))
    chain.ended(runner, expect=1)
    assert "before it was ready" in chain.output_of(runner)[1]
    assert [record.status for record in chain.only_run.attempts] == ["SCHEDULED"]

    chain.run("--resume")
    assert_as_if_undisturbed(chain)
