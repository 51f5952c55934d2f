"""A workflow definition is refused where one branch could be written twice at a time."""

from __future__ import annotations

import pytest

from perago.errors import TaskDefinitionError, UnsafeWorkflowError
from perago.operations.workflow_check import check_workflow, read_definition
from perago.operations.workflow_check.workspace_rule import Effect

FIRST = "${workflow.input.workspace}"
VARIABLE = "${workflow.variables.workspace}"


def of(reference):
    return f"${{{reference}.output.workspace}}"


def task(reference, workspace=None, *, type="SIMPLE", **fields):  # noqa: A002 - Conductor's name
    inputs = {"params": {}} | ({"workspace": workspace} if workspace else {})
    return {
        "name": reference,
        "taskReferenceName": reference,
        "type": type,
        "inputParameters": inputs | fields.pop("inputs", {}),
        **fields,
    }


def system(kind, reference, inputs=None, **fields):
    return task(reference, type=kind, inputs=inputs or {}, **fields)


def fork(*branches, reference="fork"):
    return system("FORK_JOIN", reference, forkTasks=[list(branch) for branch in branches])


def join(*references, reference="join"):
    return system("JOIN", reference, joinOn=list(references))


def switch(reference="choose", default=(), **cases):
    listed = {name: list(tasks) for name, tasks in cases.items()}
    return system("SWITCH", reference, decisionCases=listed, defaultCase=list(default))


def loop(*tasks, reference="again"):
    return system("DO_WHILE", reference, loopOver=list(tasks))


def remember(workspace, reference):
    return system("SET_VARIABLE", reference, {"workspace": workspace})


def sub(reference, name="inner", inputs=None, **fields):
    given = {"workspace": FIRST} if inputs is None else inputs
    called = {"name": name, **fields.pop("param", {})}
    return system("SUB_WORKFLOW", reference, given, subWorkflowParam=called, **fields)


def start(reference, name="inner", workspace=FIRST):
    called = {"name": name, "input": {"workspace": workspace}}
    return system("START_WORKFLOW", reference, {"startWorkflow": called})


def workflow(*tasks, name="songs", outputs=None):
    return {
        "name": name,
        "version": 1,
        "tasks": list(tasks),
        **({"outputParameters": outputs} if outputs else {}),
    }


def at(branch, ref, repository="songs"):
    return {"repository": repository, "branch": branch, "ref_type": "commit", "ref": ref}


READER = {"look": Effect.READS}


def check(*tasks, effects=None, others=(), outputs=None):
    at_hand = {one["name"]: read_definition(one) for one in others}
    definition = read_definition(workflow(*tasks, outputs=outputs))
    return check_workflow(definition, effects, lambda name, _version: at_hand.get(name))


def problems(*tasks, **more):
    return {one.task: one.message for one in check(*tasks, **more).problems}


def assert_safe(*tasks, **more):
    found = check(*tasks, **more)
    assert found.problems == ()
    assert found.warnings == ()


# --- one after the other --------------------------------------------------------------------------


def test_a_chain_in_which_each_takes_what_the_one_before_put_out_is_safe():
    assert_safe(task("a", FIRST), task("b", of("a")), task("c", of("b")))


def test_tasks_without_a_workspace_may_stand_anywhere():
    assert_safe(task("x"), task("a", FIRST), task("y"), task("b", of("a")), task("z"))


def test_a_task_that_skips_the_one_before_it_is_refused_with_what_it_should_take():
    (problem,) = check(task("a", FIRST), task("b", of("a")), task("c", of("a"))).problems
    assert (problem.workflow, problem.task) == ("songs", "c")
    assert (problem.takes, problem.should_take) == (of("a"), of("b"))
    assert "b wrote before it" in problem.message
    assert of("b") in problem.fix


def test_a_second_task_that_takes_the_workflows_input_again_is_refused():
    (problem,) = check(task("a", FIRST), task("b", FIRST)).problems
    assert (problem.takes, problem.should_take) == (FIRST, of("a"))


def test_one_mistake_is_one_problem():
    assert list(problems(task("a", FIRST), task("b", FIRST), task("c", of("b")))) == ["b"]


def test_a_task_that_takes_what_comes_later_is_refused():
    found = problems(task("a", of("b")), task("b", of("a")))
    assert "b hasn't run" in found["a"]


def test_what_a_task_was_given_is_older_than_what_it_put_out():
    assert list(problems(task("a", FIRST), task("b", "${a.input.workspace}"))) == ["b"]


def test_brackets_mean_the_same_as_dots():
    assert_safe(task("a", "${workflow.input['workspace']}"), task("b", "${a.output['workspace']}"))


def test_the_workflow_must_put_out_the_newest_workspace():
    chain = (task("a", FIRST), task("b", of("a")))
    assert_safe(*chain, outputs={"workspace": of("b"), "results": "${a.output.result}"})
    (problem,) = check(*chain, outputs={"workspace": of("a")}).problems
    assert problem.task == "outputParameters"
    assert (problem.takes, problem.should_take) == (of("a"), of("b"))


# --- what tasks are known to do -------------------------------------------------------------------


def test_a_read_only_task_puts_out_what_it_took():
    chain = (task("a", FIRST), task("look", of("a")), task("b", of("look")))
    assert_safe(*chain, effects=READER)
    assert_safe(*chain[:2], task("b", of("a")), effects=READER)
    assert list(problems(*chain[:2], task("b", of("a")))) == ["b"], "nobody said it only reads"


def test_a_read_only_task_also_takes_the_newest_workspace():
    (problem,) = check(task("a", FIRST), task("look", FIRST), effects=READER).problems
    assert (problem.task, problem.should_take) == ("look", of("a"))


def test_a_read_only_task_may_be_pinned_to_a_commit_or_read_another_branch():
    assert_safe(
        task("a", FIRST),
        task("look", at("main", "4f2a", repository="catalogue")),
        effects=READER,
    )


def test_a_task_known_to_have_no_workspace_must_not_be_given_one():
    found = problems(task("count", FIRST), effects={"count": Effect.NONE})
    assert "count takes none" in found["count"]


def test_a_task_known_to_have_a_workspace_must_be_given_one():
    (problem,) = check(
        task("a", FIRST), task("b"), effects={"b": Effect.WRITES, "a": Effect.WRITES}
    ).problems
    assert (problem.task, problem.takes, problem.should_take) == ("b", "no workspace", of("a"))
    assert problem.message == "b takes no workspace"


def test_people_and_tasks_of_other_kinds_write_what_they_are_given():
    chain = (task("a", FIRST), task("review", of("a"), type="HUMAN"))
    assert list(problems(*chain, task("b", of("a")))) == ["b"]
    assert_safe(*chain, task("b", of("review")), task("c", of("b"), type="MY_OWN_TYPE"))


def test_a_dynamic_task_is_the_one_it_names_or_any():
    def named(name):
        return task(
            "any",
            FIRST,
            type="DYNAMIC",
            dynamicTaskNameParam="which",
            inputs={"workspace": FIRST, "which": name},
        )

    assert_safe(named("look"), task("b", FIRST), effects=READER)
    assert list(problems(named("${workflow.input.which}"), task("b", FIRST), effects=READER)) == [
        "b"
    ]


def test_tasks_that_only_tell_others_about_a_workspace_write_nothing():
    body = {"http_request": {"body": {"workspace": FIRST}}, "workspace": FIRST}
    assert_safe(system("HTTP", "tell", body), task("a", FIRST))


# --- workspaces made of parts ---------------------------------------------------------------------


def test_a_workspace_may_be_put_together_field_by_field():
    parts = at("${workflow.input.workspace.branch}", "${a.output.workspace.ref}")
    parts["repository"] = "${workflow.input.workspace.repository}"
    assert_safe(task("a", FIRST), task("b", parts), task("c", of("b")))
    old = parts | {"ref": "${workflow.input.workspace.ref}"}
    assert list(problems(task("a", FIRST), task("b", old))) == ["b"]


def test_each_branch_has_a_chain_of_its_own():
    assert_safe(
        task("a", at("one", "${workflow.input.one}")),
        task("b", at("two", "${workflow.input.two}")),
        task("c", of("a")),
        task("d", of("b")),
    )


def test_a_writer_may_not_start_from_a_commit_the_definition_names():
    (problem,) = check(task("a", at("main", "4f2a"))).problems
    assert "head once at most" in problem.message
    assert problem.should_take == FIRST


def test_a_workspace_without_a_branch_is_none():
    found = problems(task("a", {"repository": "songs", "ref": "${workflow.input.ref}"}))
    assert "it lacks branch" in found["a"]


@pytest.mark.parametrize("workspace", ["main", at("main", {"id": "4f2a"}), at({}, "4f2a"), [1], 7])
def test_what_is_no_workspace_is_said_to_be_none(workspace):
    (message,) = problems(task("a", workspace)).values()
    assert "is no workspace" in message or "nothing shows" in message


def test_starting_one_branch_from_another_ones_commit_is_a_doubt():
    found = check(task("a", FIRST), task("b", at("report", "${a.output.workspace.ref}")))
    assert found.problems == ()
    assert "unless it is the head by then" in found.warnings[0]


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        ("INLINE", {"evaluatorType": "graaljs", "expression": "$.ws"}),
        ("INLINE", {"expression": "(function() { return $.ws; })();"}),
        ("LAMBDA", {"scriptExpression": "return $.ws;"}),
        ("JSON_JQ_TRANSFORM", {"queryExpression": ".ws"}),
    ],
)
def test_a_script_that_passes_a_workspace_through_is_followed(kind, inputs):
    def passing(workspace):
        return (
            task("a", FIRST),
            system(kind, "pass", inputs | {"ws": workspace}),
            task("b", "${pass.output.result}"),
        )

    assert_safe(*passing(of("a")))
    assert list(problems(*passing(FIRST))) == ["b"]


@pytest.mark.parametrize("script", ["$.ws.older || $.ws", "f($.ws)", "!$.ws", "$.ws; $.other"])
def test_a_workspace_that_a_script_computes_can_not_be_followed(script):
    computing = system("INLINE", "make", {"expression": script, "ws": of("a")})
    found = problems(task("a", FIRST), computing, task("b", "${make.output.result}"))
    assert "nothing shows which commit that is" in found["b"]


# --- forks ----------------------------------------------------------------------------------------


def test_two_branches_of_a_fork_that_write_one_branch_are_refused():
    found = problems(
        task("a", FIRST), fork([task("b", of("a"))], [task("c", of("a"))]), join("b", "c")
    )
    assert list(found) == ["c"]
    assert "c and b may write the branch of ${workflow.input.workspace}" in found["c"]
    assert "two branches of the fork fork" in found["c"]


def test_a_writer_deep_in_a_branch_of_a_fork_is_found():
    deep = switch(full=[loop(task("c", FIRST))])
    assert "c" in problems(fork([task("b", FIRST)], [deep]), join("b", "choose"))


def test_readers_may_run_beside_one_writer():
    assert_safe(
        task("a", FIRST),
        fork([task("b", of("a")), task("b2", of("b"))], [task("look", of("a"))]),
        join("b2", "look"),
        task("c", of("b2")),
        effects=READER,
    )


def test_branches_of_a_fork_may_write_different_branches():
    assert_safe(
        fork(
            [task("b", at("one", "${workflow.input.one}"))],
            [task("c", at("two", "${workflow.input.two}"))],
        ),
        join("b", "c"),
        task("d", of("b")),
        task("e", "${join.output.c.workspace}"),
    )


def test_branches_that_only_might_be_one_are_a_doubt():
    found = check(
        fork([task("b", "${workflow.input.one}")], [task("c", "${workflow.input.two}")]),
        join("b", "c"),
    )
    assert found.problems == ()
    assert "nothing shows that these are two different branches" in found.warnings[0]


def test_after_the_join_the_writers_output_counts():
    writer = (task("a", FIRST), fork([task("b", of("a"))], [task("x")]), join("b", "x"))
    assert_safe(*writer, task("c", of("b")))
    assert list(problems(*writer, task("c", of("a")))) == ["c"]


@pytest.mark.parametrize("awaited", [(), ("x",), ("b", "x")])
def test_a_branch_that_the_join_does_not_wait_for_goes_on_beside_what_follows(awaited):
    found = problems(
        fork([task("b", FIRST), task("b2", of("b"))], [task("x")]),
        join(*awaited),
        task("c", of("b")),
    )
    assert "nothing waits for b" in found["c"]


def test_nobody_needs_to_wait_for_a_branch_that_is_the_only_writer():
    assert_safe(fork([task("b", FIRST), task("b2", of("b"))], [task("x")]), join("x"), task("y"))


def test_values_kept_from_before_a_fork_are_old_after_it():
    found = problems(
        task("a", FIRST),
        remember(of("a"), "keep"),
        fork([task("b", of("a"))], [task("look", of("a"))]),
        join("b", "look"),
        task("c", of("look")),
        effects=READER,
    )
    assert list(found) == ["c"]


def test_a_variable_set_in_two_branches_of_a_fork_may_be_either():
    found = problems(
        task("a", FIRST),
        fork([remember(of("a"), "one")], [remember(FIRST, "two")]),
        join("one", "two"),
        task("b", VARIABLE),
    )
    assert list(found) == ["b"]


def test_a_variable_that_another_branch_of_the_fork_sets_may_change_under_a_task():
    setting = [task("b", FIRST), remember(of("b"), "one"), task("c", VARIABLE)]
    assert_safe(fork(setting, [task("x")]), join("c", "x"))
    found = problems(fork(setting, [remember(FIRST, "two")]), join("c", "two"))
    assert "set at the same time" in found["c"]


# --- dynamic forks --------------------------------------------------------------------------------


def dynamic(inputs):
    return (
        system("FORK_JOIN_DYNAMIC", "many", inputs, dynamicForkTasksParam="tasks"),
        join(),
    )


def test_a_dynamic_fork_in_a_workflow_with_workspaces_is_refused():
    found = problems(
        task("a", FIRST), *dynamic({"tasks": "${plan.output.tasks}", "inputs": {}}), task("plan")
    )
    assert "decides only when it runs" in found["many"]


def test_a_dynamic_fork_of_a_task_known_to_write_nothing_is_safe():
    forked = dynamic({"forkTaskName": "look", "forkTaskInputs": [{"workspace": of("a")}]})
    assert_safe(task("a", FIRST), *forked, effects=READER)
    assert "many" in problems(task("a", FIRST), *forked)


def test_a_dynamic_fork_of_a_workflow_without_workspaces_is_safe():
    forked = dynamic({"forkTaskWorkflow": "inner", "forkTaskInputs": "${workflow.input.all}"})
    assert_safe(task("a", FIRST), *forked, others=[workflow(task("x"), name="inner")])
    assert "many" in problems(
        task("a", FIRST), *forked, others=[workflow(task("x", FIRST), name="inner")]
    )


def test_a_dynamic_fork_without_any_workspace_about_is_none_of_our_business():
    assert_safe(task("plan"), *dynamic({"tasks": "${plan.output.tasks}"}))


# --- choices --------------------------------------------------------------------------------------


def test_every_case_is_a_path_of_its_own():
    assert_safe(task("a", FIRST), switch(full=[task("b", of("a"))], quick=[task("c", of("a"))]))
    assert list(problems(task("a", FIRST), switch(full=[task("b", FIRST)]))) == ["b"]


@pytest.mark.parametrize("taken", [of("a"), of("b")])
def test_after_a_choice_no_single_reference_stands_for_both_ways(taken):
    chain = (task("a", FIRST), switch(full=[task("b", of("a"))]), task("c", taken))
    (problem,) = check(*chain).problems
    assert problem.task == "c"
    assert set(problem.should_take.partition(", depending")[0].split(" or ")) == {of("a"), of("b")}
    assert "SET_VARIABLE" in problem.fix


def test_a_variable_set_on_every_path_stands_for_both_ways():
    chain = (
        task("a", FIRST),
        remember(of("a"), "before"),
        switch(full=[task("b", of("a")), remember(of("b"), "after")]),
    )
    assert_safe(*chain, task("c", VARIABLE))
    forgotten = (task("a", FIRST), remember(of("a"), "before"), switch(full=[task("b", of("a"))]))
    assert list(problems(*forgotten, task("c", VARIABLE))) == ["c"]


def test_an_exclusive_join_stands_for_both_ways():
    chosen = switch(full=[task("b", of("a"))], default=[task("c", of("a"))])
    either = system("EXCLUSIVE_JOIN", "either", joinOn=["b", "c"])
    assert_safe(task("a", FIRST), chosen, either, task("d", of("either")))


def test_a_way_that_ends_the_workflow_does_not_go_on():
    stop = system("TERMINATE", "stop", {"terminationStatus": "COMPLETED"})
    assert_safe(
        task("a", FIRST),
        switch(full=[task("b", of("a")), stop]),
        task("c", of("a")),
    )


def test_a_choice_among_readers_changes_nothing():
    chain = (task("a", FIRST), switch(full=[task("look", of("a"))]), task("b", of("a")))
    assert_safe(*chain, effects=READER)


def test_old_style_decisions_are_choices_too():
    chosen = switch(full=[task("b", FIRST)]) | {"type": "DECISION"}
    assert list(problems(chosen, task("c", FIRST))) == ["c"]


def test_too_many_paths_are_refused_rather_than_guessed():
    choices = [
        switch(f"choose{n}", full=[task(f"t{n}", at(f"b{n}", "${workflow.input.ref}"))])
        for n in range(9)
    ]
    with pytest.raises(UnsafeWorkflowError, match="too many to follow"):
        check(*choices)


# --- optional tasks -------------------------------------------------------------------------------


def test_the_output_of_an_optional_task_may_be_missing():
    found = problems(task("a", FIRST, optional=True), task("b", of("a")))
    assert "a is optional" in found["b"]


def test_what_came_before_an_optional_writer_may_be_old():
    assert list(problems(task("a", FIRST, optional=True), task("b", FIRST))) == ["b"]


def test_an_optional_reader_or_last_writer_is_safe():
    assert_safe(task("look", FIRST, optional=True), task("b", FIRST), effects=READER)
    assert_safe(task("a", FIRST), task("b", of("a"), optional=True))


# --- loops ----------------------------------------------------------------------------------------


def test_a_loop_whose_first_task_takes_the_same_each_time_is_refused():
    (problem,) = check(task("a", FIRST), loop(task("b", of("a")), task("c", of("b")))).problems
    assert problem.task == "b"
    assert problem.should_take == f"{of('a')} or {of('c')}, depending on the path"
    assert "SET_VARIABLE" in problem.fix


def test_the_loops_own_last_output_is_missing_in_the_first_round():
    found = problems(task("a", FIRST), loop(task("b", of("c")), task("c", of("b"))))
    assert "c hasn't run" in found["b"]


def test_a_loop_that_carries_the_workspace_in_a_variable_is_safe():
    assert_safe(
        remember(FIRST, "begin"),
        loop(task("a", VARIABLE), task("b", of("a")), remember(of("b"), "next")),
        task("c", of("b")),
        task("d", of("c")),
    )


def test_a_variable_that_lags_a_round_behind_is_refused():
    lagging = system("SET_VARIABLE", "next", {"workspace": VARIABLE, "newest": of("a")})
    assert list(problems(remember(FIRST, "begin"), loop(task("a", VARIABLE), lagging))) == ["a"]


def test_a_loop_of_readers_is_safe():
    assert_safe(task("a", FIRST), loop(task("look", of("a"))), task("b", of("a")), effects=READER)


def test_a_text_that_grows_in_every_round_comes_to_an_end():
    grow = system("SET_VARIABLE", "grow", {"name": "x${workflow.variables.name}"})
    assert_safe(loop(grow), task("a", FIRST))


# --- workflows in workflows -----------------------------------------------------------------------

INNER = workflow(
    task("one", FIRST), task("two", of("one")), name="inner", outputs={"workspace": of("two")}
)


def test_a_sub_workflow_is_a_step_of_the_chain():
    chain = (task("a", FIRST), sub("s", inputs={"workspace": of("a")}))
    assert_safe(*chain, task("b", of("s")), others=[INNER])
    (problem,) = check(*chain, task("b", of("a")), others=[INNER]).problems
    assert (problem.task, problem.should_take) == ("b", of("s"))


def test_a_sub_workflow_written_in_place_is_followed_like_one_by_name():
    called = sub("s", "other", param={"workflowDefinition": INNER})
    assert_safe(called, task("b", of("s")))


def test_what_is_wrong_inside_a_sub_workflow_is_found_there():
    inner = workflow(task("one", FIRST), task("two", FIRST), name="inner")
    (problem,) = check(sub("s"), others=[inner]).problems
    assert (problem.workflow, problem.task, problem.should_take) == ("songs/s", "two", of("one"))


def test_a_sub_workflow_handed_an_old_workspace_is_refused_where_it_takes_it():
    (problem,) = check(task("a", FIRST), sub("s"), others=[INNER]).problems
    assert (problem.workflow, problem.task) == ("songs/s", "one")


def test_without_declared_outputs_a_sub_workflow_puts_out_what_its_last_task_does():
    inner = {key: value for key, value in INNER.items() if key != "outputParameters"}
    assert_safe(sub("s"), task("b", of("s")), others=[inner])


def test_a_sub_workflow_that_puts_out_an_old_workspace_is_refused():
    stale = INNER | {"outputParameters": {"workspace": of("one")}}
    assert ("songs/s", "outputParameters") in {
        (one.workflow, one.task) for one in check(sub("s"), others=[stale]).problems
    }


def test_a_sub_workflow_ended_early_puts_out_what_its_end_says():
    stop = system(
        "TERMINATE",
        "stop",
        {"terminationStatus": "COMPLETED", "workflowOutput": {"workspace": of("one")}},
    )
    inner = INNER | {"tasks": [task("one", FIRST), switch(enough=[stop]), task("two", of("one"))]}
    assert_safe(sub("s"), task("b", of("s")), others=[inner])


def test_sub_workflows_beside_each_other_may_not_write_one_branch():
    found = problems(fork([sub("s")], [sub("t")]), join("s", "t"), others=[INNER])
    assert any("at the same time" in message for message in found.values())


def test_a_sub_workflow_beside_a_writer_may_not_write_its_branch():
    found = problems(fork([sub("s")], [task("b", FIRST)]), join("s", "b"), others=[INNER])
    assert "at the same time" in found["b"]


def test_a_sub_workflow_that_is_not_at_hand_is_refused_if_it_gets_a_workspace():
    found = check(sub("s"), task("b", of("s")))
    assert [one.task for one in found.problems] == ["s"]
    assert "another --workflow FILE" in found.problems[0].fix
    (doubt,) = check(sub("s", inputs={})).warnings
    assert "nothing shows what that writes" in doubt


def test_a_workflow_that_calls_itself_is_not_followed_for_ever():
    found = problems(sub("s", "songs"))
    assert "which it is a part of itself" in found["s"]
    inner = workflow(sub("s", "inner"), name="inner")
    assert "which it is a part of itself" in problems(sub("s"), others=[inner])["s"]


def test_nothing_shows_where_an_optional_sub_workflow_left_the_branch():
    for taken in (FIRST, of("s")):
        found = problems(sub("s", optional=True), task("b", taken), others=[INNER])
        assert list(found) == ["b"]


def test_a_started_workflow_runs_beside_all_that_follows():
    found = problems(start("s"), task("b", FIRST), others=[INNER])
    assert "nothing waits for" in found["b"]
    assert_safe(start("s"), task("x"), others=[INNER])
    assert_safe(start("s"), task("look", FIRST), others=[INNER], effects=READER)


def test_a_started_workflow_may_not_write_what_this_one_writes():
    found = problems(task("a", FIRST), start("s", workspace=of("a")), others=[INNER])
    assert "second workflow" in found["s"]


def test_two_started_workflows_may_not_write_one_branch():
    assert "one" in problems(start("s"), start("t"), others=[INNER])


def test_a_workflow_started_in_a_loop_meets_itself():
    found = problems(loop(start("s")), others=[INNER])
    assert "at the same time: nothing waits for" in found["one"]


def test_a_started_workflow_that_is_not_at_hand_is_refused():
    assert "definition is unknown" in problems(start("s"))["s"]


# --- definitions that are none --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "not a workflow definition"),
        ({"tasks": []}, "not a workflow definition"),
        ({"name": "songs", "tasks": {}}, "tasks is {}"),
        ({"name": "songs", "tasks": [3]}, "tasks[0] is 3"),
        ({"name": "songs", "tasks": [{}]}, "tasks[0].taskReferenceName is None"),
        (workflow(task("a") | {"inputParameters": []}), "tasks[0].inputParameters is []"),
        (workflow(fork([task("a"), 4])), "tasks[0].forkTasks[0][1] is 4"),
        (workflow(switch(full=[4])), "tasks[0].decisionCases.full[0] is 4"),
        (workflow(task("a"), task("a")), "two tasks have the taskReferenceName 'a'"),
    ],
)
def test_what_is_no_definition_is_told_by_its_field(document, said):
    with pytest.raises(TaskDefinitionError) as refused:
        read_definition(document)
    assert said in refused.value.message
