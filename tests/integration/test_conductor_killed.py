"""Conductor killed and started again: what it knows then, and what becomes of who waited for it.

It takes long to start, so it dies once, when everybody is where a death might hurt.
"""

import time
from contextlib import ExitStack, closing
from dataclasses import dataclass

import pytest
from support.conductor import STARTS_SOONER, ConductorBench
from support.processes import until
from support.tasks import worker_tasks
from support.wire import FaultyWire
from support.worker import HeldExchange, Worker, WorkerRig, attempts_of

from perago.errors import OrchestratorUnavailableError
from perago.model.attempt import Delivery
from perago.model.run import StepPlan
from perago.stack.test_server import start_conductor
from perago.testing.conformance.orchestrator_bench import completed, step, take, workspace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # it is started twice

HELD_AT = ("fence1.passed", "publish.cleared", "report.ready")
LEASE_SECONDS = 6
NOTICED_SECONDS = 30.0


@dataclass
class Caught:
    """A worker that was at a run when Conductor died, and the place it works in."""

    place: WorkerRig
    worker: Worker
    run_id: str

    def assert_ended_well(self):
        """At the first attempt, published once, and nothing is left."""
        run = self.place.completed(self.run_id)
        assert attempts_of(run) == [("grow_patiently", "COMPLETED")], self.place.story(run)
        assert self.place.published() == ["grow_patiently"]
        assert self.place.history()[-1].id == run.output_ref
        self.worker.stop()
        self.place.assert_nothing_left()


@dataclass
class Outage:
    """Who was at what when Conductor died; it is up again."""

    bench: ConductorBench
    held: dict[str, Caught]
    in_a_body: Caught
    reporting: dict[str, Caught]
    delivery: Delivery
    unpolled: StepPlan


class CutReport(HeldExchange):
    """A report that is held, applied or not, and that no answer comes to."""

    def __call__(self, exchange):
        if self._when == "after":
            exchange.forward().keep()
        self._hold()
        exchange.cut()


@pytest.fixture(scope="module")
def server(conductor_program, tmp_path_factory):
    directory = tmp_path_factory.mktemp("mortal-conductor")
    with start_conductor(directory, java_options=STARTS_SOONER) as server:
        yield server


@pytest.fixture(scope="module")
def bench(server):
    with closing(ConductorBench(server.address)) as bench:
        yield bench


@pytest.fixture(scope="module")
def outage(server, bench, lakefs_server, tmp_path_factory):
    """Everybody gets to where they are to be caught; then Conductor dies, and is started again."""
    with ExitStack() as opened:

        def new_place():
            directory = tmp_path_factory.mktemp("outage")
            return opened.enter_context(
                closing(WorkerRig(directory, server.address, lakefs_server))
            )

        def caught_at(failpoint):
            place = new_place()
            worker = place.worker(PERAGO_FAILPOINTS=f"{failpoint}=stop-once:{place.fresh}")
            run_id = place.start(worker_tasks.growing_patiently)
            return Caught(place, worker, run_id), worker.stopped_executor()

        def caught_reporting(report):
            place = new_place()
            wire = opened.enter_context(FaultyWire(server.address.removesuffix("/api")))
            wire.on(report, method="POST", path=r"/api/tasks$")
            worker = place.worker(CONDUCTOR_SERVER_URL=f"{wire.endpoint}/api")
            run_id = place.start(worker_tasks.growing_patiently)
            until(lambda: report.is_held, lambda: f"a report\n{worker}")
            return Caught(place, worker, run_id)

        held = {failpoint: caught_at(failpoint) for failpoint in HELD_AT}
        place = new_place()
        worker, gate, run_id = place.held_at_a_gate(worker_tasks.growing_patiently)
        taken, unpolled = step("taken", response_seconds=600), step("unpolled")
        for one in (taken, unpolled):
            bench.start(one, workspace=workspace())
        delivery = take(bench, taken)
        reports = {"applied": CutReport("after"), "lost": CutReport("before")}
        reporting = {name: caught_reporting(report) for name, report in reports.items()}

        server.kill()
        assert not server.is_running
        for report in reports.values():
            report.release()
        for caught, executor in held.values():
            caught.worker.resume(executor)
        with pytest.raises(OrchestratorUnavailableError):
            bench.orchestrator.heartbeat(delivery)
        worker.wait_for("orchestrator.unheard")
        gate.touch()  # it has to wait at its fence
        server.restart()
        yield Outage(
            bench=bench,
            held={failpoint: caught for failpoint, (caught, _) in held.items()},
            in_a_body=Caught(place, worker, run_id),
            reporting=reporting,
            delivery=delivery,
            unpolled=unpolled,
        )


@pytest.mark.parametrize("failpoint", HELD_AT)
def test_it_dies_before_staging_in_the_merge_and_before_the_report(failpoint, outage):
    outage.held[failpoint].assert_ended_well()


@pytest.mark.parametrize("report", ["applied", "lost"])
def test_it_dies_in_the_report(report, outage):
    outage.reporting[report].assert_ended_well()


def test_it_dies_in_mid_task_which_costs_no_retry(outage):
    outage.in_a_body.assert_ended_well()
    assert len(outage.in_a_body.worker.heard("orchestrator.heard")) >= 2


def test_what_was_handed_out_before_it_died_is_reported_to_it_afterwards(outage):
    orchestrator, delivery = outage.bench.orchestrator, outage.delivery
    assert orchestrator.heartbeat(delivery)
    assert orchestrator.report(delivery, completed()).accepted
    assert outage.bench.run_status(delivery.attempt.workflow_instance_id).value == "COMPLETED"


def test_what_nobody_had_asked_for_before_it_died_is_handed_out_afterwards(outage):
    name = outage.unpolled.task_name
    until(lambda: outage.bench.orchestrator.poll([name], worker_id="w"), "it to be handed out")


@pytest.mark.usefixtures("outage")
def test_it_keeps_an_extended_lease_and_notices_a_lost_one_within_seconds(bench):
    """Left to itself it would notice a minute or two later; nobody has it look here."""
    leased = step("leased", response_seconds=LEASE_SECONDS)
    run_id = bench.start(leased, workspace=workspace())
    delivery = take(bench, leased)

    def statuses():
        return [attempt.status for attempt in bench.orchestrator.get(run_id).attempts]

    over = time.monotonic() + 1.5 * LEASE_SECONDS
    while time.monotonic() < over:
        time.sleep(1)
        last = time.monotonic()
        assert bench.orchestrator.heartbeat(delivery)
    assert statuses() == ["IN_PROGRESS"]

    patience = LEASE_SECONDS + NOTICED_SECONDS
    until(lambda: statuses() != ["IN_PROGRESS"], "the lost lease to be noticed", seconds=patience)
    assert time.monotonic() > last + LEASE_SECONDS
    assert statuses() == ["TIMED_OUT", "SCHEDULED"]
    (retry,) = until(
        lambda: bench.orchestrator.poll([leased.task_name], worker_id="w"), "the retry"
    )
    assert retry.attempt.retry_count == 1
