"""A real Conductor, through our adapter, keeps every promise of the orchestrator port."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from support.wire import FaultyWire

from perago.adapters.conductor.client import ConductorConfig
from perago.adapters.conductor.http import api_path
from perago.adapters.conductor.orchestrator import ConductorOrchestrator
from perago.errors import OrchestratorError
from perago.model.attempt import TaskStatus
from perago.model.outcome import TaskReport
from perago.testing.conformance.orchestrator import OrchestratorConformance
from perago.testing.conformance.orchestrator_bench import (
    completed,
    failed,
    moved,
    step,
    take,
    workspace,
)


@pytest.fixture
def bench(conductor_bench):
    return conductor_bench


class TestConductorOrchestrator(OrchestratorConformance):
    @pytest.fixture
    def bench(self, conductor_bench):
        return conductor_bench


# --- polling --------------------------------------------------------------------------------------


def test_no_task_is_starved_by_one_that_is_named_before_it(bench):
    often, seldom = step("often"), step("seldom")
    for _ in range(4):
        bench.start(often, workspace=workspace())
    bench.start(seldom, workspace=workspace())
    names = [often.task_name, seldom.task_name]
    polled = [bench.orchestrator.poll(names, worker_id="w")[0].attempt for _ in range(2)]
    assert {attempt.task_name for attempt in polled} == set(names)


def test_a_limit_holds_for_all_names_together(bench):
    steps = [step("one"), step("two"), step("three")]
    for one in steps:
        bench.start(one, workspace=workspace())
    names = [one.task_name for one in steps]
    assert len(bench.orchestrator.poll(names, worker_id="w", limit=2)) == 2
    assert len(bench.orchestrator.poll(names, worker_id="w", limit=2)) == 1


def test_workers_that_poll_at_once_never_share_a_task(bench):
    shared = step("shared")
    for _ in range(12):
        bench.start(shared, workspace=workspace())

    def poll(worker):
        mine = []
        while found := bench.orchestrator.poll([shared.task_name], worker_id=worker, limit=2):
            mine += found
        return mine

    with ThreadPoolExecutor(4) as threads:
        polled = [one for mine in threads.map(poll, ["a", "b", "c", "d"]) for one in mine]
    assert len(polled) == 12
    assert len({delivery.attempt.task_id for delivery in polled}) == 12


def test_an_adapter_that_is_sent_to_another_process_works_there(bench):
    first = step("first")
    bench.start(first, workspace=workspace())
    elsewhere = pickle.loads(pickle.dumps(bench.orchestrator))  # noqa: S301 - our own
    try:
        assert len(elsewhere.poll([first.task_name], worker_id="w")) == 1
    finally:
        elsewhere.close()


# --- reporting ------------------------------------------------------------------------------------


def test_a_report_reads_back_whatever_json_it_holds(bench):
    first = step("first")
    bench.start(first, workspace=workspace())
    output = {
        "result": {
            "null": None,
            "whole": 1,
            "real": 1.0,
            "tiny": 5e-324,
            "huge": 2**70,
            "text": 'é\u2028😀\x00"\\ ${workflow.input}',
            "": {"empty": {}, "list": [None, [], {"a": None}]},
            "half": "\ud800",
        }
    }
    assert bench.orchestrator.report(take(bench, first), completed(output)).accepted


def test_a_large_output_is_accepted_and_one_too_large_is_not(bench):
    first = step("first")
    for _ in range(2):
        bench.start(first, workspace=workspace())
    large = completed({"result": {"text": "x" * 4_000_000}})
    too_large = completed({"result": {"text": "x" * 12_000_000}})
    assert bench.orchestrator.report(take_one(bench, first), large).accepted
    receipt = bench.orchestrator.report(take_one(bench, first), too_large)
    assert (receipt.accepted, receipt.status) == (False, TaskStatus.FAILED_WITH_TERMINAL_ERROR)


def test_the_ref_of_an_output_that_conductor_moved_away_is_an_error_not_none(bench):
    first, place = step("first"), workspace()
    bench.start(first, workspace=place)
    delivery = take(bench, first)
    report = moved(place, "commit-c", {"text": "x" * 4_000_000})
    assert bench.orchestrator.report(delivery, report).accepted
    with pytest.raises(OrchestratorError, match=delivery.attempt.task_id):
        bench.orchestrator.accepted_ref(delivery.attempt.task_id)


def test_what_an_attempt_printed_is_its_log_in_conductor(bench):
    first = step("first")
    bench.start(first, workspace=workspace())
    delivery = take(bench, first)
    lines = tuple(f"line {number}" for number in range(100))
    bench.orchestrator.report(delivery, replace(failed(), logs=lines))
    assert [line for _, line in bench.orchestrator.task_logs(delivery.attempt.task_id)] == [*lines]


def test_who_had_nothing_to_say_has_an_empty_log(bench):
    first = step("first")
    bench.start(first, workspace=workspace())
    delivery = take(bench, first)
    bench.orchestrator.report(delivery, completed())
    assert bench.orchestrator.task_logs(delivery.attempt.task_id) == []


def test_a_worker_can_not_report_that_it_goes_on(bench):
    first = step("first")
    bench.start(first, workspace=workspace())
    delivery = take(bench, first)
    with pytest.raises(OrchestratorError, match="IN_PROGRESS"):
        bench.orchestrator.report(delivery, TaskReport(TaskStatus.IN_PROGRESS))


def test_heartbeats_that_end_before_a_report_never_undo_it(bench):
    """Conductor writes a task back as it read it; a heartbeat under way would undo a report."""
    first = step("first")
    for _ in range(10):
        bench.start(first, workspace=workspace())
        delivery = take(bench, first)
        beating = threading.Thread(target=bench.orchestrator.heartbeat, args=(delivery,))
        beating.start()
        beating.join()
        assert bench.orchestrator.report(delivery, completed()).accepted
        assert bench.orchestrator.reload(delivery.attempt).status is TaskStatus.COMPLETED


# --- the attempt fence ----------------------------------------------------------------------------


def test_an_attempt_is_found_wherever_its_workflow_lists_it(bench):
    first = step("first")
    bench.start(first, workspace=workspace())
    attempt = take(bench, first).attempt
    misplaced = replace(attempt, seq=attempt.seq + 5)
    assert bench.orchestrator.reload(misplaced) == bench.orchestrator.reload(attempt)


def test_the_attempts_of_a_workflow_that_was_restarted_are_unknown(bench):
    first = step("first")
    run_id = bench.start(first, workspace=workspace())
    before = take(bench, first)
    bench.orchestrator.cancel(run_id, "to be restarted")
    bench.api.send("POST", api_path("workflow", run_id, "restart"), doing="restarting")
    again = take(bench, first)
    assert again.attempt.task_id != before.attempt.task_id
    with pytest.raises(OrchestratorError, match=before.attempt.task_id):
        bench.orchestrator.reload(before.attempt)


# --- who writes a branch --------------------------------------------------------------------------


def test_a_workflow_that_somebody_else_started_is_a_writer_too(bench):
    first, place = step("first"), workspace()
    plan = bench.registered(first)
    mine = bench.start_plan(plan, place)
    theirs = bench.start_as_somebody_else(plan, {"input": {"workspace": place.model_dump()}})
    assert set(bench.orchestrator.writers(place.repository, place.branch)) == {mine, theirs}


def test_a_writer_that_comes_and_goes_between_two_looks_is_noticed(bench):
    first, place = step("first"), workspace()
    plan = bench.registered(first)
    mine = bench.start_plan(plan, place)
    assert bench.orchestrator.writers(place.repository, place.branch) == [mine]
    theirs = bench.start_as_somebody_else(plan, {"input": {"workspace": place.model_dump()}})
    assert set(bench.orchestrator.writers(place.repository, place.branch)) == {mine, theirs}
    bench.orchestrator.cancel(theirs, "enough")
    assert bench.orchestrator.writers(place.repository, place.branch) == [mine]


def test_a_writer_that_is_paused_is_still_one(bench):
    first, place = step("first"), workspace()
    run_id = bench.start(first, workspace=place)
    bench.orchestrator.pause(run_id, "a break")
    assert bench.orchestrator.writers(place.repository, place.branch) == [run_id]


def test_a_workflow_that_only_mentions_the_branch_is_none(bench):
    first, place = step("first"), workspace()
    plan = bench.registered(first)
    mentioned = {"params": {"first": {"of": place.model_dump()}}}
    bench.start_as_somebody_else(plan, {"input": mentioned})
    assert bench.orchestrator.writers(place.repository, place.branch) == []


def test_a_look_at_a_branch_is_one_request_whatever_else_is_active(conductor_server, bench):
    first, place = step("first"), workspace()
    for _ in range(5):
        bench.start(first, workspace=workspace())
    bench.start(first, workspace=place)
    with FaultyWire(conductor_server.removesuffix("/api")) as wire:
        watched = ConductorOrchestrator(ConductorConfig(f"{wire.endpoint}/api"))
        assert len(watched.writers(place.repository, place.branch)) == 1
        watched.close()
        assert len(wire.requests) == 1


def test_a_workflow_that_waits_for_its_sub_workflow_does_not_write_beside_it(bench):
    first, place = step("first"), workspace()
    inner = bench.registered(first)
    outer = f"{inner.name}_outer"
    bench.definitions.push_workflow(
        {
            "name": outer,
            "version": 1,
            "schemaVersion": 2,
            "ownerEmail": "tests@example.com",
            "timeoutPolicy": "ALERT_ONLY",
            "timeoutSeconds": 0,
            "tasks": [
                {
                    "name": "inner",
                    "taskReferenceName": "inner",
                    "type": "SUB_WORKFLOW",
                    "subWorkflowParam": {"name": inner.name, "version": 1},
                    "inputParameters": {"workspace": "${workflow.input.workspace}"},
                }
            ],
        }
    )
    above = bench.start_as_somebody_else(
        replace(inner, name=outer), {"input": {"workspace": place.model_dump()}}
    )
    delivery = take_soon(bench, first)
    below_ = delivery.attempt.workflow_instance_id
    assert below_ != above
    assert bench.orchestrator.writers(place.repository, place.branch) == [below_]


def take_one(bench, wanted):
    (delivery,) = bench.orchestrator.poll([wanted.task_name], worker_id="worker")
    return delivery


def take_soon(bench, wanted):
    """Poll until the server has got round to scheduling it."""
    for _ in range(50):
        found = bench.orchestrator.poll([wanted.task_name], worker_id="worker")
        if found:
            return found[0]
        bench.advance(0.2)
    raise AssertionError(f"{wanted.task_name} was never scheduled")
