"""What a worker does about wrong settings, definitions and input, and how it says so."""

import uuid
from types import SimpleNamespace

import pytest
from support.http_servers import KEY, SECRET, KeyGuard
from support.tasks import worker_tasks
from support.worker import attempts_of, task_in

from perago import pipeline
from perago.adapters.conductor.definitions import task_definition, workflow_definition
from perago.stack.server import free_port

MODULE = """
from pydantic import BaseModel
from perago import task

class Nothing(BaseModel):
    pass

@task(name={name!r}, owner_email="tests@example.com")
def step(params: Nothing) -> Nothing:
    return params
"""


# --- where Conductor is, and who we are there -----------------------------------------------------


def test_nobody_at_the_address_is_said_and_waited_for(place):
    address = f"http://127.0.0.1:{free_port()}/api"
    worker = place.worker(CONDUCTOR_SERVER_URL=address)
    line = worker.wait_for("orchestrator.unheard")
    assert line["code"] == "orchestrator_unavailable"
    assert f"no response from Conductor at {address}" in line["message"]
    assert "CONDUCTOR_SERVER_URL" in line["fix"]
    worker.stop()
    place.assert_nothing_left()


@pytest.mark.parametrize("path", ["/api", "/nowhere"])
def test_somebody_else_at_the_address_ends_it_with_the_fix(path, place, lakefs_server):
    address = f"{lakefs_server.endpoint}{path}"
    worker = place.worker(CONDUCTOR_SERVER_URL=address)
    assert worker.end() == 4
    assert f"the server at {address} isn't Conductor's API" in worker.said
    assert "correct CONDUCTOR_SERVER_URL; it ends with /api" in worker.said


def test_an_address_that_is_none_ends_it_at_once(place):
    worker = place.worker(CONDUCTOR_SERVER_URL="conductor:8080")
    assert worker.end() == 2
    assert "CONDUCTOR_SERVER_URL='conductor:8080' is not the address of a server" in worker.said


def test_a_wrong_key_ends_it_and_is_not_shown(place, conductor_server):
    with KeyGuard(conductor_server) as guard:
        worker = place.worker(
            CONDUCTOR_SERVER_URL=guard.address,
            CONDUCTOR_AUTH_KEY=KEY,
            CONDUCTOR_AUTH_SECRET="a-wrong-secret",
        )
        assert worker.end() == 4
    assert "check CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET" in worker.said
    assert "a-wrong-secret" not in worker.said


def test_no_key_where_one_is_wanted_ends_it(place, conductor_server):
    with KeyGuard(conductor_server) as guard:
        worker = place.worker(CONDUCTOR_SERVER_URL=guard.address)
        assert worker.end() == 4
    assert "check CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET" in worker.said


def test_with_the_right_key_it_serves_and_gets_a_new_token_when_the_old_one_is_spent(
    place, conductor_server
):
    with KeyGuard(conductor_server) as guard:
        worker, gate, run_id = place.held_at_a_gate(
            worker_tasks.growing_patiently,
            CONDUCTOR_SERVER_URL=guard.address,
            CONDUCTOR_AUTH_KEY=KEY,
            CONDUCTOR_AUTH_SECRET=SECRET,
        )
        guard.expire()
        gate.touch()
        assert attempts_of(place.completed(run_id)) == [("grow_patiently", "COMPLETED")]
        worker.stop()
    assert SECRET not in worker.said
    place.assert_nothing_left()


# --- what is served, and what is registered -------------------------------------------------------


def module_of(place, name):
    module = place.directory / f"{name}.py"
    module.write_text(MODULE.format(name=name))
    return module


def test_a_task_that_is_not_registered_is_told(place):
    name = f"unheard_of_{uuid.uuid4().hex}"
    worker = place.worker(module_of(place, name))
    line = worker.wait_for("trouble")
    assert line["code"] == "definition_differs"
    assert line["message"] == f"task {name!r} isn't registered"
    assert "perago register" in line["fix"]
    worker.stop()


def test_a_task_that_is_registered_otherwise_is_told_and_served_all_the_same(place):
    name = f"other_{uuid.uuid4().hex}"
    module = module_of(place, name)
    task = task_in(module.read_text())
    changed = {"retryCount": 9, "timeoutSeconds": 777}
    place.conductor.definitions.push_task(task_definition(task) | changed)
    worker = place.worker(module)
    line = worker.wait_for("trouble")
    assert line["code"] == "definition_differs"
    assert f"task {name!r} is registered differently from the code" in line["message"]
    assert "retryCount is 9, not 3" in line["message"]
    assert "timeoutSeconds is 777, not 0" in line["message"]

    workflow = workflow_definition(pipeline(name, [task]))
    place.conductor.definitions.push_workflow(workflow)
    run_id = place.conductor.start_plan(pipeline(name, [task]).plan(), None)
    assert len(place.completed(run_id).attempts) == 1


def test_a_task_that_is_registered_as_declared_is_no_trouble(place):
    for chain in (worker_tasks.chain, worker_tasks.refused, worker_tasks.growing_once):
        place.register(chain)
    place.register(worker_tasks.growing_patiently)
    place.register(worker_tasks.growing_impatiently)
    worker = place.worker()
    assert len(place.completed(place.start(worker_tasks.counting)).attempts) == 1
    worker.stop()
    assert worker.heard("trouble") == []


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import nothing_of_the_kind\n", ["other_tasks.py:1", "nothing_of_the_kind"]),
        ("x = 1\ny = 1 / 0\n", ["other_tasks.py:2", "ZeroDivisionError"]),
        ("def f(:\n", ["other_tasks.py:1", "invalid syntax"]),
        ("x = 1\n", ["declares no task"]),
    ],
    ids=["import", "error", "syntax", "empty"],
)
def test_a_module_that_can_not_be_served_ends_it_with_the_place(source, told, place):
    module = place.directory / "other_tasks.py"
    module.write_text(source)
    worker = place.worker(module)
    assert worker.end() == 2
    assert all(words in worker.said for words in told), worker.said
    assert worker.heard("orchestrator.heard") == [], "nothing was asked for"


def test_a_module_that_is_not_there_ends_it(place):
    worker = place.worker("no_such_module")
    assert worker.end() == 2
    assert "there is no module 'no_such_module'" in worker.said


# --- input ----------------------------------------------------------------------------------------

NO_COMMIT = "f" * 64
WRONG = {
    # what is wrong: how the input is made of a right one, words of the reason
    "no workspace": (lambda given: given.pop("workspace"), "'workspace' is missing"),
    "no params": (lambda given: given.pop("params"), "'params' is missing"),
    "nothing": (lambda given: given.clear(), "'params' is missing"),
    "something else": (lambda given: given.update(more=1), "'more' is not expected"),
    "workspace is null": (lambda given: given.update(workspace=None), "workspace"),
    "workspace is text": (lambda given: given.update(workspace="main"), "workspace: "),
    "workspace is a list": (lambda given: given.update(workspace=[1]), "workspace: "),
    "params is null": (lambda given: given.update(params=None), "params"),
    "params is text": (lambda given: given.update(params="many"), "params"),
    "params is a list": (lambda given: given.update(params=[]), "params"),
    "a param of another type": (
        lambda given: given.update(params={"times": "many"}),
        "bad params: times is 'many'",
    ),
    "a param that is null": (
        lambda given: given.update(params={"times": None}),
        "bad params: times is None",
    ),
    "a branch for a commit": (
        lambda given: given["workspace"].update(ref="main"),
        "workspace.ref 'main' is not a commit id",
    ),
    "another ref_type": (
        lambda given: given["workspace"].update(ref_type="branch"),
        "workspace.ref_type",
    ),
    "no ref": (lambda given: given["workspace"].pop("ref"), "workspace.ref"),
    "ref is null": (lambda given: given["workspace"].update(ref=None), "workspace.ref"),
    "ref is a number": (lambda given: given["workspace"].update(ref=7), "workspace.ref"),
    "ref is empty": (lambda given: given["workspace"].update(ref=""), "workspace.ref"),
    "a field too many": (lambda given: given["workspace"].update(prefix="/"), "workspace.prefix"),
    "no such repository": (
        lambda given: given["workspace"].update(repository="no-such-repository"),
        "workspace.repository doesn't exist",
    ),
    "no such ref": (
        lambda given: given["workspace"].update(ref=NO_COMMIT),
        "workspace.ref doesn't exist",
    ),
    "no such branch": (
        lambda given: given["workspace"].update(branch="no-such-branch"),
        "workspace.branch 'no-such-branch', is gone",
    ),
}


@pytest.fixture(scope="module")
def refusals(places, tmp_path_factory):
    """A run of each wrong input, and the branch they would have written."""
    with places(tmp_path_factory.mktemp("refusals")) as place:
        place.register(worker_tasks.growing_once)
        definition = workflow_definition(worker_tasks.growing_once)
        started = {}
        for number, (what, (spoil, _)) in enumerate(WRONG.items()):
            given = {"workspace": place.workspace.model_dump(), "params": {"times": 1}}
            spoil(given)
            name = f"{definition['name']}_{number}"
            task = {**definition["tasks"][0], "inputParameters": given}
            place.conductor.definitions.push_workflow({**definition, "name": name, "tasks": [task]})
            started[what] = place.conductor.start_as_somebody_else(SimpleNamespace(name=name), {})
        worker = place.worker(PERAGO_SINGLE_WRITER="off")
        runs = {what: place.ended(run_id) for what, run_id in started.items()}
        worker.stop()
        place.assert_nothing_left()
        yield runs, place


@pytest.mark.parametrize("what", WRONG)
def test_input_that_is_wrong_fails_the_attempt_and_names_the_field(what, refusals):
    runs, _ = refusals
    assert attempts_of(runs[what]) == [("grow_once", "FAILED")]
    assert WRONG[what][1] in runs[what].attempts[0].reason


def test_wrong_input_writes_nothing(refusals):
    _, place = refusals
    assert place.published() == []


# --- two workflows on one branch ------------------------------------------------------------------


def second_on_the_branch(place, mode):
    """A worker, the run that holds the branch, and another one that somebody started there."""
    worker, gate, first = place.held_at_a_gate(
        worker_tasks.growing_patiently, jobs=2, PERAGO_SINGLE_WRITER=mode
    )
    given = {"workspace": place.workspace.model_dump()}
    second = place.start_raw(worker_tasks.growing_once, given)
    return worker, gate, first, second


def test_under_enforce_a_second_workflow_on_a_branch_fails_before_it_works(place):
    worker, gate, first, second = second_on_the_branch(place, "enforce")
    (attempt,) = place.ended(second).attempts
    assert attempt.status == "FAILED"
    assert attempt.reason.startswith("second_writer: ")
    assert first in attempt.reason
    assert place.published() == []
    gate.touch()
    assert attempts_of(place.completed(first)) == [("grow_patiently", "COMPLETED")]
    worker.stop()
    place.assert_nothing_left()


def test_under_warn_it_is_said_and_the_branch_keeps_what_was_accepted_first(place):
    worker, gate, first, second = second_on_the_branch(place, "warn")
    done = place.completed(second)
    warning = worker.wait_for("warning", run=second)["warning"]
    assert f"is written by another active workflow as well: {first}" in warning
    place.prod(first)
    gate.touch()
    worker.wait_for("attempt.ended", run=first, status="FAILED")
    assert place.history()[-1].id == done.output_ref
    assert place.published() == ["grow_once"]
