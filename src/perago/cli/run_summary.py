"""How a run stands when nobody works on it any more: for programs, for people, and the way on."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from perago.errors import PublishFenceError, PublishUnknownError, WrongLandingError
from perago.model.attempt import TaskStatus
from perago.model.run import RunStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from perago.model.run import RunRecord


_INTERRUPTED = 130
_BRANCH_ELSEWHERE = (PublishFenceError.code, WrongLandingError.code, PublishUnknownError.code)
"""Reasons that another attempt from the same commit would only run into again."""


def exit_code(record: RunRecord) -> int:
    codes = {
        RunStatus.COMPLETED: 0,
        RunStatus.PAUSED: _INTERRUPTED,
        RunStatus.RUNNING: _INTERRUPTED,
    }
    return codes.get(record.status, 1)


def as_json(record: RunRecord) -> dict[str, object]:
    from perago.formatting import iso

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


def summary(record: RunRecord, place: Sequence[str]) -> RenderableType:
    """Every attempt, how the run ended, and the way on; ``place`` as for :func:`way_on`."""
    from rich.console import Group
    from rich.text import Text

    from perago.cli.local_view import attempts_table
    from perago.cli.output import status

    lines: list[RenderableType] = [attempts_table(record)]
    lines.append(Text.assemble(("run ", "dim"), record.id, "  ", status(record.status)))
    if record.reason and not _says_the_table(record, record.reason):
        lines.append(Text(f"  {record.reason}"))
    if further := way_on(record, place):
        # Left to the terminal to break, so that the command can be copied in one piece.
        lines.append(Text(f"  {further}", style="bold", no_wrap=True, overflow="ignore"))
    return Group(*lines)


def _says_the_table(record: RunRecord, reason: str) -> bool:
    last = record.attempts[-1].reason if record.attempts else None
    return last is not None and last in reason


def way_on(record: RunRecord, place: Sequence[str] = ()) -> str | None:
    """What a person does next, with the whole command; None if there is nothing left to do.

    ``place`` is what had to be said on the command line to find this run, and has to again.
    """
    if record.status in (RunStatus.COMPLETED, RunStatus.TERMINATED):
        return None

    def command(*words: str) -> str:
        return shlex.join(["perago", *words, *place])

    resume, again = command("run", "--resume", record.id), command("recover", record.id)
    if record.status is RunStatus.RUNNING:
        cancel = command("cancel", record.id)
        return f"it goes on by itself: follow it again with `{resume}`, or end it with `{cancel}`"
    last = record.attempts[-1] if record.attempts else None
    if last and last.status is TaskStatus.FAILED_WITH_TERMINAL_ERROR:
        return f"a retry can't help: mend the input, then start again: {again}"
    if last and (last.reason or "").partition(":")[0] in _BRANCH_ELSEWHERE:
        look = command("history", *_branch(record))
        return f"a retry can't help: look at `{look}`, then go on from there: {again}"
    return f"go on with: {resume}"


def _branch(record: RunRecord) -> list[str]:
    """The run's branch as options."""
    from perago.cli.refs import DEFAULT_BRANCH

    if record.workspace is None:
        return []
    branch = record.workspace.branch
    named = [] if branch == DEFAULT_BRANCH else ["--branch", branch]
    return ["--repository", record.workspace.repository, *named]
