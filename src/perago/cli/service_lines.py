"""What a worker says of its attempts while it serves: a line for each that ends."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from perago.cli.phrasing import COMMIT_LENGTH, RUN_LENGTH, duration
from perago.cli.streams import tell
from perago.worker.watcher import NobodyWatching

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perago.errors import PeragoError
    from perago.model.attempt import Attempt


@dataclass(slots=True)
class _Seen:
    """What is known of an attempt under way."""

    began: float
    level: object = None
    ref: object = None
    path: object = None


class _Attempts(NobodyWatching):
    """Gathers what the line of an attempt says, until it has ended."""

    def __init__(self) -> None:
        self._under_way: dict[str, _Seen] = {}

    def attempt_started(self, attempt: Attempt) -> None:
        self._under_way[attempt.task_id] = _Seen(time.monotonic())

    def step_ended(self, attempt: Attempt, fields: Mapping[str, object]) -> None:
        seen = self._under_way.get(attempt.task_id)
        if seen and fields["step"] == "publish":
            seen.level, seen.ref = fields.get("level"), fields.get("ref")
            seen.path = fields.get("path")
        if "warning" in fields:
            self._warn(attempt, str(fields["warning"]))

    def attempt_ended(self, attempt: Attempt, status: str, reason: str | None) -> None:
        seen = self._under_way.pop(attempt.task_id, _Seen(time.monotonic()))
        self._say(attempt, seen, status, reason)

    def _say(self, attempt: Attempt, seen: _Seen, status: str, reason: str | None) -> None:
        raise NotImplementedError

    def _warn(self, attempt: Attempt, warning: str) -> None:
        raise NotImplementedError


class JsonAttempts(_Attempts):
    """For programs: a JSON object a line."""

    def serving(self, worker_id: str, modules: Sequence[str], jobs: int | None) -> None:
        self._line("serving", worker=worker_id, modules=list(modules), jobs=jobs)

    def orchestrator_heard(self) -> None:
        self._line("orchestrator.heard")

    def orchestrator_unheard(self, error: PeragoError) -> None:
        self._line("orchestrator.unheard", code=error.code, message=error.message, fix=error.fix)

    def trouble(self, error: PeragoError) -> None:
        self._line("trouble", code=error.code, message=error.message, fix=error.fix)

    def step_started(self, attempt: Attempt, step: str) -> None:
        if step == "publish":  # from here on it is better left to finish
            self._line("attempt.publishing", **_identity(attempt))

    def _say(self, attempt: Attempt, seen: _Seen, status: str, reason: str | None) -> None:
        self._line(
            "attempt.ended",
            **_identity(attempt),
            status=status,
            reason=reason,
            level=seen.level,
            path=seen.path,
            ref=seen.ref,
            seconds=round(time.monotonic() - seen.began, 3),
        )

    def _warn(self, attempt: Attempt, warning: str) -> None:
        self._line("warning", **_identity(attempt), warning=warning)

    def _line(self, event: str, **fields: object) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        tell(json.dumps({"at": at, "event": event, **fields}, ensure_ascii=False, default=str))


class PlainAttempts(_Attempts):
    """For people at a terminal."""

    def serving(self, worker_id: str, modules: Sequence[str], jobs: int | None) -> None:
        at_a_time = f" with {jobs} at a time" if jobs else ""
        tell(f"{_now()}serving {', '.join(modules)}{at_a_time}, as {worker_id}")

    def orchestrator_heard(self) -> None:
        tell(f"{_now()}{click.style('Conductor answers', fg='green')}")

    def orchestrator_unheard(self, error: PeragoError) -> None:
        tell(f"{_now()}{click.style('Conductor is away', fg='yellow')}: {error}")

    def trouble(self, error: PeragoError) -> None:
        tell(f"{_now()}{click.style('trouble', fg='yellow')}: {error}")

    def attempt_started(self, attempt: Attempt) -> None:
        super().attempt_started(attempt)
        tell(f"{_now()}{click.style('▸', fg='blue')} {_name(attempt)}")

    def _say(self, attempt: Attempt, seen: _Seen, status: str, reason: str | None) -> None:
        good = status == "COMPLETED"
        mark = click.style("✓" if good else "✗", fg="green" if good else "red")
        took = duration(time.monotonic() - seen.began)
        published = f"  {seen.path} {str(seen.ref)[:COMMIT_LENGTH]} ({seen.level})"
        tail = (published if good and seen.ref else "") + (f"  {reason}" if reason else "")
        tell(f"{_now()}{mark} {_name(attempt)}  {status}  {took}{tail}")

    def _warn(self, attempt: Attempt, warning: str) -> None:
        tell(f"{_now()}{click.style('warning', fg='yellow')}: {_name(attempt)}: {warning}")


class Counted(NobodyWatching):
    """How many attempts ended, for the last line."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.attempts = 0
        self.completed = 0

    def attempt_ended(self, attempt: Attempt, status: str, reason: str | None) -> None:
        del attempt, reason
        self.attempts += 1
        self.completed += status == "COMPLETED"

    def document(self) -> dict[str, object]:
        return {
            "attempts": self.attempts,
            "completed": self.completed,
            "seconds": round(time.monotonic() - self._began, 3),
        }


def _identity(attempt: Attempt) -> dict[str, object]:
    return {
        "run": attempt.workflow_instance_id,
        "task": attempt.task_name,
        "reference": attempt.reference_task_name,
        "task_id": attempt.task_id,
        "retry": attempt.retry_count,
    }


def _name(attempt: Attempt) -> str:
    retry = f", retry {attempt.retry_count}" if attempt.retry_count else ""
    return f"{attempt.task_name} ({attempt.workflow_instance_id[:RUN_LENGTH]}{retry})"


def _now() -> str:
    return click.style(f"{time.strftime('%H:%M:%S')}  ", dim=True)
