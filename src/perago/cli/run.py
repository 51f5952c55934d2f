"""``perago run``: start a pipeline or resume one, and watch it to its end."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perago.cli.conductor_view import followed
from perago.cli.local_view import PlainLines, watching
from perago.cli.options import backend_options, common_options
from perago.cli.output import STARTING, echo_err, status_line
from perago.cli.refs import DEFAULT_BRANCH, repository_name, resolve_commit
from perago.model.run import RunStatus
from perago.operations.run_follow import follow
from perago.ports.orchestrator import SharedRuns
from perago.worker.local_runner import run_pipeline

if TYPE_CHECKING:
    from perago.cli.output import Output
    from perago.model.run import RunPlan, RunRecord
    from perago.ports.orchestrator import Runs
    from perago.ports.store import Store
    from perago.settings import Settings


# --- What Spark needs of this machine, fetched before a run begins that will need it ---


def get_spark_ready_for(plan: RunPlan, settings: Settings) -> None:
    """Nothing to do where none of its tasks needs Spark, or others run them.

    Raises RuntimeConfigError, saying what is missing.
    """
    from perago.declare.loading import find_task
    from perago.declare.signature import SPARK
    from perago.wiring import fetch_spark_prerequisites

    if settings.orchestrator != "embedded":
        return
    if any(find_task(step.module, step.task_name).engine == SPARK for step in plan.steps):
        fetch_spark_prerequisites(settings, echo_err)


# --- A run to its end in front of a person: worked on by this process, or by Conductor's ---


def watch_to_its_end(
    settings: Settings,
    runs: Runs,
    run_id: str,
    *,
    resume: bool = False,
    in_words: bool = False,
) -> RunRecord:
    """The run once it has ended, or as it stands when the person has seen enough.

    An interrupt pauses a run of this machine. On Conductor it only ends the watching, and the
    record says RUNNING. With ``resume`` a run that stands still is set going first. ``in_words``
    is for people who read in a file what they can't watch.
    """
    record = runs.get(run_id)
    if not isinstance(runs, SharedRuns):
        with watching(record, elsewhere=PlainLines() if in_words else None) as watcher:
            return run_pipeline(settings, run_id, watcher, resume=resume)
    if resume and record.status is not RunStatus.RUNNING:
        runs.resume(run_id)
        record = runs.get(run_id)
    with suppress(KeyboardInterrupt), followed(record, in_words=in_words) as view:
        for snapshot in follow(runs, record):
            record = snapshot.record
            view.show(snapshot)
    return record


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
    "--repository", "-r", help="Where the workspace lives.  [default: the pipeline's name]"
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
    help="Accept the branch's present head as the start, after a run that stopped there.",
)
@click.option(
    "--start-at",
    metavar="REF",
    help="Where a branch begins that isn't there yet.  [default: empty; on lakeFS, at the head of "
    "the repository's default branch]",
)
@click.option(
    "--resume",
    is_flag=False,
    flag_value="",
    metavar="[RUN]",
    help="Go on from the last accepted task of a run: the named one, or the latest unfinished.",
)
@click.option(
    "--register",
    is_flag=True,
    help="On Conductor: register what isn't, or not as the code declares it, before it starts.",
)
@common_options(starts_slowly=True, on=True)
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

    It runs on this machine, and Ctrl-C pauses it, with nothing half done; --resume goes on. A run
    that was killed can be resumed the same way.

    With --on lakefs the tasks still run on this machine, and their workspaces live in lakeFS. It
    runs only on branches that it made itself: others may have runs this machine knows nothing of.
    A missing repository is made if PERAGO_LAKEFS_STORAGE_NAMESPACE says where.

    With --on conductor it is started there, and workers run its tasks ('perago start'); this
    command follows it. Ctrl-C only ends the following, and --resume follows again; one that is
    paused, failed or timed out it sets going first.
    """
    if resume is not None and (
        params or directory or from_head or repository or start_at or register
    ):
        raise click.UsageError(
            "--resume goes on with the run as it was started: leave out --param, --from, "
            "--from-head, --start-at, --repository and --register."
        )
    if register and settings.orchestrator != "conductor":
        raise click.UsageError("--register is about Conductor: say --on conductor.")
    with status_line(STARTING):
        from perago.cli.declared import see_to_definitions
        from perago.cli.options import close_with_command
        from perago.cli.run import get_spark_ready_for, watch_to_its_end
        from perago.cli.run_summary import as_json, exit_code, summary
        from perago.declare.loading import load_pipeline
        from perago.wiring import open_runs

        runs = close_with_command(open_runs(settings))
        if resume is not None:
            run_id = _resumable(runs, resume, target)
            get_spark_ready_for(runs.get(run_id).plan, settings)
        elif target is not None:
            pipeline = load_pipeline(target)
            plan = pipeline.plan(parse_params(params))
            get_spark_ready_for(plan, settings)
            if settings.orchestrator == "conductor":
                see_to_definitions(settings, pipeline, push=register)
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

    record = watch_to_its_end(settings, runs, run_id, resume=resume is not None)
    output.show(as_json(record), lambda: summary(record, backend_options()))
    return exit_code(record)


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
    from perago.cli.options import close_with_command
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
    """The commit that REF means. Raises RuntimeConfigError if the branch has begun already."""
    from perago.errors import BranchNotFoundError, RuntimeConfigError

    start = resolve_commit(store, repository, ref)
    with suppress(BranchNotFoundError):
        head = store.head(repository, branch)
        raise RuntimeConfigError(
            f"--start-at {ref}: branch {branch!r} of {repository!r} is there already, at {head.id}",
            fix="leave it out to go on from there, or name a new branch: --branch NAME",
        )
    return start.id


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
        raise click.UsageError("Others have runs there, too: name the RUN, or its TARGET.")
    found = runs.find(run) if run else runs.resumable(target)
    if found is None:
        raise RunNotFoundError(
            "there is no unfinished run to resume", fix="`perago runs` lists them; name one"
        )
    return found.id
