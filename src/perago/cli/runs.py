"""``perago runs``, ``cancel`` and ``recover``: look at runs, end one, continue after one."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from perago.cli.options import backend_options, close_with_command, common_options
from perago.cli.output import STARTING, console, status_line
from perago.formatting import (
    COMMIT_LENGTH,
    RUN_LENGTH,
    ago,
    count,
    duration,
    iso,
    moment,
    shorten_ids,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from perago.cli.output import Output
    from perago.model.run import AttemptRecord, RunRecord
    from perago.operations.recovery import BranchSinceRun
    from perago.ports.store import Store
    from perago.settings import Settings


@click.command()
@click.argument("run", required=False)
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many to list."
)
@click.option("--logs", is_flag=True, help="With RUN: show its steps, and what its tasks printed.")
@common_options(on=True)
def command(*, run: str | None, limit: int, logs: bool, output: Output, settings: Settings) -> None:
    """List runs, newest first; with RUN, show its attempts.

    RUN is a run's id, or the unambiguous start of one.

    \b
    JSON without RUN: {"runs": [{id, pipeline, target, repository, branch, status, held, reason,
      output_ref, steps_done, steps_total, created_at, updated_at, seconds}]}
    JSON with RUN: the same object, and "attempts": [{reference, task, task_id, retry, status,
      worker, started_at, ended_at, seconds, reason, output_ref, result}]; with --logs also
      "events": [one object per step] and "logs": [{reference, retry, path, bytes}]; on Conductor,
      which has the end of each attempt's output, "logs": [{reference, retry, lines: [{at, line}]}].
    "held" is whether a process works on the run right now; on Conductor, whether it is RUNNING.
    """
    from perago.cli.output import until_reader_leaves
    from perago.cli.run_logs import logs_of
    from perago.ports.orchestrator import SharedRuns
    from perago.wiring import open_runs, system_clock
    from perago.worker.local_runner import is_held

    if logs and run is None:
        raise click.UsageError("--logs needs a RUN: 'perago runs RUN --logs'.")

    known = close_with_command(open_runs(settings))

    def document(record: RunRecord) -> dict[str, object]:
        held = isinstance(known, SharedRuns) or is_held(settings, record.id)
        now = system_clock().now()
        return _run_state(record, held=held and record.status == "RUNNING", now=now)

    if run is None:
        listed = [document(record) for record in known.runs(limit=limit)]
        output.show({"runs": listed}, lambda: _listing(listed))
        return
    record = known.find(run)
    shown = document(record) | {"attempts": [_attempt_document(a) for a in record.attempts]}
    kept = logs_of(known, settings.logs, record) if logs else None
    if kept is not None and output.as_json:
        shown |= kept.document()
    output.show(shown, lambda: _details(record, shown))
    if kept is not None and not output.as_json:
        with until_reader_leaves():
            kept.show()


def _run_state(record: RunRecord, *, held: bool, now: float) -> dict[str, object]:
    """A run as JSON, as of now."""
    completed = {a.attempt.reference_task_name for a in record.attempts if a.status == "COMPLETED"}
    end = now if record.status == "RUNNING" else record.updated_at
    return {
        "id": record.id,
        "pipeline": record.plan.name,
        "target": record.plan.target,
        "repository": record.workspace.repository if record.workspace else None,
        "branch": record.workspace.branch if record.workspace else None,
        "status": record.status.value,
        "held": held,
        "reason": record.reason,
        "output_ref": record.output_ref,
        "steps_done": len(completed),
        "steps_total": len(record.plan.steps),
        "created_at": iso(record.created_at),
        "updated_at": iso(record.updated_at),
        "seconds": round(end - record.created_at, 3),
    }


def _attempt_document(record: AttemptRecord) -> dict[str, object]:
    """One attempt as JSON."""
    attempt = record.attempt
    return {
        "reference": attempt.reference_task_name,
        "task": attempt.task_name,
        "task_id": attempt.task_id,
        "retry": attempt.retry_count,
        "status": record.status.value,
        "worker": record.worker_id,
        "started_at": iso(record.started_at),
        "ended_at": iso(record.ended_at),
        "seconds": _seconds(record),
        "reason": record.reason,
        "output_ref": record.output_ref,
        "result": record.output.get("result"),
    }


def _seconds(record: AttemptRecord) -> float | None:
    if record.started_at is None or record.ended_at is None:
        return None
    return round(record.ended_at - record.started_at, 3)


def _listing(runs: list[dict[str, object]]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from perago.cli.output import status, table

    if not runs:
        start = shlex.join(["perago", "run", "module:pipeline", *backend_options()])
        return Text(f"no runs yet: start one with `{start}`")
    headings = ("run", "status", "steps", "pipeline", "branch", "started", "took")
    rows = [
        (
            str(run["id"])[:RUN_LENGTH],
            status(str(run["status"])),
            f"{run['steps_done']}/{run['steps_total']}",
            str(run["pipeline"]),
            f"{run['repository']}/{run['branch']}" if run["repository"] else "",
            ago(str(run["created_at"])),
            duration(float(str(run["seconds"]))),
        )
        for run in runs
    ]
    abandoned = [Text(_no_runner(run), style="yellow") for run in runs if _is_abandoned(run)]
    return Group(table(headings, rows, whole=3), *abandoned)


def _details(record: RunRecord, run: dict[str, object]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from perago.cli.attempt_view import status_words
    from perago.cli.output import status, style_of, table

    lines: list[RenderableType] = [
        Text.assemble(
            ("run ", "dim"), record.id, "  ", status(record.status), f"  {record.plan.name}"
        ),
        Text(
            f"{count(len(record.plan.steps), 'step')}, {run['steps_done']} done, "
            f"{duration(float(str(run['seconds'])))}, started {moment(record.created_at)}"
        ),
    ]
    if record.workspace:
        where = f"{record.workspace.repository}/{record.workspace.branch}"
        start, end = record.workspace.ref[:COMMIT_LENGTH], (record.output_ref or "")[:COMMIT_LENGTH]
        lines.append(Text(f"{where}  {start} → {end}"))
    if record.reason:
        lines.append(
            Text(shorten_ids(record.reason), style="red" if record.status == "FAILED" else "")
        )
    if _is_abandoned(run):
        lines.append(Text(_no_runner(run), style="yellow"))
    headings = ("step", "retry", "commit", "status", "took", "started", "worker")
    rows = [
        (
            a.attempt.reference_task_name,
            str(a.attempt.retry_count),
            (a.output_ref or "")[:COMMIT_LENGTH],
            Text(status_words(a.status), style=style_of(a.status)),
            duration(_seconds(a)),
            moment(a.started_at).partition(" ")[2],
            a.worker_id or "",
        )
        for a in record.attempts
    ]
    reasons = [
        Text(
            shorten_ids(
                f"{a.attempt.reference_task_name}, retry {a.attempt.retry_count}: {a.reason}"
            )
        )
        for a in record.attempts
        if a.reason
    ]
    return Group(*lines, table(headings, rows, whole=6), *reasons)


def _is_abandoned(run: dict[str, object]) -> bool:
    return run["status"] == "RUNNING" and not run["held"]


def _no_runner(run: dict[str, object]) -> str:
    name = str(run["id"])[:RUN_LENGTH]
    resume = shlex.join(["perago", "run", "--resume", name, *backend_options()])
    return f"run {name} has no runner: resume it with `{resume}`"


@click.command()
@click.argument("run")
@click.option(
    "--reason", default="cancelled by a person", show_default=True, help="Kept with the run."
)
@common_options(on=True)
def cancel_command(*, run: str, reason: str, output: Output, settings: Settings) -> None:
    """End a run for good. What its completed steps published stays published.

    RUN is a run's id, or the unambiguous start of one. The process that works on the run stops by
    itself, and an attempt in progress is refused at its next fence. An attempt that has passed its
    last fence may still publish. Its report is not accepted, and the next run on that branch
    doesn't start from such a commit without --from-head.

    \b
    JSON: {id, status, reason, output_ref}
    """
    from rich.text import Text

    from perago.wiring import open_runs

    runs = close_with_command(open_runs(settings))
    found = runs.find(run)
    runs.cancel(found.id, reason)
    record = runs.get(found.id)
    output.show(
        {
            "id": record.id,
            "status": record.status.value,
            "reason": record.reason,
            "output_ref": record.output_ref,
        },
        lambda: Text(f"run {record.id[:RUN_LENGTH]} is {record.status}: {record.reason}"),
    )


_SHOWN_COMMITS = 20


@click.command()
@click.argument("run", metavar="RUN")
@click.option("--dry-run", is_flag=True, help="Only show what the run left behind; start nothing.")
@common_options(starts_slowly=True, on=True, log_format=True)
def recover_command(*, run: str, dry_run: bool, output: Output, settings: Settings) -> int:
    """Start a run like RUN, but from its branch's present head, and follow it to its end.

    RUN is a run's id (on Conductor a workflow's), or the unambiguous start of one. Use it after a
    run that stopped because its branch was not where the run expected it: the new run continues
    from what is on the branch now. The command first lists the commits that were added since.
    Refused while RUN, or another run on that branch, is active.

    \b
    JSON: {"recovered": id, "status", "reason", "branch": "repository/branch", "accepted": id,
      "head": id, "leads_back": bool, "since": [the newest commits on top of the accepted one, as
      of `history`], "run": the new one as of `run`; null with --dry-run}; for a run without a
      workspace the fields about its branch are null
    """
    with status_line(STARTING):
        from perago.cli.run import exit_code, run_document, summary, watch_run
        from perago.operations.branches import own_branches
        from perago.operations.recovery import assert_recoverable, branch_since_run, recover
        from perago.wiring import open_runs, open_store

        runs = close_with_command(open_runs(settings))
        store = close_with_command(open_store(settings))
        stopped = runs.find(run)
        assert_recoverable(runs, stopped)
        left = branch_since_run(store, stopped)
        document = _document(store, stopped, left)
    if dry_run:
        output.show(document, lambda: _layout(document))
        return 0
    if not output.as_json:
        console(stderr=True).print(_layout(document))

    started = recover(runs, store, stopped, own=own_branches(settings))
    record = watch_run(settings, runs, started, output)
    output.show(
        document | {"run": run_document(record)}, lambda: summary(record, backend_options())
    )
    return exit_code(record)


def _document(store: Store, run: RunRecord, left: BranchSinceRun | None) -> dict[str, Any]:
    from perago.cli.history import commit_document

    about_run = {"recovered": run.id, "status": run.status.value, "reason": run.reason, "run": None}
    if left is None:
        return about_run | dict.fromkeys(("branch", "accepted", "head", "leads_back", "since"))
    repository = left.workspace.repository
    return about_run | {
        "branch": f"{repository}/{left.workspace.branch}",
        "accepted": left.accepted,
        "head": left.head.id,
        "leads_back": left.leads_back,
        "since": [commit_document(store, repository, c) for c in left.since[:_SHOWN_COMMITS]],
    }


def _layout(left: dict[str, Any]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from perago.cli.history import history_layout

    run = left["recovered"][:RUN_LENGTH]
    lines = [Text(f"run {run} is {left['status']}: {left['reason'] or 'no reason'}")]
    if left["branch"] is None:
        return Group(*lines)
    accepted, head = (left[name][:COMMIT_LENGTH] for name in ("accepted", "head"))
    lines.append(Text(f"its last accepted commit is {accepted}"))
    if left["head"] == left["accepted"]:
        return Group(
            *lines, Text(f"{left['branch']} is still there: the new run continues from it")
        )
    lines.append(Text(f"{left['branch']} is at {head}: the new run continues from there"))
    if not left["leads_back"]:
        moved = "the branch was reset or created again: its history lacks the accepted commit"
        return Group(*lines, Text(moved, style="yellow"))
    return Group(*lines, Text("commits since then, newest first:"), history_layout(left["since"]))
