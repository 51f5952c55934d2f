"""A run on this machine as it happens: a live table on a terminal, lines of text or JSON elsewhere.

Also the progress bar of a bulk transfer.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perago.cli.attempt_view import AttemptTracker, AttemptView, TextLines, status_words
from perago.cli.output import STARTING, clear_line, console, echo_err, is_terminal, style_of, table
from perago.formatting import COMMIT_LENGTH, duration, shorten_ids
from perago.model.attempt import TaskStatus
from perago.worker.events import AttemptEnded, RetryAwaited, StepEnded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from perago.cli.output import Output
    from perago.model.progress import Transfer
    from perago.model.run import RunRecord
    from perago.worker.events import Observer, WorkerEvent


@contextmanager
def run_view(record: RunRecord, output: Output) -> Iterator[Observer]:
    """Show a run's attempts on standard error: JSON if asked for, else a live table or text."""
    if output.json_lines:
        yield JsonLines()
        return
    if not is_terminal(sys.stderr):
        yield RunLines([step.reference for step in record.plan.steps])
        return
    from rich.live import Live

    above = console(stderr=True)
    display = LiveTable([step.reference for step in record.plan.steps], above)
    display.show_past(record)
    with Live(display, console=above, refresh_per_second=8, transient=True):
        yield display


class _Warnings:
    """Lets each warning through once for a whole run: every process of a run repeats it."""

    def __init__(self) -> None:
        self._seen: set[object] = set()

    def is_new(self, warning: object) -> bool:
        is_new = warning not in self._seen
        self._seen.add(warning)
        return is_new


class JsonLines:
    """Each step's event, as the run's log has it, on standard error; each warning once."""

    def __init__(self) -> None:
        self._warnings = _Warnings()

    def observe(self, event: WorkerEvent) -> None:
        match event:
            case StepEnded(_, fields):
                if "warning" not in fields or self._warnings.is_new(fields["warning"]):
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


class RunLines(TextLines):
    """The lines of one run, where each warning is shown once."""

    def __init__(self, references: list[str]) -> None:
        super().__init__(max(map(len, references), default=0))
        self._warnings = _Warnings()
        self._last: AttemptView | None = None

    def warned(self, view: AttemptView, warning: str) -> None:
        if self._warnings.is_new(warning):
            super().warned(view, warning)

    def ended(self, view: AttemptView) -> None:
        super().ended(view)
        self._last = view

    def observe(self, event: WorkerEvent) -> None:
        super().observe(event)
        if isinstance(event, RetryAwaited) and self._last is not None:
            if event.seconds >= 1:
                echo_err(f"  {self._last.reference}: trying again in {event.seconds:.0f} s")
            self._last = None  # the events that follow only count down


class LiveTable(AttemptTracker):
    """A row for each step: what it does, how far a transfer is, how long all its attempts took.

    Warnings go ``above`` it, where they stay.
    """

    def __init__(self, references: list[str], above: Console) -> None:
        super().__init__()
        self._rows = {reference: AttemptView(reference) for reference in references}
        self._seconds = dict.fromkeys(references, 0.0)
        self._began_at: dict[str, float] = {}
        self._details: dict[str, str] = {}
        self._above = above
        self._warnings = _Warnings()

    def show_past(self, record: RunRecord) -> None:
        """Begin with the attempts that have ended already."""
        for past in record.attempts:
            if past.ended_at is not None:
                view = AttemptView.of_record(past, past.ended_at)
                self._rows[view.reference] = view
                self._seconds[view.reference] += view.seconds or 0.0
        unfinished = (r for r, view in self._rows.items() if view.status != TaskStatus.COMPLETED)
        if first := next(unfinished, None):
            self._details[first] = STARTING

    def started(self, view: AttemptView) -> None:
        self._began_at[view.reference] = time.monotonic()
        self._details[view.reference] = STARTING
        self._rows[view.reference] = view

    def changed(self, view: AttemptView) -> None:
        self._details[view.reference] = view.doing
        self._rows[view.reference] = view

    def warned(self, view: AttemptView, warning: str) -> None:
        from rich.text import Text

        if self._warnings.is_new(warning):
            words = f"warning: {view.reference}: {warning}"
            self._above.print(Text(words, style="bold yellow"))

    def ended(self, view: AttemptView) -> None:
        self._began_at.pop(view.reference, None)
        self._seconds[view.reference] += view.seconds or 0.0
        self._details[view.reference] = view.result
        self._rows[view.reference] = view

    def observe(self, event: WorkerEvent) -> None:
        super().observe(event)
        if isinstance(event, RetryAwaited):
            failed = [v for v in self._rows.values() if v.has_ended and v.symbol != "✓"]
            for view in failed[:1]:
                self._details[view.reference] = f"trying again in {event.seconds:.0f} s · " + (
                    view.result
                )

    def __rich__(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        rows = Table.grid(padding=(0, 2))
        for reference, view in self._rows.items():
            began = self._began_at.get(reference)
            elapsed = self._seconds[reference] + (time.monotonic() - began if began else 0)
            rows.add_row(
                symbol(view),
                reference,
                Text(f"retry {view.retry}" if view.retry else "", style="yellow"),
                Text(f"{elapsed:.1f} s" if elapsed else "", style="dim"),
                self._doing(view),
            )
        return rows

    def _doing(self, view: AttemptView) -> Table | Text:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        words = self._details.get(view.reference, "")
        if view.has_ended or view.progress is None or not view.progress.in_words:
            return Text(words, style="dim", overflow="ellipsis", no_wrap=True)
        line = Table.grid(padding=(0, 1))
        line.add_row(
            Text(words, style="dim"),
            ProgressBar(total=1.0, completed=view.progress.share, width=20),
            Text(view.progress.in_words, style="dim", overflow="ellipsis", no_wrap=True),
        )
        return line


def symbol(view: AttemptView) -> Text:
    """An attempt's state in one colored character."""
    from rich.text import Text

    plain = view.status.partition(" ")[0]
    return Text(view.symbol, style=style_of(plain) if plain else "dim")


def attempts_table(record: RunRecord) -> Table:
    """Every attempt of a run that has ended, with its commit or its reason."""
    from rich.text import Text

    rows: list[tuple[Text | str, ...]] = []
    for one in record.attempts:
        view = AttemptView.of_record(one, record.updated_at)
        rows.append(
            (
                symbol(view),
                view.reference,
                str(view.retry),
                duration(view.seconds),
                Text(status_words(view.status), style=style_of(view.status)),
                view.ref[:COMMIT_LENGTH] if view.ref else shorten_ids(view.reason or ""),
            )
        )
    return table(("", "step", "retry", "took", "status", "commit / reason"), rows, whole=5)


@contextmanager
def transferring(what: str) -> Iterator[Callable[[Transfer], None]]:
    """A progress bar for one bulk transfer; nothing where standard error is no terminal."""
    if not is_terminal(sys.stderr):
        yield lambda _transfer: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    bar = Progress(
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
