"""Workflows as runs: started once or not at all, found, paused, cancelled and resumed."""

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.conductor import ConductorBench
from support.wire import FaultyWire, answer, drop_answer, drop_request

from perago.adapters.conductor import run_start
from perago.errors import (
    BranchBusyError,
    DefinitionDiffersError,
    OrchestratorUnavailableError,
    RunError,
    RunNotFoundError,
    UnknownAttemptError,
)
from perago.model.attempt import TaskStatus
from perago.model.run import ResultField, RunPlan, RunStatus
from perago.ports.orchestrator import SharedRuns
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


@pytest.fixture
def runs(bench):
    return bench.orchestrator


@pytest.fixture
def wire(conductor_server):
    with FaultyWire(conductor_server.removesuffix("/api")) as wire:
        yield wire


@pytest.fixture
def shaky(wire):
    """A bench whose requests get lost."""
    bench = ConductorBench(f"{wire.endpoint}/api")
    yield bench
    wire.clear()
    bench.close()


def test_it_is_what_the_command_line_expects(runs):
    assert isinstance(runs, SharedRuns)


# --- starting -------------------------------------------------------------------------------------


def test_a_second_run_on_a_branch_is_refused_and_told_the_first(bench):
    plan, place = bench.registered(step("first")), workspace()
    first = bench.start_plan(plan, place)
    with pytest.raises(BranchBusyError, match=first):
        bench.start_plan(plan, place)
    assert bench.start_plan(plan, workspace())


def test_a_branch_that_somebody_else_writes_is_busy_too(bench):
    plan, place = bench.registered(step("first")), workspace()
    theirs = bench.start_as_somebody_else(plan, {"input": {"workspace": place.model_dump()}})
    with pytest.raises(BranchBusyError, match=theirs):
        bench.start_plan(plan, place)


def test_a_branch_is_free_again_when_its_run_has_ended(bench, runs):
    first, place = step("first"), workspace()
    plan = bench.registered(first)
    bench.start_plan(plan, place)
    runs.report(take(bench, first), completed())
    assert bench.start_plan(plan, place)


def test_of_runs_that_are_started_at_one_moment_on_a_branch_at_most_one_goes_on(bench, runs):
    plan, place = bench.registered(step("first")), workspace()
    ready = threading.Barrier(4)

    def start(_):
        ready.wait()
        try:
            return bench.start_plan(plan, place)
        except BranchBusyError:
            return None

    with ThreadPoolExecutor(4) as threads:
        started = [run_id for run_id in threads.map(start, range(4)) if run_id]
    assert len(started) == 1
    assert runs.writers(place.repository, place.branch) == started


def test_what_is_not_registered_is_not_started(runs):
    plan = RunPlan(f"nobody_{uuid.uuid4().hex[:8]}", "m:p", (step("first"),))
    with pytest.raises(DefinitionDiffersError, match="isn't registered"):
        runs.start(plan, workspace())


def test_what_is_registered_otherwise_is_not_started(bench, runs):
    plan = bench.registered(step("first"))
    with pytest.raises(DefinitionDiffersError, match="other steps"):
        runs.start(RunPlan(plan.name, "m:p", (step("second"),)), workspace())


def test_a_plan_without_its_workspace_is_not_started(bench, runs):
    with pytest.raises(RunError, match="needs a workspace"):
        runs.start(bench.registered(step("first")), None)


def test_a_version_can_be_asked_for(bench, runs):
    plan = bench.registered(step("first"))
    with pytest.raises(DefinitionDiffersError):
        runs.start(plan, workspace(), version=7)
    assert bench.start_plan(plan, workspace(), version=1)


def test_a_start_with_a_mark_that_was_started_before_is_the_same_run(bench):
    plan, place, mark = bench.registered(step("first")), workspace(), str(uuid.uuid4())
    once = bench.start_plan(plan, place, run_id=mark)
    assert bench.start_plan(plan, place, run_id=mark) == once


# --- starting, and hearing nothing ----------------------------------------------------------------


@pytest.mark.parametrize("uses_workspace", [True, False])
def test_a_start_whose_answer_is_lost_is_found_and_not_repeated(wire, shaky, uses_workspace):
    plan = shaky.registered(step("first", uses_workspace=uses_workspace))
    place = workspace() if uses_workspace else None
    wire.on(method="POST", path="/api/workflow$", fault=drop_answer)
    run_id = shaky.start_plan(plan, place)
    assert wire.counts(method="POST", path="/api/workflow$") == 1
    assert shaky.run_status(run_id) is RunStatus.RUNNING
    assert not wire.unfired


def test_a_start_that_never_arrived_is_told_as_unknown(wire, shaky, monkeypatch):
    monkeypatch.setattr(run_start, "PAUSES_AFTER_A_LOST_START", (0.0, 0.1))
    plan, place = shaky.registered(step("first")), workspace()
    wire.on(method="POST", path="/api/workflow$", fault=drop_request)
    with pytest.raises(OrchestratorUnavailableError, match="unknown whether it was started"):
        shaky.start_plan(plan, place)
    assert wire.counts(method="POST", path="/api/workflow$") == 1
    assert shaky.start_plan(plan, place)


def test_a_start_that_is_answered_with_an_error_after_it_was_done_is_found(wire, shaky):
    plan, place = shaky.registered(step("first")), workspace()
    wire.on(method="POST", path="/api/workflow$", fault=applied_but_told_otherwise)
    run_id = shaky.start_plan(plan, place)
    assert shaky.orchestrator.writers(place.repository, place.branch) == [run_id]


def applied_but_told_otherwise(exchange):
    exchange.keep_body()
    exchange.forward().keep()
    answer(503)(exchange)


# --- looking --------------------------------------------------------------------------------------


def test_a_run_is_found_by_the_start_of_its_id(bench, runs):
    run_id = bench.start(step("first"), workspace=workspace())
    assert runs.find(run_id[:12]).id == run_id
    assert runs.find(run_id).id == run_id


@pytest.mark.parametrize("prefix", ["", "zzzzzz", "no'such AND", "*", "0" * 36])
def test_what_is_no_runs_id_is_not_found(runs, prefix):
    with pytest.raises(RunNotFoundError):
        runs.find(prefix)


def test_a_start_that_several_ids_have_is_told_with_all_of_them(bench, runs):
    ids = {bench.start(step("first"), workspace=workspace()) for _ in range(17)}
    digit = next(d for d in "0123456789abcdef" if sum(i.startswith(d) for i in ids) > 1)
    with pytest.raises(RunNotFoundError, match="give more of the id"):
        runs.find(digit)


def test_runs_are_listed_newest_first(bench, runs):
    ids = [bench.start(step("first"), workspace=workspace()) for _ in range(3)]
    listed = [run.id for run in runs.runs(limit=50)]
    assert [run_id for run_id in listed if run_id in ids] == ids[::-1]
    assert len(runs.runs(limit=2)) == 2


def test_a_run_shows_each_attempt_with_its_times_and_reason(bench, runs):
    first, place = step("first", params={"year": 1999}, retries=1), workspace()
    run_id = bench.start(first, workspace=place)
    runs.report(take(bench, first), failed("no luck"))
    run = runs.get(run_id)
    before, after = run.attempts
    assert (before.status, before.reason) == (TaskStatus.FAILED, "no luck")
    assert run.created_at <= before.scheduled_at <= before.started_at <= before.ended_at
    assert (after.status, after.attempt.retry_count) == (TaskStatus.SCHEDULED, 1)
    assert after.due_at == runs.next_due(run_id) > after.scheduled_at
    assert run.workspace == place
    assert run.plan.steps[0].params == {"year": 1999}
    assert run.plan.target == "chains:chain"


def test_a_completed_run_says_where_its_workspace_stands(bench, runs):
    first, place = step("first"), workspace()
    run_id = bench.start(first, workspace=place)
    runs.report(take(bench, first), moved(place, "commit-b"))
    assert runs.get(run_id).output_ref == "commit-b"
    assert runs.next_due(run_id) is None


def test_a_branch_knows_its_active_run_and_its_last(bench, runs):
    first, place = step("first"), workspace()
    plan = bench.registered(first)
    assert runs.last_on(place.repository, place.branch) is None
    before = bench.start_plan(plan, place)
    assert runs.active_on(place.repository, place.branch).id == before
    runs.report(take(bench, first), completed())
    assert runs.active_on(place.repository, place.branch) is None
    assert runs.last_on(place.repository, place.branch).id == before
    after = bench.start_plan(plan, place)
    assert runs.last_on(place.repository, place.branch).id == after


def test_a_run_without_a_workspace_takes_results_like_any_other(bench, runs):
    count = step("count", uses_workspace=False)
    show = step("show", uses_workspace=False, params={"of": ResultField("count", ("n",)), "to": 1})
    run_id = bench.start(count, show, workspace=None)
    runs.report(take(bench, count), completed({"result": {"n": 7}}))
    assert take(bench, show).input == {"params": {"of": 7, "to": 1}}
    assert runs.get(run_id).workspace is None


def test_an_unknown_run_or_task_is_an_error(runs):
    with pytest.raises(RunNotFoundError, match="no-such"):
        runs.get("no-such")
    with pytest.raises(UnknownAttemptError, match="no-such"):
        runs.task_ended_at("no-such")


def test_it_is_known_when_a_task_ended_and_who_asked_for_it_last(bench, runs):
    first = step("first")
    bench.start(first, workspace=workspace())
    assert runs.last_polls([first.task_name]) == {}
    delivery = take(bench, first, worker_id="worker-7")
    assert runs.task_ended_at(delivery.attempt.task_id) is None
    ((name, (worker, polled_at)),) = runs.last_polls([first.task_name]).items()
    assert (name, worker) == (first.task_name, "worker-7")
    runs.report(delivery, completed())
    assert runs.task_ended_at(delivery.attempt.task_id) >= polled_at


# --- what a person does to a run ------------------------------------------------------------------


def test_a_cancelled_run_is_over_and_its_attempt_has_lost_its_standing(bench, runs):
    first = step("first")
    run_id = bench.start(first, workspace=workspace())
    delivery = take(bench, first)
    runs.cancel(run_id, "changed my mind")
    assert (runs.get(run_id).status, runs.get(run_id).reason) == (
        RunStatus.TERMINATED,
        "changed my mind",
    )
    assert runs.reload(delivery.attempt).status is TaskStatus.CANCELED
    assert not runs.report(delivery, completed()).accepted
    with pytest.raises(RunError, match="TERMINATED"):
        runs.cancel(run_id, "again")
    with pytest.raises(RunError, match="TERMINATED"):
        runs.pause(run_id, "too late")
    with pytest.raises(RunError, match="nothing to resume"):
        runs.resume(run_id)


def test_a_paused_run_goes_on_when_it_is_resumed(bench, runs):
    first, second = step("first"), step("second")
    run_id = bench.start(first, second, workspace=workspace())
    delivery = take(bench, first)
    runs.pause(run_id, "lunch")
    runs.report(delivery, completed())
    assert runs.get(run_id).status is RunStatus.PAUSED
    assert runs.poll([second.task_name], worker_id="w") == []
    runs.resume(run_id)
    assert take(bench, second)


def test_a_failed_run_gets_another_attempt_when_it_is_resumed(bench, runs):
    first, place = step("first", retries=0), workspace()
    run_id = bench.start(first, workspace=place)
    runs.report(take(bench, first), failed())
    assert runs.get(run_id).status is RunStatus.FAILED
    assert runs.resumable(runs.get(run_id).plan.name).id == run_id
    runs.resume(run_id)
    assert runs.report(take(bench, first), completed()).accepted
    assert runs.get(run_id).status is RunStatus.COMPLETED
    assert runs.resumable(runs.get(run_id).plan.name) is None


def test_a_failed_run_does_not_go_on_beside_another_one_on_its_branch(bench, runs):
    first, place = step("first", retries=0), workspace()
    plan = bench.registered(first)
    before = bench.start_plan(plan, place)
    runs.report(take(bench, first), failed())
    after = bench.start_plan(plan, place)
    with pytest.raises(BranchBusyError, match=after):
        runs.resume(before)


def test_a_failed_run_does_not_go_on_after_another_one_published_on_its_branch(bench, runs):
    first, place = step("first", retries=0), workspace()
    plan = bench.registered(first)
    before = bench.start_plan(plan, place)
    runs.report(take(bench, first), failed())
    after = bench.start_plan(plan, place)
    runs.report(take(bench, first), moved(place, "commit-b"))
    with pytest.raises(RunError, match=after):
        runs.resume(before)
    assert runs.resumable(plan.name) is None


def test_the_newest_unfinished_run_of_a_target_is_the_one_to_resume(bench, runs):
    target = f"chains:{uuid.uuid4().hex}"
    steps = (step("first"),)
    registered = bench.registered(*steps)
    plan = RunPlan(registered.name, target, steps)
    bench.start_plan(plan, workspace())
    newest = bench.start_plan(plan, workspace())
    assert runs.resumable(target).id == newest
    assert runs.resumable(f"{target}-not") is None
