"""A run as it happens: a live table on a terminal, one JSON line per step anywhere else."""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.live import Live
from rich.progress import BarColumn, DownloadColumn, TextColumn
from rich.progress import Progress as RichProgress
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from perago.cli.output import STARTING, clear_line, console, echo_err, is_terminal, status, style_of
from perago.model.attempt import AttemptStep
from perago.model.progress import Transfer
from perago.worker.events import (
    AttemptEnded,
    AttemptStarted,
    RetryAwaited,
    StepEnded,
    StepProgressed,
    StepStarted,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rich.console import Console

    from perago.model.attempt import Attempt
    from perago.model.progress import Progress
    from perago.model.run import RunRecord
    from perago.worker.events import Observer, WorkerEvent


_STEP_WORDS = {
    AttemptStep.VALIDATE: "checking the input",
    AttemptStep.DIRECTORY: "making a private directory",
    AttemptStep.FETCH: "opening the workspace",  # fetching it, or starting Spark
    AttemptStep.PRE: "checking the input",
    AttemptStep.BODY: "running",
    AttemptStep.POST: "looking for changes",
    AttemptStep.CHECKS: "checking the data",
    AttemptStep.FENCE1: "asking whether it still counts",
    AttemptStep.STAGE_BRANCH: "staging",
    AttemptStep.STAGE_UPLOAD: "uploading changes",
    AttemptStep.STAGE_COMMIT: "committing",
    AttemptStep.FENCE2: "asking whether it still counts",
    AttemptStep.PUBLISH: "publishing",
    AttemptStep.REPORT: "reporting",
}


@contextmanager
def watching(record: RunRecord, *, elsewhere: Observer | None = None) -> Iterator[Observer]:
    """A live table if standard error is a terminal; otherwise JSON lines, or what is given."""
    if not is_terminal(sys.stderr):
        yield elsewhere or JsonLines()
        return
    above = console(stderr=True)
    display = LiveTable([step.reference for step in record.plan.steps], above)
    display.show_past(record)
    with Live(display, console=above, refresh_per_second=8, transient=True):
        yield display


@contextmanager
def transferring(what: str) -> Iterator[Callable[[Transfer], None]]:
    """A progress bar for one bulk transfer; silent where standard error is no terminal."""
    if not is_terminal(sys.stderr):
        yield lambda _transfer: None
        return
    bar = RichProgress(
        TextColumn(what),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[objects]} objects"),
        console=console(stderr=True),
        transient=True,
    )
    clear_line()
    with bar:
        task = bar.add_task(what, total=None, objects=0)

        def show(transfer: Transfer) -> None:
            bar.update(
                task,
                completed=transfer.bytes,
                total=transfer.total_bytes,
                objects=f"{transfer.objects:,}/{transfer.total_objects:,}",
            )

        yield show


class Warnings:
    """Each warning once for a whole run: what is said every time isn't heard.

    An attempt's process says it once for itself, and the next process again.
    """

    def __init__(self) -> None:
        self._said: set[object] = set()

    def are_new_in(self, fields: Mapping[str, object]) -> bool:
        warning = fields.get("warning")
        is_new = warning is not None and warning not in self._said
        self._said.add(warning)
        return is_new


class JsonLines:
    """Each step's event, as it stands in the journal, on standard error; each warning once."""

    def __init__(self) -> None:
        self._warnings = Warnings()

    def observe(self, event: WorkerEvent) -> None:
        match event:
            case StepEnded(_, fields):
                if "warning" not in fields or self._warnings.are_new_in(fields):
                    self._line(fields)
            case AttemptEnded(attempt):
                self._line(
                    {
                        "step": "attempt.ended",
                        "run": attempt.workflow_instance_id,
                        "reference": attempt.reference_task_name,
                        "task_id": attempt.task_id,
                        "retry": attempt.retry_count,
                        "status": event.text,
                        "reason": event.reason,
                    }
                )
            case _:
                pass

    def _line(self, fields: Mapping[str, object]) -> None:
        echo_err(json.dumps(fields, ensure_ascii=False, default=str))


class PlainLines:
    """A line of prose per attempt and step, for people who read it in a file."""

    def __init__(self) -> None:
        self._warnings = Warnings()

    def observe(self, event: WorkerEvent) -> None:
        match event:
            case AttemptStarted(execution):
                attempt = execution.attempt
                retry = f" (retry {attempt.retry_count})" if attempt.retry_count else ""
                echo_err(f"{attempt.reference_task_name}{retry}")
            case StepStarted(_, step):
                echo_err(f"    {_STEP_WORDS.get(step, step)}")
            case StepEnded(attempt, fields) if self._warnings.are_new_in(fields):
                echo_err(_warning(attempt, fields))
            case AttemptEnded(reason=reason):
                echo_err(f"    {event.text}" + (f": {reason}" if reason else ""))
            case _:
                pass


class _Row:
    """One step of the pipeline, as the live table shows it."""

    def __init__(self) -> None:
        self.status = ""
        self.detail = ""
        self.retry = 0
        self.began: float | None = None
        self.seconds = 0.0
        self.progress: Progress | None = None


class LiveTable:
    """A row per step: where it is, how far a transfer got, how long it has taken.

    Warnings go ``above`` it, where they stay.
    """

    def __init__(self, references: list[str], above: Console) -> None:
        self._rows = {reference: _Row() for reference in references}
        self._above = above
        self._warnings = Warnings()

    def show_past(self, record: RunRecord) -> None:
        for past in record.attempts:
            row = self._rows[past.attempt.reference_task_name]
            if past.ended_at is not None:
                row.status, row.retry = past.status, past.attempt.retry_count
                row.seconds += past.ended_at - (past.started_at or past.ended_at)
        for row in self._rows.values():
            if row.status != "COMPLETED":
                row.detail = STARTING
                return

    def observe(self, event: WorkerEvent) -> None:
        match event:
            case AttemptStarted():
                self._started(event.attempt)
            case StepStarted(attempt, step):
                row = self._row(attempt)
                row.detail, row.progress = _STEP_WORDS.get(step, step), None
            case StepEnded(attempt, fields) if self._warnings.are_new_in(fields):
                self._above.print(Text(_warning(attempt, fields), style="bold yellow"))
            case StepProgressed(attempt, _, progress):
                self._row(attempt).progress = progress
            case AttemptEnded():
                self._ended(event)
            case RetryAwaited(seconds):
                self._waiting(seconds)
            case _:
                pass

    def _started(self, attempt: Attempt) -> None:
        row = self._row(attempt)
        row.status, row.detail, row.retry = "IN_PROGRESS", STARTING, attempt.retry_count
        row.began, row.progress = time.monotonic(), None

    def _ended(self, ended: AttemptEnded) -> None:
        row = self._row(ended.attempt)
        if row.began is not None:
            row.seconds += time.monotonic() - row.began
        row.status, row.detail = ended.text, ended.reason or ""
        row.began, row.progress = None, None

    def _waiting(self, seconds: float) -> None:
        for row in self._rows.values():
            if row.status not in ("", "COMPLETED", "IN_PROGRESS"):
                row.detail = f"trying again in {seconds:.0f} s" + _after_reason(row.detail)
                return

    def _row(self, attempt: Attempt) -> _Row:
        return self._rows[attempt.reference_task_name]

    def __rich__(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for reference, row in self._rows.items():
            elapsed = row.seconds + (time.monotonic() - row.began if row.began else 0)
            table.add_row(
                symbol(row.status),
                reference,
                Text(f"retry {row.retry}" if row.retry else "", style="yellow"),
                Text(f"{elapsed:.1f} s" if elapsed else "", style="dim"),
                self._doing(row),
            )
        return table

    def _doing(self, row: _Row) -> Table | Text:
        if row.progress is None or not row.progress.in_words:
            return Text(row.detail, style="dim", overflow="ellipsis", no_wrap=True)
        line = Table.grid(padding=(0, 1))
        line.add_row(
            Text(row.detail, style="dim"),
            ProgressBar(total=1.0, completed=row.progress.share, width=20),
            Text(row.progress.in_words, style="dim", overflow="ellipsis", no_wrap=True),
        )
        return line


def _warning(attempt: Attempt, fields: Mapping[str, object]) -> str:
    return f"warning: {attempt.reference_task_name}: {fields['warning']}"


def _after_reason(detail: str) -> str:
    return " · " + detail.rpartition(" · ")[2] if detail else ""


def symbol(status: str) -> Text:
    """How an attempt stands, in one character; that there is none yet is the empty status."""
    plain = status.partition(" ")[0]
    symbols = {"": "·", "COMPLETED": "✓", "IN_PROGRESS": "▸", "SCHEDULED": "·"}
    return Text(symbols.get(plain, "✗"), style=style_of(plain) if plain else "dim")


def attempts_table(record: RunRecord) -> Table:
    """Every attempt of a run, for people."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("", "step", "retry", "seconds", "status", "output ref / reason"):
        table.add_column(heading, overflow="fold")
    for a in record.attempts:
        seconds = (a.ended_at - a.started_at) if a.ended_at and a.started_at else None
        table.add_row(
            symbol(a.status),
            a.attempt.reference_task_name,
            str(a.attempt.retry_count),
            f"{seconds:.2f}" if seconds is not None else "",
            status(a.status),
            a.output_ref[:16] if a.output_ref else (a.reason or ""),
        )
    return table
