"""``perago run``: start a pipeline or resume a run, and follow it to its end."""

from __future__ import annotations

import shlex
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perago.cli.options import backend_options, close_with_command, common_options
from perago.cli.output import STARTING, echo_err, status_line
from perago.cli.refs import DEFAULT_BRANCH, repository_name, resolve_commit
from perago.formatting import RUN_LENGTH, count, iso, shorten_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from perago.cli.output import Output
    from perago.model.run import RunPlan, RunRecord
    from perago.ports.orchestrator import Runs
    from perago.ports.store import Store
    from perago.settings import Settings

_INTERRUPTED = 130


@click.command()
@click.argument("target", required=False)
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="TASK.FIELD=VALUE",
    help="Set a task's parameter; VALUE is JSON, or plain text. May be repeated.",
)
@click.option(
    "--repository",
    "-r",
    help="The repository of the workspace.  [default: the pipeline's name]",
)
@click.option(
    "--branch", default=DEFAULT_BRANCH, show_default=True, help="The branch to publish to."
)
@click.option(
    "--from",
    "directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Import this directory first, as the initial workspace.",
)
@click.option(
    "--from-head",
    is_flag=True,
    help="Start from the branch's present head, after a run that stopped there.",
)
@click.option(
    "--start-at",
    metavar="REF",
    help="Create a missing branch at REF.  [default: empty; on lakeFS, at the head of the "
    "repository's default branch]",
)
@click.option(
    "--resume",
    is_flag=False,
    flag_value="",
    metavar="[RUN]",
    help="Continue a run after its last accepted task: the named run, or the latest unfinished.",
)
@click.option(
    "--register",
    is_flag=True,
    help="On Conductor: register missing or outdated definitions first.",
)
@common_options(starts_slowly=True, on=True, log_format=True)
def command(
    *,
    target: str | None,
    params: tuple[str, ...],
    repository: str | None,
    branch: str,
    directory: Path | None,
    from_head: bool,
    start_at: str | None,
    resume: str | None,
    register: bool,
    output: Output,
    settings: Settings,
) -> int:
    """Run a pipeline: TARGET is module:pipeline, or a module with just one.

    The run works on this machine. Ctrl-C pauses it, with nothing half done; --resume continues a
    paused run, and also one that was killed.

    With --on lakefs the tasks still run on this machine, and their workspaces live in lakeFS. A run
    uses only branches that Perago created from this machine: other branches may have runs that this
    machine doesn't know. A missing repository is created if PERAGO_LAKEFS_STORAGE_NAMESPACE is set.

    With --on conductor the run is started there, and workers run its tasks ('perago start'). This
    command follows it; Ctrl-C only stops following, and --resume follows again. A paused, failed
    or timed-out run is resumed first.
    """
    if resume is not None and (
        params or directory or from_head or repository or start_at or register
    ):
        raise click.UsageError(
            "--resume continues the run as it was started: leave out --param, --from, "
            "--from-head, --start-at, --repository and --register."
        )
    if register and settings.orchestrator != "conductor":
        raise click.UsageError("--register is about Conductor: add --on conductor.")
    with status_line(STARTING):
        from perago.cli.declared import ensure_registered
        from perago.declare.loading import load_pipeline
        from perago.wiring import open_runs

        runs = close_with_command(open_runs(settings))
        if resume is not None:
            run_id = _resumable(runs, resume, target)
            _prepare_spark(runs.get(run_id).plan, settings)
        elif target is not None:
            pipeline = load_pipeline(target)
            plan = pipeline.plan(parse_params(params))
            _prepare_spark(plan, settings)
            if settings.orchestrator == "conductor":
                ensure_registered(settings, pipeline, push=register)
            run_id = _start(
                settings,
                runs,
                plan,
                repository=repository,
                branch=branch,
                directory=directory,
                from_head=from_head,
                start_at=start_at,
            )
        else:
            raise click.UsageError("Name a pipeline to run (module:pipeline), or use --resume.")

    record = watch_run(settings, runs, run_id, output, resume=resume is not None)
    output.show(run_document(record), lambda: summary(record, backend_options()))
    return exit_code(record)


def parse_params(given: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """``task.field=value`` options as a mapping of tasks to fields."""
    import json

    params: dict[str, dict[str, Any]] = {}
    for item in given:
        name, equals, text = item.partition("=")
        step, dot, field = name.rpartition(".")
        if not equals or not dot or not step or not field:
            raise click.UsageError(f"--param {item!r}: write it as TASK.FIELD=VALUE.")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        params.setdefault(step, {})[field] = value
    return params


def _resumable(runs: Runs, run: str, target: str | None) -> str:
    from perago.errors import RunNotFoundError
    from perago.ports.orchestrator import SharedRuns

    if not run and target is None and isinstance(runs, SharedRuns):
        raise click.UsageError("Other people have runs there, too: name the RUN, or its TARGET.")
    found = runs.find(run) if run else runs.resumable(target)
    if found is None:
        raise RunNotFoundError(
            "there is no unfinished run to resume", fix="`perago runs` lists all runs"
        )
    return found.id


def _prepare_spark(plan: RunPlan, settings: Settings) -> None:
    """Fetch what Spark needs, if a task of the plan uses Spark and runs on this machine.

    Raises RuntimeConfigError, saying what is missing.
    """
    from perago.declare.loading import find_task
    from perago.declare.signature import SPARK
    from perago.wiring import fetch_spark_prerequisites

    if settings.orchestrator != "embedded":
        return
    if any(find_task(step.module, step.task_name).engine == SPARK for step in plan.steps):
        fetch_spark_prerequisites(settings, echo_err)


def _start(
    settings: Settings,
    runs: Runs,
    plan: RunPlan,
    *,
    repository: str | None,
    branch: str,
    directory: Path | None,
    from_head: bool,
    start_at: str | None,
) -> str:
    from perago.cli.local_view import transferring
    from perago.operations.branches import new_branch_source, own_branches
    from perago.operations.run_start import StartingPoint, start_run
    from perago.wiring import open_store

    own = own_branches(settings)
    store = close_with_command(open_store(settings))
    name = repository or repository_name(plan.name)
    if start_at is not None:
        start_at = _start_of_new_branch(store, name, branch, start_at)
    elif any(step.uses_workspace for step in plan.steps):
        start_at = new_branch_source(store, name)
    point = StartingPoint(name, branch, directory, from_head, start_at)
    with transferring("import") if directory else nullcontext() as progress:
        return start_run(runs, store, plan, point, progress, own=own)


def _start_of_new_branch(store: Store, repository: str, branch: str, ref: str) -> str:
    """The commit that REF names. Raises RuntimeConfigError if the branch exists already."""
    from perago.errors import BranchNotFoundError, RuntimeConfigError

    start = resolve_commit(store, repository, ref)
    with suppress(BranchNotFoundError):
        head = store.head(repository, branch)
        raise RuntimeConfigError(
            f"--start-at {ref}: branch {branch!r} of {repository!r} exists already, at {head.id}",
            fix="leave it out to continue from there, or name a new branch: --branch NAME",
        )
    return start.id


def watch_run(
    settings: Settings, runs: Runs, run_id: str, output: Output, *, resume: bool = False
) -> RunRecord:
    """Show a run until it ends; the run as it is then.

    A run on this machine is worked on by this process, and an interrupt pauses it. A run on
    Conductor is only followed: an interrupt ends that, and the record says RUNNING. With ``resume``
    a run that stopped is resumed first.
    """
    from perago.model.run import RunStatus
    from perago.ports.orchestrator import SharedRuns

    record = runs.get(run_id)
    if not output.json_lines:
        echo_err(_heading(record))
    if not isinstance(runs, SharedRuns):
        from perago.cli.local_view import run_view
        from perago.worker.local_runner import run_pipeline

        with run_view(record, output) as view:
            return run_pipeline(settings, run_id, view, resume=resume)
    from perago.cli.conductor_view import followed_view
    from perago.operations.run_follow import follow

    if resume and record.status is not RunStatus.RUNNING:
        runs.resume(run_id)
        record = runs.get(run_id)
    with suppress(KeyboardInterrupt), followed_view(record, output) as followed:
        for snapshot in follow(runs, record):
            record = snapshot.record
            followed.show(snapshot)
    return record


def _heading(record: RunRecord) -> str:
    where = f", {record.workspace.repository}/{record.workspace.branch}" if record.workspace else ""
    steps = count(len(record.plan.steps), "step")
    return f"run {record.id[:RUN_LENGTH]}: {record.plan.name}, {steps}{where}"


def exit_code(record: RunRecord) -> int:
    """0 for a completed run, 130 for one that is paused or still running, else 1."""
    from perago.model.run import RunStatus

    if record.status is RunStatus.COMPLETED:
        return 0
    return _INTERRUPTED if record.status in (RunStatus.PAUSED, RunStatus.RUNNING) else 1


def run_document(record: RunRecord) -> dict[str, object]:
    """A run as JSON."""
    return {
        "run": record.id,
        "pipeline": record.plan.name,
        "target": record.plan.target,
        "status": record.status,
        "reason": record.reason,
        "workspace": record.workspace.model_dump() if record.workspace else None,
        "output_ref": record.output_ref,
        "attempts": [
            {
                "reference": a.attempt.reference_task_name,
                "task": a.attempt.task_name,
                "task_id": a.attempt.task_id,
                "retry": a.attempt.retry_count,
                "status": a.status,
                "reason": a.reason,
                "worker": a.worker_id,
                "started_at": iso(a.started_at),
                "ended_at": iso(a.ended_at),
                "output": a.output or None,
            }
            for a in record.attempts
        ],
    }


def summary(record: RunRecord, options: Sequence[str]) -> RenderableType:
    """Every attempt, how the run ended, and the next command; ``options`` as of next_step()."""
    from rich.console import Group
    from rich.text import Text

    from perago.cli.local_view import attempts_table
    from perago.cli.output import status

    last_reason = record.attempts[-1].reason if record.attempts else None
    lines: list[RenderableType] = [attempts_table(record)]
    lines.append(
        Text.assemble(("run ", "dim"), record.id[:RUN_LENGTH], "  ", status(record.status))
    )
    if record.reason and not (last_reason and last_reason in record.reason):
        lines.append(Text(f"  {shorten_ids(record.reason)}"))
    if step := next_step(record, options):
        # The terminal breaks the line, so that the command can be copied in one piece.
        lines.append(Text(f"  {step}", style="bold", no_wrap=True, overflow="ignore"))
    return Group(*lines)


def next_step(record: RunRecord, options: Sequence[str] = ()) -> str | None:
    """What to do next, with the whole command; None if there is nothing left to do.

    ``options`` are the --home and --on by which a command finds this run.
    """
    from perago.errors import PublishFenceError, PublishUnknownError, WrongLandingError
    from perago.model.attempt import TaskStatus
    from perago.model.run import RunStatus

    # Another attempt from the same commit would fail for the same reason.
    branch_moved = (PublishFenceError.code, WrongLandingError.code, PublishUnknownError.code)
    if record.status in (RunStatus.COMPLETED, RunStatus.TERMINATED):
        return None

    def command(*words: str) -> str:
        return shlex.join(["perago", *words, *options])

    if record.status is RunStatus.RUNNING:
        # Whole ids: Conductor finds the start of an id only once the run is in its index.
        follow, cancel = command("run", "--resume", record.id), command("cancel", record.id)
        return f"The run continues on Conductor. Follow it: `{follow}`; end it: `{cancel}`"
    run = record.id[:RUN_LENGTH]
    resume, recover = command("run", "--resume", run), command("recover", run)
    last = record.attempts[-1] if record.attempts else None
    if last and last.status is TaskStatus.FAILED_WITH_TERMINAL_ERROR:
        return f"Retrying won't help. Fix the input, then run: {recover}"
    if last and (last.reason or "").partition(":")[0] in branch_moved:
        look = command("history", *_branch_options(record))
        return f"Retrying won't help. Look at `{look}`, then continue from there: {recover}"
    return f"Continue with: {resume}"


def _branch_options(record: RunRecord) -> list[str]:
    if record.workspace is None:
        return []
    branch = record.workspace.branch
    named = [] if branch == DEFAULT_BRANCH else ["--branch", branch]
    return ["--repository", record.workspace.repository, *named]
