"""What `perago check --workflow` lets through runs serially, however its choices fall."""

from __future__ import annotations

import random
from pathlib import Path

from hypothesis import assume, event, given
from hypothesis import strategies as st
from pydantic import BaseModel

from perago import WorkspaceSpec, pipeline, task
from perago.adapters.conductor.definitions import workflow_definition
from perago.operations.workflow_check import check_workflow, effects_of, read_definition

FIRST = "${workflow.input.workspace}"
VARIABLE = "${workflow.variables.workspace}"


class Nothing(BaseModel):
    pass


@task(name="check.write", owner_email="a@example.com", workspace=WorkspaceSpec())
def write(_files: Path, params: Nothing) -> Nothing:
    return params


@task(name="check.read", owner_email="a@example.com", workspace=WorkspaceSpec(read_only=True))
def read(_files: Path, params: Nothing) -> Nothing:
    return params


@task(name="check.think", owner_email="a@example.com")
def think(params: Nothing) -> Nothing:
    return params


EFFECTS = effects_of([write, read, think])

chains = st.lists(st.sampled_from([write, read, think]), min_size=1, max_size=8)


def output_of(reference):
    return f"${{{reference}.output.workspace}}"


def refused(definition, effects=None):
    return check_workflow(read_definition(definition), effects).problems != ()


# --- pipelines ------------------------------------------------------------------------------------


@given(chains)
def test_every_compiled_pipeline_is_safe_whether_its_tasks_are_known_or_not(steps):
    definition = workflow_definition(pipeline("songs", steps))
    assert not refused(definition, EFFECTS)
    assert not refused(definition)


@given(chains, st.data())
def test_a_compiled_pipeline_with_one_other_workspace_in_it_is_refused(steps, data):
    definition = workflow_definition(pipeline("songs", steps))
    takers = [one for one in definition["tasks"] if "workspace" in one["inputParameters"]]
    assume(takers)
    commits = {FIRST: FIRST}
    for one in takers:
        mine = output_of(one["taskReferenceName"])
        commits[mine] = mine if one["name"] == "check.write" else commits[_taken(one)]
    swapped = data.draw(st.sampled_from(takers))
    other = data.draw(st.sampled_from(sorted(commits)))
    assume(other != _taken(swapped))
    same_commit = commits[other] == commits[_taken(swapped)] and _runs_before(
        other, swapped, takers
    )
    swapped["inputParameters"]["workspace"] = other
    assert refused(definition), "each of them may write"
    assert refused(definition, EFFECTS) == (not same_commit)


def _taken(one):
    return one["inputParameters"]["workspace"]


def _runs_before(expression, one, takers):
    before = takers[: takers.index(one)]
    return expression in (FIRST, *(output_of(each["taskReferenceName"]) for each in before))


# --- any workflow ---------------------------------------------------------------------------------


class Scribe:
    """Writes definitions, mostly sensible ones."""

    def __init__(self, draw):
        self._draw, self._count = draw, 0

    def tasks(self, taken, depth):
        """Some tasks in a row, and the expression for the workspace they leave."""
        written = []
        for _ in range(self._draw(st.integers(0 if depth else 1, 3))):
            more, taken = self._task(taken, depth)
            written += more
        return written, taken

    def _task(self, taken, depth):
        kinds = ["write", "write", "read", "set"] + ["fork", "switch", "loop"] * (depth < 2)
        kind = self._draw(st.sampled_from(kinds))
        reference = self._reference(kind)
        if kind in ("write", "read"):
            return [self._worker(reference, kind, taken)], output_of(reference)
        if kind == "set":
            return [_node("SET_VARIABLE", reference, {"workspace": taken})], VARIABLE
        if kind == "loop":
            body, after = self.tasks(taken, depth + 1)
            return [_node("DO_WHILE", reference, loopOver=body)], after
        (one, after_one), (other, after_other) = (self.tasks(taken, depth + 1) for _ in range(2))
        after = self._draw(st.sampled_from([after_one, after_other, taken]))
        if kind == "switch":
            cases = {"decisionCases": {"one": one}, "defaultCase": other}
            return [_node("SWITCH", reference, **cases)], after
        last = [each[-1]["taskReferenceName"] for each in (one, other) if each]
        waited_for = last if self._draw(st.integers(0, 4)) else last[:1]
        join = _node("JOIN", self._reference("join"), joinOn=waited_for)
        return [_node("FORK_JOIN", reference, forkTasks=[one, other]), join], after

    def _worker(self, reference, kind, taken):
        takes = (
            taken
            if self._draw(st.integers(0, 9))
            else self._draw(st.sampled_from([FIRST, VARIABLE]))
        )
        optional = self._draw(st.integers(0, 9)) == 0
        node = _node("SIMPLE", reference, {"workspace": takes}, optional=optional)
        return node | {"name": f"check.{kind}"}

    def _reference(self, kind):
        self._count += 1
        return f"{kind}{self._count}"


def _node(kind, reference, inputs=None, **fields):
    named = {"name": reference, "taskReferenceName": reference, "type": kind}
    return {**named, "inputParameters": inputs or {}, **fields}


@st.composite
def workflows(draw):
    begin = [_node("SET_VARIABLE", "begin", {"workspace": FIRST})] * draw(st.integers(0, 1))
    tasks, _ = Scribe(draw).tasks(VARIABLE if begin else FIRST, 0)
    return {"name": "any", "version": 1, "tasks": begin + tasks}


class Conductor:
    """Runs a definition as the server does, on one branch whose commits are numbers."""

    def __init__(self, chance):
        self._chance = chance
        self.head, self._commits = 0, 0
        self._outputs, self._variable, self._ended = {}, None, set()
        self.complaint = None

    def run(self, tasks):
        """One task at a time: whatever runs in parallel takes turns at random."""
        strands = [self._strand(tasks)]
        while strands:
            strand = self._chance.choice(strands)
            begun = next(strand, None)
            if begun is None:
                strands.remove(strand)
            else:
                strands += begun

    def _strand(self, tasks):
        for one in tasks:
            kind, inputs = one["type"], one["inputParameters"]
            if kind == "SET_VARIABLE":
                self._variable = self._value(inputs["workspace"])
            elif kind == "SWITCH":
                cases = [one["decisionCases"]["one"], one["defaultCase"]]
                yield from self._strand(self._chance.choice(cases))
            elif kind == "DO_WHILE":
                for _ in range(self._chance.randint(1, 3)):
                    yield from self._strand(one["loopOver"])
            elif kind == "FORK_JOIN":
                branches = one["forkTasks"]
                self._ended -= {each["taskReferenceName"] for b in branches for each in b}
                yield [self._strand(branch) for branch in branches]
            elif kind == "JOIN":
                while not self._ended.issuperset(one["joinOn"]):
                    yield []
            else:
                self._work(one, self._value(inputs["workspace"]))
            self._ended.add(one["taskReferenceName"])
            yield []

    def _work(self, one, taken):
        self._outputs.pop(one["taskReferenceName"], None)
        if one["optional"] and self._chance.random() < 0.5:
            return
        if taken is None:
            self.complaint = f"{one['taskReferenceName']} got no workspace"
        elif one["name"] == "check.write":
            if taken != self.head:
                self.complaint = f"{one['taskReferenceName']} took {taken}, not {self.head}"
            self._commits += 1
            self.head = taken = self._commits
        self._outputs[one["taskReferenceName"]] = taken

    def _value(self, expression):
        if expression == FIRST:
            return 0
        if expression == VARIABLE:
            return self._variable
        return self._outputs.get(expression[2:].partition(".")[0])


@given(workflows(), st.integers())
def test_no_run_of_a_workflow_that_passes_ever_takes_another_commit_than_the_head(workflow, seed):
    found = check_workflow(read_definition(workflow), EFFECTS)
    safe = found.problems == found.warnings == ()
    event(f"safe: {safe}, parts: {len({one['type'] for one in workflow['tasks']})}")
    assume(safe)
    for attempt in range(10):
        conductor = Conductor(random.Random(f"{seed}.{attempt}"))
        conductor.run(workflow["tasks"])
        assert conductor.complaint is None
