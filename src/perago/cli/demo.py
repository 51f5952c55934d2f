"""``perago demo``: run a pipeline, crash it in the middle, and show the recovery."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perago.cli.options import backend_options, close_with_command, common_options
from perago.cli.output import STARTING, echo_err, status_line
from perago.cli.refs import DEFAULT_BRANCH
from perago.errors import RuntimeConfigError
from perago.model.attempt import AttemptStep

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from perago.cli.output import Output
    from perago.model.run import RunPlan, RunRecord
    from perago.operations.branches import OwnBranches
    from perago.ports.orchestrator import SharedRuns
    from perago.ports.store import Store
    from perago.settings import Settings


_PIPELINE = "perago.demo.songs:songs"
_CRASHING_STEP = 2
_START = "from perago.cli.main import main; main()"
_READY_SECONDS = 120.0  # Spark has to start
_GRACE_SECONDS = 20.0
_TAIL_BYTES = 2000


@click.command()
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    default=200_000,
    show_default=True,
    help="How many listening events to generate.",
)
@click.option("--no-crash", is_flag=True, help="Don't kill the second task.")
@common_options(default_home=Path("perago-demo"), starts_slowly=True, on=True, log_format=True)
def command(*, rows: int, no_crash: bool, output: Output, settings: Settings) -> int:
    """Run the songs pipeline on this machine, kill it in the middle, and watch it recover.

    Everything is kept in ./perago-demo, or in --home; nothing else is touched. With --on lakefs the
    workspace is a new repository there, with the fence installed; it is not removed. With --on
    conductor or stack the pipeline is registered and runs there, on a worker that the demo starts.
    """
    from perago.wiring import where_spark_runs

    if not output.json_lines:
        introduction = _introduction(rows, where_spark_runs(settings), crash=not no_crash)
        echo_err(f"{click.style('Perago demo', bold=True)}  {introduction}")
    with status_line(STARTING):
        from perago.cli.declared import ensure_registered
        from perago.cli.run import exit_code, run_document, watch_run
        from perago.declare.loading import load_pipeline
        from perago.model.run import RunStatus
        from perago.operations.branches import own_branches
        from perago.operations.run_start import StartingPoint, start_run
        from perago.ports.orchestrator import SharedRuns
        from perago.wiring import fetch_spark_prerequisites, open_runs, open_store

        fetch_spark_prerequisites(settings, echo_err)
        store = close_with_command(open_store(settings))
        runs = close_with_command(open_runs(settings))
        repository = _unused_name(store)
        settings = settings if no_crash else _with_crash(settings, repository)
        pipeline = load_pipeline(_PIPELINE)
        plan = pipeline.plan({"ingest": {"rows": rows}})
        own = own_branches(settings)
        if settings.store == "lakefs":
            _make_repository(store, repository, own)
    with ExitStack() as running:
        if isinstance(runs, SharedRuns):
            with status_line("registering the pipeline, starting a worker"):
                ensure_registered(settings, pipeline, push=True)
                running.enter_context(_worker(settings, plan, runs))
        # A repository of that name may have been here before, with runs of its own.
        point = StartingPoint(repository, from_head=True)
        run_id = start_run(runs, store, plan, point, own=own)
        record = watch_run(settings, runs, run_id, output)
        if record.status is RunStatus.RUNNING:  # without the demo's worker it would wait forever
            runs.cancel(run_id, "the demo was interrupted")
            raise click.Abort
    page = _export_report(store, record, settings.home.absolute() / f"{repository}-report.html")
    output.show(
        run_document(record) | {"repository": repository, "report": str(page) if page else None},
        lambda: _story(store, record, page, settings),
    )
    return exit_code(record)


def _introduction(rows: int, spark: str, *, crash: bool) -> str:
    words = (
        f"{rows:,} listening events, four tasks, one versioned workspace\n"
        f"Two of the tasks compute with Spark, {spark}."
    )
    if not crash:
        return words
    return (
        f"{words}\n"
        "The second task is killed (SIGKILL) right after it publishes, before it can report.\n"
        "The retry replaces that abandoned commit.\n"
    )


def _make_repository(store: Store, repository: str, own: OwnBranches | None) -> None:
    from perago.operations.branches import head_or_new
    from perago.operations.fence_install import install_fence

    if own is None:
        head_or_new(store, repository, DEFAULT_BRANCH)
    else:
        own.head_or_new(store, repository, DEFAULT_BRANCH)
    install_fence(store, repository, DEFAULT_BRANCH)


def _with_crash(settings: Settings, repository: str) -> Settings:
    settings.home.mkdir(parents=True, exist_ok=True)
    counter = settings.home.absolute() / f".{repository}-publications"
    return settings.model_copy(
        update={"failpoints": f"publish.sent=kill-at:{_CRASHING_STEP}:{counter}"}
    )


def _unused_name(store: Store) -> str:
    taken = set(store.repositories())
    return next(name for n in range(1, len(taken) + 2) if (name := f"songs-{n}") not in taken)


def _export_report(store: Store, record: RunRecord, page: Path) -> Path | None:
    """Write the published report to ``page``; None if the run didn't get that far."""
    from perago.model.workspace import Download

    if record.workspace is None or record.output_ref is None:
        return None
    repository = record.workspace.repository
    found = list(store.list_objects(repository, record.output_ref, prefix="songs/report.html"))
    store.download(repository, record.output_ref, [Download(entry, page) for entry in found])
    return page if found else None


def _levels(settings: Settings, record: RunRecord) -> Iterator[RenderableType]:
    """The fence levels of the publications, which on lakeFS depend on the repository."""
    from rich.text import Text

    from perago.cli.run_logs import read_events

    if settings.store == "lakefs":
        events = read_events(settings.logs / record.id)
        levels = {e["level"] for e in events if e["step"] == AttemptStep.PUBLISH and "level" in e}
        yield Text(f"\nFence level of the publications: {', '.join(sorted(levels))}")


def _story(
    store: Store, record: RunRecord, page: Path | None, settings: Settings
) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from perago.cli.history import commit_document, history_layout
    from perago.cli.run import summary
    from perago.formatting import RUN_LENGTH
    from perago.model.run import RunStatus

    assert record.workspace is not None  # noqa: S101 - the songs pipeline has one
    repository = record.workspace.repository
    history = [
        commit_document(store, repository, commit)
        for commit in store.history(repository, record.workspace.branch)
    ]
    is_replaced = record.status is RunStatus.COMPLETED and any(
        attempt.attempt.retry_count for attempt in record.attempts
    )
    options = shlex.join(backend_options())
    looks = [
        f"perago runs {record.id[:RUN_LENGTH]} --logs {options}",
        f"perago diff main~ main --repository {repository} {options}",
        f"perago fence probe {repository} {options}"
        if settings.store == "lakefs"
        else f"perago verify {options}",
    ]
    return Group(
        summary(record, backend_options()),
        Text(
            "\nThe branch has one commit per task"
            + ("; the abandoned commit is not among them" if is_replaced else "")
        ),
        history_layout(history),
        *_levels(settings, record),
        Text.assemble("\nThe report: ", (page.as_uri() if page else "none", "bold")),
        Text("\nLook around:  " + "\n              ".join(looks), style="dim"),
    )


@contextmanager
def _worker(settings: Settings, plan: RunPlan, runs: SharedRuns) -> Iterator[None]:
    """Run ``perago start`` for a plan's modules, one task at a time, until the end of the block.

    The worker polls for the plan's tasks when the block begins; its output goes to a log. Raises
    RuntimeConfigError, with the end of that log, if the worker doesn't get so far.
    """
    modules = dict.fromkeys(step.module for step in plan.steps)
    task_names = list(dict.fromkeys(step.task_name for step in plan.steps))
    settings.home.mkdir(parents=True, exist_ok=True)
    log = settings.home.absolute() / "worker.log"
    began = time.time()
    with log.open("ab") as output:
        size_before = log.stat().st_size
        process = subprocess.Popen(
            [sys.executable, "-c", _START, "start", *modules, "-j", "1", *backend_options()],
            env=_environment(settings.failpoints),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # so that Ctrl-C does not reach it
        )
    try:
        while not _is_polling(runs, task_names, began):
            _assert_alive(process, log, size_before, began)
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        try:
            process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_polling(runs: SharedRuns, task_names: Sequence[str], since: float) -> bool:
    polls = runs.last_polls(task_names)
    return all(name in polls and polls[name][1] >= since for name in task_names)


def _assert_alive(process: subprocess.Popen[bytes], log: Path, start: int, began: float) -> None:
    if process.poll() is None and time.time() - began < _READY_SECONDS:
        return
    with log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - _TAIL_BYTES))
        end = file.read().decode(errors="replace").strip()
    what = "isn't ready" if process.returncode is None else f"ended with {process.returncode}"
    raise RuntimeConfigError(f"the demo's worker {what}: {end}", fix=f"see {log}")


def _environment(failpoints: str) -> dict[str, str]:
    """Ours, but with attempts below the demo's home: another worker may use the common root."""
    kept = {name: value for name, value in os.environ.items() if name != "PERAGO_WORKSPACE_ROOT"}
    return kept | {"PERAGO_FAILPOINTS": failpoints}
