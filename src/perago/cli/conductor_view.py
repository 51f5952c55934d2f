"""A run on Conductor as it happens: a live table on a terminal, lines of text or JSON elsewhere."""

from __future__ import annotations

import json
import shlex
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from perago.cli.attempt_view import AttemptView, echo_attempt
from perago.cli.local_view import symbol
from perago.cli.options import backend_options
from perago.cli.output import console, echo_err, is_terminal
from perago.formatting import RUN_LENGTH, iso
from perago.model.run import RunStatus
from perago.operations.run_follow import UNPOLLED_SECONDS, AttemptChange, attempt_changes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType
    from rich.table import Table

    from perago.cli.output import Output
    from perago.model.run import AttemptRecord, RunRecord
    from perago.operations.run_follow import RunSnapshot


class FollowedView(Protocol):
    def show(self, snapshot: RunSnapshot) -> None:
        """Show the run as it is now."""
        ...


@contextmanager
def followed_view(record: RunRecord, output: Output) -> Iterator[FollowedView]:
    """Show a run's attempts on standard error: JSON if asked for, else a live table or text."""
    if output.json_lines:
        yield FollowedJson()
        return
    if not is_terminal(sys.stderr):
        yield FollowedLines([step.reference for step in record.plan.steps])
        return
    from rich.live import Live

    above = console(stderr=True)
    table = FollowedTable(record, above)
    with Live(table, console=above, refresh_per_second=4, transient=True):
        yield table


class _Condition(NamedTuple):
    """Something that holds for a while: what to print when it begins, and when it ends."""

    begins: str
    ends: str


class Conditions:
    """Finds out which conditions beside the attempts have begun or ended since the last look."""

    def __init__(self) -> None:
        self._holding: dict[str, _Condition] = {}

    def changes(self, snapshot: RunSnapshot) -> Iterator[str]:
        before, self._holding = self._holding, dict(self._found(snapshot))
        yield from (one.begins for name, one in self._holding.items() if name not in before)
        if snapshot.record.status.is_active:
            yield from (one.ends for name, one in before.items() if name not in self._holding)

    @staticmethod
    def _found(snapshot: RunSnapshot) -> Iterator[tuple[str, _Condition]]:
        record, options = snapshot.record, backend_options()
        # A worker for the pipeline's module has all tasks of the pipeline.
        module = record.plan.target.rpartition(":")[0] or "MODULE"
        start = shlex.join(["perago", "start", module, *options])
        for name in snapshot.unpolled:
            missing = (
                f"no worker has polled for {name} in the last {UNPOLLED_SECONDS:.0f} seconds: "
                f"unless all are busy, start one with `{start}`"
            )
            yield f"worker of {name}", _Condition(missing, f"{name} has a worker now")
        if snapshot.problem:
            unreachable = (
                f"{snapshot.problem}; the run continues without this command, which retries"
            )
            yield "unreachable", _Condition(unreachable, "Conductor answers again")
        if record.status is RunStatus.PAUSED:
            resume = shlex.join(["perago", "run", "--resume", record.id[:RUN_LENGTH], *options])
            yield "paused", _Condition(f"the run is paused: `{resume}`", "the run goes on")


class FollowedLines:
    """Lines for people on standard error: each attempt's start and end, on which worker."""

    def __init__(self, references: list[str]) -> None:
        self._width = max(map(len, references), default=0)
        self._conditions = Conditions()
        self._last: RunRecord | None = None

    def show(self, snapshot: RunSnapshot) -> None:
        now = time.time()
        for change, record in attempt_changes(self._last, snapshot.record):
            view = AttemptView.of_record(record, now)
            if change is not AttemptChange.SCHEDULED:
                echo_attempt(view, view.name.ljust(self._width))
            elif view.wait_seconds:
                echo_err(f"  {view.reference}: {view.doing}")
        self._last = snapshot.record
        for words in self._conditions.changes(snapshot):
            echo_err(f"warning: {words}")


class FollowedJson:
    """A JSON line on standard error for each change of an attempt."""

    def __init__(self) -> None:
        self._conditions = Conditions()
        self._last: RunRecord | None = None

    def show(self, snapshot: RunSnapshot) -> None:
        for change, record in attempt_changes(self._last, snapshot.record):
            echo_err(_json(change, record))
        self._last = snapshot.record
        for words in self._conditions.changes(snapshot):
            echo_err(json.dumps({"warning": words}))


def _json(change: AttemptChange, record: AttemptRecord) -> str:
    attempt = record.attempt
    fields = {
        "step": f"attempt.{change}",
        "run": attempt.workflow_instance_id,
        "task": attempt.task_name,
        "reference": attempt.reference_task_name,
        "task_id": attempt.task_id,
        "retry": attempt.retry_count,
        "status": record.status,
        "worker": record.worker_id,
        "due_at": iso(record.due_at) if change is AttemptChange.SCHEDULED else None,
        "started_at": iso(record.started_at),
        "ended_at": iso(record.ended_at),
        "reason": record.reason,
        "output_ref": record.output_ref,
    }
    return json.dumps({k: v for k, v in fields.items() if v is not None}, ensure_ascii=False)


class FollowedTable:
    """A row for each attempt, and one for each step that has none yet; warnings stay above it."""

    def __init__(self, record: RunRecord, above: Console) -> None:
        self._record = record
        self._above = above
        self._conditions = Conditions()
        self._trouble: str | None = None

    def show(self, snapshot: RunSnapshot) -> None:
        from rich.text import Text

        self._record, self._trouble = snapshot.record, snapshot.problem
        for words in self._conditions.changes(snapshot):
            # The terminal breaks the line, so that a command can be copied in one piece.
            self._above.print(Text(f"warning: {words}", style="bold yellow"), soft_wrap=True)

    def __rich__(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        table = rows_of(self._record, time.time())
        if self._trouble is None:
            return table
        return Group(table, Text("Conductor doesn't answer; retrying", style="yellow"))


def rows_of(record: RunRecord, now: float) -> Table:
    """The run at one moment: what each attempt does or did, where, and for how long."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    views = [AttemptView.of_record(one, now) for one in record.attempts]
    references = [step.reference for step in record.plan.steps]
    references += [view.reference for view in views]
    for reference in dict.fromkeys(references):
        mine = [view for view in views if view.reference == reference]
        for view in mine or [AttemptView(reference)]:
            is_retried = bool(mine) and view is not mine[-1]
            table.add_row(
                symbol(view),
                Text(reference, style="dim" if is_retried else ""),
                Text(f"retry {view.retry}" if view.retry else "", style="yellow"),
                Text("" if view.seconds is None else f"{view.seconds:.1f} s", style="dim"),
                Text(_words(view), style="dim", overflow="ellipsis", no_wrap=True),
            )
    return table


def _words(view: AttemptView) -> str:
    if not view.status:
        return ""
    if not view.has_ended:
        return view.doing
    return "  ".join(filter(None, [view.result, f"on {view.worker}" if view.worker else ""]))
