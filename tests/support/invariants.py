"""What must hold of a bench whose attempts ran on a schedule, whatever the interleaving.

Each invariant takes the schedule and raises :class:`InvariantViolated`.
``EVERY_STORE`` holds at level ``soft`` on a store without conditional updates; ``ATOMIC_STORE``
adds what ``cas`` on a store that compares and swaps is for. ``AT_THE_END`` holds once nothing runs
any more and leftovers were collected.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from perago.model.attempt import TaskStatus
from perago.model.workspace import WorkspaceRef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from perago.model.attempt import Attempt, Delivery
    from perago.model.commit import Commit
    from perago.model.run import AttemptRecord
    from perago.testing.bench import Bench
    from support.schedule import Ledger, Schedule

    Invariant = Callable[[Schedule], None]

_ADMITTED = ("wrong_landing", "publish_unknown")
_ALL_RUNS = 1_000_000


class InvariantViolated(AssertionError):
    """The message says which commit, attempt or branch breaks the promise."""


class Step(NamedTuple):
    """One step of one workflow: the chain of attempts that may publish at most once."""

    workflow_instance_id: str
    reference_task_name: str
    iteration: str


def output_was_the_head(schedule: Schedule) -> None:
    """A COMPLETED writable task's output ref was the branch's head when it was published."""
    ledger = schedule.ledger
    for record, ref in accepted(schedule.bench):
        task_id = record.attempt.task_id
        if ledger.may_write(task_id) and ref not in ledger.heads_of(task_id):
            raise InvariantViolated(f"{record.attempt} completed with {ref}, never the head")


def output_follows_the_input(schedule: Schedule) -> None:
    """What an attempt says it published is its input commit, or one whose only parent that is."""
    bench, ledger = schedule.bench, schedule.ledger
    for execution_id, outcome in ledger.outcomes.items():
        if outcome.published is None:
            continue
        input_ref = _input_ref(ledger.deliveries[execution_id])
        found = bench.store.get_commit(bench.repository, outcome.published.ref)
        if found.id != input_ref and not found.is_only_child_of(input_ref):
            raise InvariantViolated(
                f"{execution_id} published {found.id} on {found.parents}, not on {input_ref}"
            )


def one_commit_per_step(schedule: Schedule) -> None:
    """The branch's history is linear and holds no two commits of one step: no A → H → C."""
    seen: dict[Step, str] = {}
    for commit in _history(schedule.bench):
        if len(commit.parents) > 1:
            raise InvariantViolated(f"{commit.id} has several parents: {commit.parents}")
        step = _step_of_commit(commit)
        if step and step in seen:
            raise InvariantViolated(f"{step} is in the history twice: {seen[step]}, {commit.id}")
        if step:
            seen[step] = commit.id


def refused_changed_nothing(schedule: Schedule) -> None:
    """An attempt that failed didn't move the branch, unless it says that it can't know."""
    _assert_failures_moved_nothing(schedule.ledger, but=("publish_unknown",))


def failures_that_moved_say_so(schedule: Schedule) -> None:
    """An attempt that failed didn't move the branch, unless its reason says that it did or may."""
    _assert_failures_moved_nothing(schedule.ledger, but=_ADMITTED)


def one_effective_publication(schedule: Schedule) -> None:
    """Of one step, at most one publication stands at any time, and at most one was accepted."""
    bench = schedule.bench
    standing: dict[str, Step] = {}
    for movement in schedule.ledger.movements:
        kept = {commit.id for commit in _history(bench, movement.after)}
        standing = {commit: step for commit, step in standing.items() if commit in kept}
        landed = bench.store.get_commit(bench.repository, movement.after)
        step = _step_of_commit(landed)
        if step and movement.execution and step == step_of(movement.execution.attempt):
            standing[landed.id] = step
        _assert_single(Counter(standing.values()), "publications stand")
    completions = Counter(step_of(record.attempt) for record, _ in accepted(bench))
    _assert_single(completions, "attempts completed")


def one_publication_per_accepted_task(schedule: Schedule) -> None:
    """However often an accepted task was delivered, the branch got one commit from it: its output.

    One that was accepted as having changed nothing may have a twin that did: that commit is
    abandoned, and the only one.
    """
    for record, ref in accepted(schedule.bench):
        input_ref = _input_ref(record)
        published = schedule.ledger.published_by(record.attempt.task_id, input_ref)
        if len(published) > 1 or ref not in (input_ref, *published):
            raise InvariantViolated(f"{record.attempt} was accepted with {ref}, of {published}")


def nothing_accepted_is_lost(schedule: Schedule) -> None:
    """Every commit published by an accepted attempt is the branch's head or an ancestor of it.

    An accepted attempt that changed nothing published nothing: it stands on its input, which is
    protected if it was accepted itself. An unaccepted commit that a new run was started from isn't:
    a straggler of the run before may still take its own chain's abandoned head back.
    """
    bench = schedule.bench
    history = set(bench.history())
    for ref, record in accepted_publications(bench).items():
        if ref not in history:
            raise InvariantViolated(
                f"{record.attempt} was accepted with {ref}, which {bench.head} doesn't descend from"
            )


def no_empty_commits(schedule: Schedule) -> None:
    """Each commit of the branch's history changes something."""
    commits = list(_history(schedule.bench))
    for commit, parent in pairwise(commits):
        if commit.tree == parent.tree:
            raise InvariantViolated(f"{commit.id} has the very content of its parent {parent.id}")


def nothing_left_behind(schedule: Schedule) -> None:
    """No staging branch and no attempt directory is left."""
    bench = schedule.bench
    if branches := bench.staging_branches():
        raise InvariantViolated(f"staging branches are left: {branches}")
    if directories := sorted(path.name for path in bench.attempts.glob("*")):
        raise InvariantViolated(f"attempt directories are left: {directories}")


def store_is_sound(schedule: Schedule) -> None:
    """Every chain from branch to bytes is whole, and every hash is right."""
    report = schedule.bench.store.verify()
    if not report.clean:
        raise InvariantViolated(f"the store is damaged: {report.findings}")


EVERY_STORE: tuple[Invariant, ...] = (
    output_was_the_head,
    output_follows_the_input,
    failures_that_moved_say_so,
)
ATOMIC_STORE: tuple[Invariant, ...] = (
    *EVERY_STORE,
    one_commit_per_step,
    refused_changed_nothing,
    one_effective_publication,
    one_publication_per_accepted_task,
    nothing_accepted_is_lost,
    no_empty_commits,
)
AT_THE_END: tuple[Invariant, ...] = (nothing_left_behind, store_is_sound)


def accepted(bench: Bench) -> Iterator[tuple[AttemptRecord, str]]:
    """Attempts on the bench's branch that the orchestrator has as COMPLETED, with their output."""
    for run in bench.queue.runs(_ALL_RUNS):
        for record in run.attempts:
            if record.status is TaskStatus.COMPLETED and record.output_ref:
                yield record, record.output_ref


def accepted_publications(bench: Bench) -> dict[str, AttemptRecord]:
    """The commits that accepted attempts added, each with its attempt."""
    return {ref: record for record, ref in accepted(bench) if ref != _input_ref(record)}


def step_of(attempt: Attempt) -> Step:
    return Step(attempt.workflow_instance_id, attempt.reference_task_name, str(attempt.iteration))


def _input_ref(given: AttemptRecord | Delivery) -> str:
    return WorkspaceRef.model_validate(given.input["workspace"]).ref


def _step_of_commit(commit: Commit) -> Step | None:
    """None for a commit that no attempt wrote."""
    fields = [commit.metadata.get(f"perago.{name}") for name in Step._fields]
    return Step(*map(str, fields)) if all(fields) else None


def _history(bench: Bench, ref: str | None = None) -> Iterator[Commit]:
    return bench.store.history(bench.repository, ref or bench.branch)


def _assert_failures_moved_nothing(ledger: Ledger, *, but: tuple[str, ...]) -> None:
    for execution_id, outcome in ledger.outcomes.items():
        if outcome.report.completed or str(outcome.report.reason).startswith(but):
            continue
        if moved := ledger.moved_by(execution_id):
            raise InvariantViolated(f"{execution_id} failed ({outcome.report.reason}): {moved}")


def _assert_single(counted: Counter[Step], what: str) -> None:
    for step, number in counted.items():
        if number > 1:
            raise InvariantViolated(f"{number} {what} of {step}")
