"""Registered workflows are checked by name, and Conductor runs them as the check takes it to."""

import uuid

import pytest
from support.processes import until

from perago.adapters.conductor.http import api_path

WORKSPACE = {"repository": "songs", "branch": "main", "ref_type": "commit", "ref": "a0"}
FIRST = "${workflow.input.workspace}"


@pytest.fixture
def unique():
    return f"check_{uuid.uuid4().hex[:12]}"


@pytest.fixture
def check(perago, conductor_server, monkeypatch):
    """``perago check`` with this Conductor."""

    def run(*arguments):
        monkeypatch.setenv("CONDUCTOR_SERVER_URL", conductor_server)
        return perago("check", *arguments, "--json")

    return run


@pytest.fixture
def played(conductor_bench, unique):
    """Run a workflow of Conductor's own tasks to its end; its tasks by reference."""

    def play(*tasks):
        definition = workflow(unique, *tasks)
        order = {"name": unique, "workflowDef": definition, "input": {"workspace": WORKSPACE}}
        run = conductor_bench.api.send("POST", api_path("workflow"), order, doing="starting")

        def ended():
            found = conductor_bench.api.find(
                api_path("workflow", run, includeTasks="true"), doing="…"
            )
            return found if found["status"] != "RUNNING" else None

        found = until(ended, "the workflow to end", seconds=60)
        assert found["status"] == "COMPLETED", found.get("reasonForIncompletion")
        return {one["referenceTaskName"]: one for one in found["tasks"]}

    return play


def workflow(name, *tasks):
    return {
        "name": name,
        "version": 1,
        "schemaVersion": 2,
        "ownerEmail": "tests@example.com",
        "tasks": list(tasks),
        "timeoutPolicy": "ALERT_ONLY",
        "timeoutSeconds": 0,
    }


def node(kind, reference, inputs=None, **fields):
    named = {"name": reference, "taskReferenceName": reference, "type": kind}
    return {**named, "inputParameters": inputs or {}, **fields}


def script(reference, query=".taken", **inputs):
    """Of the two languages the one that starts at once, however busy the machine is."""
    return node("JSON_JQ_TRANSFORM", reference, {"queryExpression": query, **inputs})


def writer(reference, workspace=FIRST):
    return node("SIMPLE", reference, {"workspace": workspace, "params": {}})


# --- by name --------------------------------------------------------------------------------------


def test_a_registered_workflow_is_checked_by_its_name_and_version(check, conductor_bench, unique):
    conductor_bench.definitions.push_workflow(workflow(unique, writer("one")))
    side_by_side = [node("FORK_JOIN", "f", forkTasks=[[writer("one")], [writer("two")]])]
    joined = node("JOIN", "j", joinOn=["one", "two"])
    second = workflow(unique, *side_by_side, joined) | {"version": 2}
    conductor_bench.definitions.push_workflow(second)
    assert check("--workflow", f"{unique}:1").code == 0
    answer = check("--workflow", unique)
    assert answer.code == 2
    (one,) = answer.json["workflows"]
    assert (one["version"], one["error"]["code"]) == (2, "unsafe_workflow")


def test_a_sub_workflow_is_looked_up_on_the_server(check, conductor_bench, unique):
    inner = f"{unique}_inner"
    conductor_bench.definitions.push_workflow(workflow(inner, writer("one"), writer("two")))
    called = node("SUB_WORKFLOW", "s", {"workspace": FIRST}, subWorkflowParam={"name": inner})
    conductor_bench.definitions.push_workflow(workflow(unique, called))
    (one,) = check("--workflow", unique).json["workflows"]
    (problem,) = one["problems"]
    assert (problem["workflow"], problem["task"]) == (f"{unique}/s", "two")


def test_a_name_that_is_not_registered_is_said_to_be_unknown(check, unique):
    answer = check("--workflow", unique)
    assert answer.code == 2
    assert (
        f"Conductor has no workflow '{unique}'" in answer.json["workflows"][0]["error"]["message"]
    )


# --- as the check takes it to ---------------------------------------------------------------------


def test_a_task_that_has_not_run_has_no_output(played):
    chosen = node(
        "SWITCH",
        "choose",
        {"which": "other"},
        evaluatorType="value-param",
        expression="which",
        decisionCases={"one": [script("one", taken=FIRST)]},
        defaultCase=[script("other", taken=FIRST)],
    )
    either = node("EXCLUSIVE_JOIN", "either", joinOn=["one", "other"])
    last = script("last", taken="${one.output.result}", both="${either.output.result}")
    inputs = played(chosen, either, last)["last"]["inputData"]
    assert (inputs["taken"], inputs["both"]) == (None, WORKSPACE)


def test_in_a_loop_a_reference_means_the_latest_round_and_a_variable_carries_over(played):
    grow = '{ref: (.taken.ref + "x"), before: .before}'
    body = [
        script("grow", grow, taken="${workflow.variables.w}", before="${grow.output.result.ref}"),
        node("SET_VARIABLE", "keep", {"w": "${grow.output.result}"}),
    ]
    rounds = "if ($.again['iteration'] < 2) { true; } else { false; }"
    tasks = played(
        node("SET_VARIABLE", "begin", {"w": FIRST}),
        node("DO_WHILE", "again", loopCondition=rounds, loopOver=body),
        script("last", taken="${grow.output.result}"),
    )
    assert tasks["grow__1"]["outputData"]["result"] == {"ref": "a0x", "before": None}
    assert tasks["grow__2"]["outputData"]["result"] == {"ref": "a0xx", "before": "a0x"}
    assert tasks["last"]["outputData"]["result"]["ref"] == "a0xx"


@pytest.mark.parametrize("awaited", [[], ["one", "other"]])
def test_a_join_waits_for_the_tasks_it_names_and_no_other(played, awaited):
    slow = [script("one", taken=FIRST), node("WAIT", "slow", {"duration": "2 seconds"})]
    tasks = played(
        node("FORK_JOIN", "fork", forkTasks=[slow, [script("other", taken=FIRST)]]),
        node("JOIN", "join", joinOn=awaited),
        script("after", taken=FIRST),
    )
    assert tasks["after"]["endTime"] < tasks["slow"]["endTime"]


def test_an_optional_task_that_fails_leaves_no_output_behind(played):
    tasks = played(
        script("fails", "error") | {"optional": True},
        script("last", taken="${fails.output.workspace}"),
    )
    assert tasks["fails"]["status"] == "COMPLETED_WITH_ERRORS"
    assert tasks["last"]["inputData"]["taken"] is None


def test_a_sub_workflow_without_declared_outputs_puts_out_what_its_last_task_does(played, unique):
    inner = workflow(f"{unique}_inner", script("a", taken=FIRST), script("b", taken="${a.output}"))
    called = {"name": inner["name"], "version": 1, "workflowDefinition": inner}
    tasks = played(node("SUB_WORKFLOW", "s", {"workspace": FIRST}, subWorkflowParam=called))
    assert tasks["s"]["outputData"]["result"]["result"] == WORKSPACE


def test_a_script_that_only_names_an_input_puts_it_out_as_it_is(played):
    assert played(script("jq", taken=FIRST))["jq"]["outputData"]["result"] == WORKSPACE
