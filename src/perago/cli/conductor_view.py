"""A run on Conductor as it happens: each attempt as a row that changes, or as lines elsewhere."""

from __future__ import annotations

import json
import math
import shlex
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from perago.cli.local_view import symbol
from perago.cli.options import backend_options
from perago.cli.output import console, echo_err, is_terminal
from perago.formatting import COMMIT_LENGTH, iso
from perago.model.attempt import TaskStatus
from perago.model.run import RunStatus
from perago.operations.run_follow import UNPOLLED_SECONDS, AttemptChange, attempt_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console, RenderableType

    from perago.model.run import AttemptRecord, RunRecord
    from perago.operations.run_follow import RunSnapshot


class View(Protocol):
    def show(self, snapshot: RunSnapshot) -> None:
        """The run as it is now."""
        ...


@contextmanager
def followed(record: RunRecord, *, in_words: bool = False) -> Iterator[View]:
    """A live table if standard error is a terminal; otherwise lines: of JSON, or of prose."""
    if not is_terminal(sys.stderr):
        yield Lines(_words if in_words else _json)
        return
    above = console(stderr=True)
    table = FollowedTable(record, above)
    with Live(table, console=above, refresh_per_second=4, transient=True):
        yield table


class Remark(NamedTuple):
    """Something that holds for a while: what is said when it begins, and when it is over."""

    words: str
    over: str


class Asides:
    """What is worth a remark beside the run itself, told when it changes."""

    def __init__(self) -> None:
        self._holding: dict[str, Remark] = {}

    def new_in(self, snapshot: RunSnapshot) -> Iterator[str]:
        before, self._holding = self._holding, dict(self._remarks(snapshot))
        yield from (one.words for about, one in self._holding.items() if about not in before)
        if snapshot.record.status.is_active:
            yield from (one.over for about, one in before.items() if about not in self._holding)

    @staticmethod
    def _remarks(snapshot: RunSnapshot) -> Iterator[tuple[str, Remark]]:
        record, place = snapshot.record, backend_options()
        # The module of a pipeline is as good as its tasks' own: who serves it has all of them.
        module = record.plan.target.rpartition(":")[0] or "MODULE"
        start = shlex.join(["perago", "start", module, *place])
        for name in snapshot.unpolled:
            missing = (
                f"no worker has asked for {name} in the last {UNPOLLED_SECONDS:.0f} seconds: "
                f"unless all are busy, start one with `{start}`"
            )
            yield f"worker of {name}", Remark(missing, f"{name} has a worker now")
        if snapshot.problem:
            away = f"{snapshot.problem}; the run goes on by itself, and is asked for again"
            yield "away", Remark(away, "Conductor answers again")
        if record.status is RunStatus.PAUSED:
            resume = shlex.join(["perago", "run", "--resume", record.id, *place])
            paused = f"the run is paused: `{resume}` goes on with it"
            yield "paused", Remark(paused, "the run goes on")


class Lines:
    """A line for each change that an attempt takes, on standard error."""

    def __init__(self, line: Callable[[AttemptChange, AttemptRecord], str | None]) -> None:
        self._line = line
        self._asides = Asides()
        self._last: RunRecord | None = None

    def show(self, snapshot: RunSnapshot) -> None:
        for change, attempt in attempt_changes(self._last, snapshot.record):
            if line := self._line(change, attempt):
                echo_err(line)
        self._last = snapshot.record
        for words in self._asides.new_in(snapshot):
            echo_err(json.dumps({"warning": words}) if self._line is _json else f"warning: {words}")


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


def _words(change: AttemptChange, record: AttemptRecord) -> str | None:
    """As in a live table, but for good. That something waits is said by what it does next."""
    retry = f" (retry {record.attempt.retry_count})" if record.attempt.retry_count else ""
    name = f"{record.attempt.reference_task_name}{retry}"
    if change is AttemptChange.SCHEDULED:
        return None
    if change is AttemptChange.STARTED:
        return f"{name}: running on {record.worker_id}"
    return f"{name}: {record.status}" + (f": {record.reason}" if record.reason else "")


class FollowedTable:
    """A row for each attempt, and one for each step that has none yet; remarks stay above it."""

    def __init__(self, record: RunRecord, above: Console) -> None:
        self._record = record
        self._above = above
        self._asides = Asides()
        self._trouble: str | None = None

    def show(self, snapshot: RunSnapshot) -> None:
        self._record, self._trouble = snapshot.record, snapshot.problem
        for words in self._asides.new_in(snapshot):
            # Left to the terminal to break, so that a command can be copied in one piece.
            self._above.print(Text(f"warning: {words}", style="bold yellow"), soft_wrap=True)

    def __rich__(self) -> RenderableType:
        table = rows_of(self._record, time.time())
        if self._trouble is None:
            return table
        return Group(table, Text("Conductor doesn't answer; asking again", style="yellow"))


def rows_of(record: RunRecord, now: float) -> Table:
    """The run at one moment: what each attempt does or did, where, and for how long."""
    table = Table.grid(padding=(0, 2))
    references = [step.reference for step in record.plan.steps]
    references += [a.attempt.reference_task_name for a in record.attempts]
    for reference in dict.fromkeys(references):
        mine = [a for a in record.attempts if a.attempt.reference_task_name == reference]
        if not mine:
            table.add_row(symbol(""), reference, "", "", "")
        for number, attempt in enumerate(mine):
            retry = attempt.attempt.retry_count
            table.add_row(
                symbol(attempt.status),
                Text(reference, style="dim" if number < len(mine) - 1 else ""),
                Text(f"retry {retry}" if retry else "", style="yellow"),
                Text(_taken(attempt, now), style="dim"),
                Text(_doing(attempt, now), style="dim", overflow="ellipsis", no_wrap=True),
            )
    return table


def _taken(record: AttemptRecord, now: float) -> str:
    if record.started_at is None:
        return ""
    # The two clocks may differ: nothing takes less than no time.
    return f"{max((record.ended_at or now) - record.started_at, 0):.1f} s"


def _doing(record: AttemptRecord, now: float) -> str:
    worker = record.worker_id or "a worker"
    if record.status is TaskStatus.SCHEDULED:
        if (wait := record.due_at - now) > 0:
            return f"trying again in {math.ceil(wait)} s"
        return "waiting for a worker"
    if record.status is TaskStatus.IN_PROGRESS:
        again = f", delivered {record.poll_count} times" if record.poll_count > 1 else ""
        return f"running on {worker}{again}"
    if record.status is TaskStatus.COMPLETED:
        ref = f"→ {record.output_ref[:COMMIT_LENGTH]}  " if record.output_ref else ""
        return f"{ref}on {worker}"
    said = f": {record.reason}" if record.reason else ""
    return f"{record.status}{said}" + (f"  on {worker}" if record.worker_id else "")
