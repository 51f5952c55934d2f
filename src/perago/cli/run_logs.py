"""The logs of a run: the events of its steps, and what its tasks printed."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import click

from perago.formatting import iso
from perago.ports.orchestrator import SharedRuns

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from perago.model.run import AttemptRecord, RunRecord
    from perago.ports.orchestrator import Runs

_IDENTITY = frozenset(
    {"at", "step", "run", "task", "reference", "seq", "iteration", "task_id", "retry", "execution"}
)
"""Fields that every event has, and the heading shows."""


class Logs(Protocol):
    """The logs of one run."""

    def document(self) -> dict[str, object]:
        """For programs."""
        ...

    def show(self) -> None:
        """For people, on standard output, attempt by attempt."""
        ...


def logs_of(runs: Runs, directory: Path, record: RunRecord) -> Logs:
    """The logs that Conductor has, or those below ``directory`` for a run on this machine."""
    if isinstance(runs, SharedRuns):
        return ConductorLogs(runs, record)
    return LocalLogs(directory / record.id, record)


@dataclass(frozen=True, slots=True)
class ConductorLogs:
    """What workers sent to Conductor: the end of what each attempt printed."""

    runs: SharedRuns
    record: RunRecord

    def document(self) -> dict[str, object]:
        logs = [
            {
                "reference": a.attempt.reference_task_name,
                "retry": a.attempt.retry_count,
                "lines": [{"at": iso(at), "line": line} for at, line in lines],
            }
            for a in self.record.attempts
            if (lines := self.runs.task_logs(a.attempt.task_id))
        ]
        return {"logs": logs}

    def show(self) -> None:
        for a in self.record.attempts:
            _head(a)
            for at, line in self.runs.task_logs(a.attempt.task_id):
                click.echo(f"  {str(iso(at))[11:23]} {line}")


@dataclass(frozen=True, slots=True)
class LocalLogs:
    """The files of a run on this machine."""

    directory: Path
    record: RunRecord

    def document(self) -> dict[str, object]:
        """Events, and the path of each attempt's output, which may be large."""
        logs = [
            {
                "reference": a.attempt.reference_task_name,
                "retry": a.attempt.retry_count,
                "path": str(path),
                "bytes": path.stat().st_size,
            }
            for a in self.record.attempts
            if (path := self._output_of(a)).exists()
        ]
        return {"events": list(read_events(self.directory)), "logs": logs}

    def show(self) -> None:
        """Print each attempt's events, then what its task printed."""
        for a in self.record.attempts:
            _head(a)
            name, retry = a.attempt.reference_task_name, a.attempt.retry_count
            for event in read_events(self.directory):
                if (event.get("reference"), event.get("retry")) == (name, retry):
                    click.echo(_line(event))
            path = self._output_of(a)
            if path.exists() and path.stat().st_size:
                click.secho(f"  output, {path}:", dim=True)
                _stream(path)

    def _output_of(self, record: AttemptRecord) -> Path:
        attempt = record.attempt
        return self.directory / f"{attempt.reference_task_name}-{attempt.retry_count}.log"


def read_events(logs: Path) -> Iterator[dict[str, Any]]:
    """The events in the order they were written, without lines that a crash cut short."""
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


def _head(record: AttemptRecord) -> None:
    name, retry = record.attempt.reference_task_name, record.attempt.retry_count
    click.secho(f"\n{name}, retry {retry}: {record.status}", bold=True)


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
