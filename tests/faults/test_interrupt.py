"""Ctrl-C, SIGTERM and cancelling: nothing half done, and what was paused goes on."""

from __future__ import annotations

import os
import signal
import time

import pytest

UNDISTURBED = [None, None, "chain_grow", "chain_prune"]


def started(project, until, *, failpoints="", after=None, hold=None):
    """A run that is held: after a step whose news its runner has had, or in a body."""
    environment = {"HOLD": f"{hold}:{project.directory / 'held'}"} if hold else {}
    runner = project.start("run", "--json", "chain:chain", failpoints=failpoints, **environment)
    if hold:
        until((project.directory / "held").exists, f"the body of {hold} to begin")
    else:
        heard = f'"step": "{after}"'
        until(lambda: heard in project.output_of(runner)[1], f"news of step {after}")
    return runner


def press_ctrl_c(runner):
    """What a terminal does: SIGINT to every process of the foreground group."""
    os.killpg(runner.pid, signal.SIGINT)


def assert_paused(project, runner):
    assert project.ended(runner, expect=130)["status"] == "PAUSED"
    assert project.only_run.status == "PAUSED"
    assert project.processes() == []
    project.assert_nothing_left()


def assert_goes_on(project):
    assert project.run("--resume")["status"] == "COMPLETED"
    assert project.published() == UNDISTURBED
    project.assert_nothing_left()


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_a_body_is_broken_off(number, chain, until):
    runner = started(chain, until, hold="prune")
    os.killpg(runner.pid, number)
    assert_paused(chain, runner)
    assert chain.published() == [None, None, "chain_grow"]
    assert_goes_on(chain)


@pytest.mark.process
@pytest.mark.parametrize(
    ("failpoint", "step"),
    [("staging.branch_created", "stage.branch"), ("staging.uploaded", "stage.upload")],
)
def test_staging_is_broken_off(failpoint, step, chain, until):
    runner = started(chain, until, failpoints=f"{failpoint}=delay:600", after=step)
    press_ctrl_c(runner)
    assert_paused(chain, runner)
    assert chain.published() == [None, None]
    assert_goes_on(chain)


@pytest.mark.process
@pytest.mark.parametrize("failpoint", ["publish.decided", "publish.done"])
def test_a_publication_under_way_is_finished_first(failpoint, chain, until):
    runner = started(
        chain, until, failpoints=f"{failpoint}=delay:2", after=failpoint.removesuffix(".done")
    )
    press_ctrl_c(runner)
    assert_paused(chain, runner)
    assert chain.published() == [None, None, "chain_grow"]
    assert chain.only_run.attempts[0].status == "COMPLETED"
    assert_goes_on(chain)


@pytest.mark.process
def test_pressing_it_again_breaks_off_a_publication_that_takes_too_long(chain, until):
    runner = started(chain, until, failpoints="publish.done=delay:600", after="publish")

    def paused_by_pressing():
        press_ctrl_c(runner)
        return chain.only_run.status == "PAUSED"

    until(paused_by_pressing, "the runner to give up its publication")
    assert_paused(chain, runner)
    assert chain.published() == [None, None, "chain_grow"]  # abandoned: nobody accepted it
    assert chain.only_run.attempts[0].status != "COMPLETED"
    assert_goes_on(chain)


@pytest.mark.process
def test_cancelling_from_outside_stops_the_body_soon(chain, until):
    runner = started(chain, until, hold="grow")
    executor = chain.executor_of(runner)
    chain.queue.cancel(chain.only_run.id, "no longer wanted")
    cancelled_at = time.monotonic()
    until(lambda: executor not in chain.processes(), "the body to be stopped")
    assert time.monotonic() - cancelled_at < 20  # the body would sleep for minutes

    assert chain.ended(runner, expect=1)["status"] == "TERMINATED"
    assert chain.published() == [None, None]
    chain.assert_nothing_left()
    refused = chain.start("run", "--json", "--resume", chain.only_run.id)
    chain.ended(refused, expect=1)
