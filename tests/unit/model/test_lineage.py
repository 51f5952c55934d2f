"""What attempts and workflows are called in OpenLineage."""

from uuid import UUID

from perago.model.attempt import (
    Attempt,
    Execution,
    began_at,
    lineage_of,
    new_execution_id,
    run_id,
    workflow_lineage_of,
    workflow_run_id,
)

ATTEMPT = Attempt("run-1", "clean", 1, 0, "task-1", 0, "songs.clean", "songs")


def test_a_run_has_a_uuid_of_the_time_at_which_its_execution_began():
    execution = new_execution_id()
    found = UUID(run_id(execution))
    assert found.version == 7
    assert found.int >> 80 == round(began_at(execution) * 1000)
    assert run_id(execution) == str(found)


def test_two_executions_of_one_attempt_are_two_runs_of_one_job():
    one, two = (lineage_of(Execution.begin(ATTEMPT)) for _ in range(2))
    assert one.id != two.id
    assert one.job == two.job == "songs.clean"


def test_a_job_whose_workflow_nobody_named_is_called_as_its_task():
    execution = Execution.begin(Attempt("run-1", "ref", 1, 0, "task-1", 0, "songs.clean"))
    assert lineage_of(execution).job == "songs.clean"
    assert workflow_lineage_of(execution) is None


def test_a_workflow_keeps_the_uuid_that_it_has_and_gets_one_otherwise():
    has = "b58c38b1-9c3f-4f0e-ad3e-a5d25283ad25"
    assert workflow_run_id(has) == has
    assert UUID(workflow_run_id("run-1")) == UUID(workflow_run_id("run-1"))
    assert workflow_run_id("run-1") != workflow_run_id("run-2")


def test_what_a_workflow_is_called_identifies_no_attempt():
    unnamed = Attempt("run-1", "clean", 1, 0, "task-1", 0, "songs.clean")
    assert unnamed == ATTEMPT
