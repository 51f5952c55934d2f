"""What a supervisor is still owed when its poller has died."""

import os
import signal
import time

import pytest

from perago.adapters.conductor.client import ConductorConfig
from perago.adapters.conductor.orchestrator import ConductorOrchestrator
from perago.model.attempt import Attempt, Delivery
from perago.wiring import system_clock
from perago.worker.messages import HeartbeatsStopped
from perago.worker.orchestrator_link import GivenBack, PollingStopped
from perago.worker.poller_handle import PollerHandle

NOBODY = ConductorConfig("http://127.0.0.1:9/api")
PATIENCE_SECONDS = 60
DELIVERY = Delivery(Attempt("run", "step", 1, 0, "1", 0, "task"), {}, "worker", 60.0)


@pytest.fixture
def link():
    link = PollerHandle(ConductorOrchestrator(NOBODY), system_clock(), worker_id="worker")
    yield link
    link.close()


def next_of(link, kind):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for told in link.events():
            if isinstance(told, kind):
                return told
        time.sleep(0.01)
    raise AssertionError(f"no {kind} within {PATIENCE_SECONDS} s")


@pytest.mark.parametrize(
    ("order", "kind"),
    [
        (lambda link: link.release_lease("1", confirm=True), HeartbeatsStopped),
        (lambda link: link.give_back(DELIVERY), GivenBack),
        (lambda link: link.stop_polling(), PollingStopped),
    ],
    ids=["let go", "give back", "stop asking"],
)
def test_what_the_dead_poller_owed_is_told_by_its_successor(order, kind, link):
    os.kill(link.pid, signal.SIGSTOP)
    order(link)
    os.kill(link.pid, signal.SIGKILL)
    assert next_of(link, kind)
    assert link.restarts == 1
