"""What a run left in its log directory: one event per step, and each attempt's own output."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from perago.model.run import AttemptRecord, RunRecord

_IDENTITY = frozenset(
    {"at", "step", "run", "task", "reference", "seq", "iteration", "task_id", "retry", "execution"}
)
"""What every event carries, and the heading above it says."""


def read_events(logs: Path) -> Iterator[dict[str, Any]]:
    """The step events in the order they were written; a line cut short by a crash is left out."""
    path = logs / "events.jsonl"
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event


def log_documents(logs: Path, record: RunRecord) -> list[dict[str, object]]:
    """Where each attempt's output is. Programs read it there: it may be large."""
    return [
        {
            "reference": a.attempt.reference_task_name,
            "retry": a.attempt.retry_count,
            "path": str(path),
            "bytes": path.stat().st_size,
        }
        for a in record.attempts
        if (path := _output_of(logs, a)).exists()
    ]


def show_logs(logs: Path, record: RunRecord) -> None:
    """Each attempt's events, then what its task printed, as it is."""
    for a in record.attempts:
        name, retry = a.attempt.reference_task_name, a.attempt.retry_count
        click.secho(f"\n{name}, retry {retry}: {a.status}", bold=True)
        for event in read_events(logs):
            if (event.get("reference"), event.get("retry")) == (name, retry):
                click.echo(_line(event))
        path = _output_of(logs, a)
        if path.exists() and path.stat().st_size:
            click.secho(f"  output, {path}:", dim=True)
            _stream(path)


def _output_of(logs: Path, record: AttemptRecord) -> Path:
    return logs / f"{record.attempt.reference_task_name}-{record.attempt.retry_count}.log"


def _line(event: dict[str, Any]) -> str:
    fields = " ".join(
        f"{name}={value}"
        for name, value in event.items()
        if name not in _IDENTITY and value is not None
    )
    return f"  {str(event.get('at'))[11:23]} {event.get('step')!s:<14} {fields}"


def _stream(path: Path) -> None:
    sys.stdout.flush()
    with path.open("rb") as source:
        shutil.copyfileobj(source, sys.stdout.buffer)
    sys.stdout.buffer.flush()
