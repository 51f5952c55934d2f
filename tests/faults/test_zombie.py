"""A worker that stopped, lost its lease, and comes back when its task was done by another."""

from __future__ import annotations

import os
import signal

import pytest

from perago.flow.lifecycle import run_attempt
from perago.wiring import build_runtime

FAILPOINTS = ["staging.uploaded", "fence2.passed", "publish.decided"]
# An executor that comes back alone waits long for a sign of its runner before it reports.
ONE_OF_THEM = FAILPOINTS[-1]


@pytest.mark.process
@pytest.mark.parametrize(
    ("failpoint", "first_back"),
    [
        *((name, "runner") for name in FAILPOINTS),
        *(
            pytest.param(name, "executor", marks=() if name == ONE_OF_THEM else pytest.mark.matrix)
            for name in FAILPOINTS
        ),
    ],
)
def test_it_is_refused_and_the_branch_keeps_the_retry(
    *, failpoint, first_back, project, load_module, monkeypatch, until, is_stopped
):
    project.add("zombie")
    seed = project.seed()
    runner = project.start(
        "run", "--json", "zombie:chain", failpoints=f"{failpoint}=stop", WHO="zombie"
    )
    executor = project.executor_of(runner)
    until(lambda: is_stopped(executor), f"the executor to stop at {failpoint}")
    os.kill(runner.pid, signal.SIGSTOP)  # or it would keep the lease alive

    work = load_module("zombie").work
    (delivery,) = until(
        lambda: project.queue.poll([work.name], worker_id="another"), "the lease to run out"
    )
    monkeypatch.setenv("WHO", "retry")
    outcome = run_attempt(delivery, work, build_runtime(project.settings))
    assert outcome.accepted
    published = project.store.head("chain", "main")

    pids = {"executor": executor, "runner": runner.pid}
    os.kill(pids.pop(first_back), signal.SIGCONT)
    if first_back == "executor":
        project.wait_for_step("report")
    (other,) = pids.values()
    os.kill(other, signal.SIGCONT)

    ended = project.ended(runner)
    assert [attempt["status"] for attempt in ended["attempts"]] == ["TIMED_OUT", "COMPLETED"]
    assert project.store.head("chain", "main") == published
    assert published.is_only_child_of(seed.id)
    assert project.tree()["who.txt"] == b"retry"
    assert project.processes() == []
    project.assert_nothing_left()
    if first_back == "executor":
        (refusal,) = [event["reason"] for event in project.events() if event["step"] == "failed"]
        assert refusal.startswith(("stale_attempt", "lease_too_short", "publish_fence"))
