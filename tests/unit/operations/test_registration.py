"""What counts as a difference between a definition of ours and the server's."""

import pytest

from perago.errors import DefinitionDiffersError
from perago.operations.registration import DefinitionState, compare, differences, register

TASK = {"name": "songs.clean", "retryCount": 3, "inputKeys": ["params"]}
WORKFLOW = {
    "name": "songs",
    "version": 1,
    "tasks": [{"name": "songs.clean", "taskReferenceName": "clean", "inputParameters": {"a": 1}}],
}
# What a real server adds to them.
TASK_THERE = TASK | {
    "createTime": 1_794_803_453_066,
    "updateTime": 0,
    "createdBy": "",
    "runtimeMetadata": [],
    "inputTemplate": {},
    "rateLimitPerFrequency": 0,
    "rateLimitFrequencyInSeconds": 1,
    "taskStatusListenerEnabled": True,
    "enforceSchema": False,
}
WORKFLOW_THERE = WORKFLOW | {
    "createTime": 0,
    "restartable": True,
    "enforceSchema": True,
    "variables": {},
    "tasks": [WORKFLOW["tasks"][0] | {"optional": False, "joinOn": [], "taskDefinition": TASK}],
}


class Registered:
    """Definitions in a dictionary."""

    def __init__(self, *definitions):
        self.known = {one["name"]: one for one in definitions}
        self.pushed = []

    def task(self, name):
        return self.known.get(name)

    def workflow(self, name, version=None):
        found = self.known.get(name)
        return found if found and version in (None, found["version"]) else None

    def push_task(self, definition):
        self.pushed.append(definition["name"])
        self.known[definition["name"]] = definition

    push_workflow = push_task


def told(server, task=TASK):
    (found,) = compare(Registered(server), [task])
    return {one.field: (one.ours, one.theirs) for one in found.differences}


def test_what_the_server_adds_is_no_difference():
    found = compare(Registered(TASK_THERE, WORKFLOW_THERE), [TASK], [WORKFLOW])
    assert [one.state for one in found] == [DefinitionState.SAME, DefinitionState.SAME]


def test_a_field_with_another_value_is_told_with_both():
    assert told(TASK_THERE | {"retryCount": 0}) == {"retryCount": (3, 0)}


@pytest.mark.parametrize("field", ["concurrentExecLimit", "isolationGroupId", "enforceSchema"])
def test_a_field_that_somebody_set_at_the_server_is_a_difference(field):
    assert told(TASK_THERE | {field: 5}) == {field: (None, 5)}


def test_a_field_that_the_server_does_not_have_is_a_difference():
    assert told({"name": "songs.clean", "retryCount": 3}) == {"inputKeys": (["params"], None)}


def test_within_a_schema_the_server_may_note_things_but_not_change_any():
    ours = TASK | {"inputSchema": {"name": "x", "data": {"type": "object"}}}
    there = TASK_THERE | {"inputSchema": ours["inputSchema"] | {"createTime": 0}}
    assert told(there, ours) == {}
    changed = there | {"inputSchema": there["inputSchema"] | {"data": {"type": "string"}}}
    assert told(changed, ours) == {"inputSchema.data": ({"type": "object"}, {"type": "string"})}


def test_a_workflows_tasks_are_compared_one_by_one():
    (step,) = WORKFLOW_THERE["tasks"]
    there = WORKFLOW_THERE | {"tasks": [step | {"optional": True, "inputParameters": {"a": 2}}]}
    (found,) = compare(Registered(there), [], [WORKFLOW])
    assert [str(one) for one in found.differences] == [
        "tasks.clean.inputParameters is {'a': 2}, not {'a': 1}",
        "tasks.clean.optional is True, not None",
    ]


def test_other_tasks_are_told_by_their_references():
    there = WORKFLOW_THERE | {"tasks": []}
    (found,) = compare(Registered(there), [], [WORKFLOW])
    assert [str(one) for one in found.differences] == ["tasks is [], not ['clean']"]


def test_a_workflow_of_another_version_is_not_the_one():
    (found,) = compare(Registered(WORKFLOW_THERE | {"version": 2}), [], [WORKFLOW])
    assert found.state is DefinitionState.MISSING


def test_only_what_is_missing_or_differs_is_pushed_tasks_first():
    server = Registered(TASK_THERE | {"retryCount": 0}, {"name": "songs.rank"})
    done = register(server, [TASK, {"name": "songs.rank"}], [WORKFLOW])
    assert server.pushed == ["songs.clean", "songs"]
    assert [(one.state, one.pushed) for one in done] == [
        (DefinitionState.DIFFERS, True),
        (DefinitionState.SAME, False),
        (DefinitionState.MISSING, True),
    ]
    assert differences(server, [TASK], [WORKFLOW]) == []


def test_what_is_wrong_is_told_with_its_fix():
    server = Registered(TASK_THERE | {"retryCount": 0})
    differs, missing = differences(server, [TASK, {"name": "songs.rank"}])
    assert isinstance(differs, DefinitionDiffersError)
    assert "task 'songs.clean'" in differs.message
    assert "retryCount is 0, not 3" in differs.message
    assert "task 'songs.rank' isn't registered" in missing.message
    assert "perago register" in missing.fix
