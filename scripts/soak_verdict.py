"""What a soak left on the servers and on disk, and whether that is what it has to be."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conductor_witness import ConductorWitness
from lakefs_witness import Witness
from soak_tasks import CHANGING, PREFIX, files_after, soak
from soak_workers import PERAGO, Worker

from perago.model.attempt import STAGING_PREFIX

STEPS = tuple(step.reference for step in soak.steps)
WITH_WORKSPACE = tuple(step.reference for step in soak.steps if step.task.workspace)


@dataclass(frozen=True, slots=True)
class Started:
    """One workflow of the soak: its number and id, and the branch it has for itself."""

    number: int
    id: str
    repository: str
    branch: str
    base: str

    def __str__(self) -> str:
        return f"workflow {self.number} ({self.id}, {self.repository}/{self.branch})"


@dataclass(frozen=True, slots=True)
class Branch:
    """Commits from the head back to where the workflow began, with their parents; and the files."""

    commits: Sequence[tuple[str, Sequence[str]]]
    files: Mapping[str, bytes]


@dataclass
class Verdict:
    """Counts of what was found, and every single thing that isn't as it has to be."""

    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    """How attempts that didn't complete ended."""

    def add(self, started: Started, workflow: Mapping[str, Any], branch: Branch) -> None:
        found = list(problems_with(started, workflow, branch))
        self.problems += [f"{started}: {problem}" for problem in found]
        attempts = attempts_by_reference(workflow)
        refs = accepted_refs(attempts)
        history = {commit for commit, _ in branch.commits} | {started.base}
        self.counts["completed"] += workflow["status"] == "COMPLETED"
        self.counts["tasks"] += sum(
            tasks[-1]["status"] == "COMPLETED" for tasks in attempts.values()
        )
        self.counts["attempts"] += len(workflow["tasks"])
        self.counts["refs"] += len(refs)
        self.counts["refs on their branch"] += sum(ref in history for ref in refs.values())
        self.counts["commits"] += len(branch.commits)
        self.counts["linear"] += is_linear(branch, started.base)
        self.counts["content"] += branch.files == files_after(started.number)
        ends = [t["status"] for t in workflow["tasks"] if t["status"] != "COMPLETED"]
        self.ends.update(ends)

    def expect_none(self, what: str, found: Sequence[object]) -> None:
        self.counts[what] += len(found)
        self.problems += [f"left behind, {what}: {one}" for one in found]


def problems_with(started: Started, workflow: Mapping[str, Any], branch: Branch) -> Iterable[str]:
    """Everything about one workflow and its branch that isn't as promised."""
    if workflow["status"] != "COMPLETED":
        yield f"is {workflow['status']}: {workflow.get('reasonForIncompletion')}"
    attempts = attempts_by_reference(workflow)
    for reference in STEPS:
        ends = [task["status"] for task in attempts.get(reference, ())]
        if ends[-1:] != ["COMPLETED"] or ends.count("COMPLETED") != 1:
            yield f"{reference} wasn't accepted exactly once: {', '.join(ends) or 'never tried'}"
    if not is_linear(branch, started.base):
        yield f"history isn't a line from {started.base}: {branch.commits}"
    if len(branch.commits) != len(CHANGING):
        yield f"{len(branch.commits)} commits, and {len(CHANGING)} tasks that change something"
    refs = accepted_refs(attempts)
    expected = refs_along(started.base, [commit for commit, _ in reversed(branch.commits)])
    if refs != expected:
        yield f"accepted refs are {refs}, and the branch has {expected}"
    if branch.files != files_after(started.number):
        yield f"files are {branch.files}"


def attempts_by_reference(workflow: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The workflow's tasks, oldest first, by the step that they are attempts of."""
    grouped: dict[str, list[dict[str, Any]]] = {}
    for task in sorted(workflow["tasks"], key=lambda task: task["seq"]):
        grouped.setdefault(task["referenceTaskName"], []).append(task)
    return grouped


def accepted_refs(attempts: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, str]:
    """The workspace ref each step was accepted with."""
    return {
        reference: str(task["outputData"]["workspace"]["ref"])
        for reference, tasks in attempts.items()
        for task in tasks
        if task["status"] == "COMPLETED" and "workspace" in task["outputData"]
    }


def refs_along(base: str, commits: Sequence[str]) -> dict[str, str]:
    """The refs that steps have where each changing one made the next of these commits."""
    refs, ref, left = {}, base, list(commits)
    for reference in WITH_WORKSPACE:
        if reference in CHANGING and left:
            ref = left.pop(0)
        refs[reference] = ref
    return refs


def is_linear(branch: Branch, base: str) -> bool:
    """Whether each commit has one parent, which is the next, and the last one's is the base."""
    parents = [list(parents) for _, parents in branch.commits]
    return parents == [[commit] for commit, _ in branch.commits[1:]] + [[base]]


def judge(
    workflows: Iterable[Started],
    conductor: ConductorWitness,
    repositories: Mapping[str, Witness],
    workers: Sequence[Worker],
) -> Verdict:
    """Look at everything, through the servers' own interfaces."""
    verdict = Verdict()
    for started in workflows:
        branch = look_at(repositories[started.repository], started)
        verdict.add(started, conductor.workflow(started.id), branch)
    staging = [b for witness in repositories.values() for b in witness.branches(STAGING_PREFIX)]
    verdict.expect_none("staging branches", staging)
    directories = [path for worker in workers for path in worker.root.glob("*/*/")]
    verdict.expect_none("attempt directories", directories)
    verdict.expect_none("findings of perago gc", [one for w in workers for one in found_by_gc(w)])
    return verdict


def look_at(witness: Witness, started: Started) -> Branch:
    log = witness.client.refs_api.log_commits(started.repository, started.branch, amount=20).results
    ids = [commit.id for commit in log]
    length = ids.index(started.base) if started.base in ids else len(ids)
    commits = [(commit.id, tuple(commit.parents)) for commit in log[:length]]
    return Branch(commits, witness.files(started.branch, PREFIX))


def found_by_gc(worker: Worker) -> list[str]:
    """What `perago gc` would still remove of a worker's, or can't look into."""
    said = subprocess.run(
        [PERAGO, "gc", "--on", "conductor", "--dry-run", "--json"],
        cwd=worker.home,
        env=worker.environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    found = json.loads(said.stdout)
    kinds = ("directories", "staging_branches", "too_young", "problems")
    return [f"{kind}: {one}" for kind in kinds for one in found[kind]]
