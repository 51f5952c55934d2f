"""Lineage of attempts: builds OpenLineage events from worker events, and sends them.

It is on if OpenLineage is configured and the ``lineage`` extra is installed.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from importlib.util import find_spec
from queue import Full, Queue
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from perago.model.attempt import AttemptStep, TaskStatus
from perago.model.outcome import PublishPath
from perago.model.workspace import key_prefix
from perago.toolchain.lineage_config import is_configured, job_namespace
from perago.worker.events import AttemptEnded, AttemptStarted, StepEnded, StepStarted
from perago.worker.telemetry_config import log_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from openlineage.client import OpenLineageClient

    from perago.model.attempt import Attempt, Execution
    from perago.settings import Settings
    from perago.worker.events import Observer, WorkerEvent


_FAILURES = (TaskStatus.FAILED, TaskStatus.FAILED_WITH_TERMINAL_ERROR, TaskStatus.TIMED_OUT)
QUEUE_LENGTH = 1000
"""More is dropped: the receiver is unreachable or far too slow."""
CLOSE_SECONDS = 5.0
"""How long the last sending may take: as long as OpenLineage allows for one request."""
# The URL of a git remote may hold a password, and may not be that of the task's code.
_NO_SOURCES = {"facets": {"source_code_location": {"disabled": True}}}
_NOTHING_NEW = (PublishPath.UNCHANGED, PublishPath.READ_ONLY)


class Transition(StrEnum):
    """OpenLineage's words. The output of an aborted run does not count."""

    START = "START"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"
    ABORT = "ABORT"


@dataclass(frozen=True, slots=True)
class Dataset:
    """A workspace, ``repository/prefix``, at a commit."""

    name: str
    commit: str


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one rule for a table. ``broken_by`` counts rows, if they can be counted."""

    phase: str
    rule: str
    holds: bool
    broken_by: int | None = None


@dataclass(frozen=True, slots=True)
class LineageEvent:
    """The start or end of an execution, with all that is known of it by then.

    ``files`` is how many were written to the output.
    """

    execution: Execution
    transition: Transition
    at: datetime
    input: Dataset | None = None
    output: Dataset | None = None
    checks: tuple[CheckResult, ...] = ()
    files: int | None = None
    reason: str | None = None


@contextmanager
def lineage_observers(settings: Settings) -> Iterator[list[Observer]]:
    """The observer that sends lineage; none if it is not configured or not installed."""
    if not is_configured(os.environ):
        yield []
        return
    if find_spec("openlineage") is None:
        log_problem(
            "no lineage is sent: OpenLineage is not installed",
            fix="pip install 'perago-runtime[lineage]', or set OPENLINEAGE_DISABLED=true",
        )
        yield []
        return
    sender = Sender(job_namespace(os.environ), dataset_namespace(settings), _log_lost)
    observer = LineageObserver(sender.send)
    try:
        yield [observer]
    finally:
        observer.close()
        sender.close()


def dataset_namespace(settings: Settings) -> str:
    """The store of the workspaces: lakeFS by its address, or a directory of this machine."""
    if settings.store == "lakefs":
        return f"lakefs://{urlsplit(settings.lakefs_endpoint or '').netloc}"
    return f"file://{socket.gethostname()}{settings.home.absolute() / 'store'}"


def _log_lost(why: str) -> None:
    log_problem(
        f"lineage is lost: {why}",
        fix="check OPENLINEAGE_URL or openlineage.yml, or set OPENLINEAGE_DISABLED=true",
    )


class LineageObserver:
    """Sends an event for each attempt's start, once its input is known, and for its end.

    ``send`` must neither block nor raise.
    """

    def __init__(self, send: Callable[[LineageEvent], None]) -> None:
        self._send = send
        self._attempts: dict[Attempt, _Running] = {}

    def observe(self, event: WorkerEvent) -> None:
        match event:
            case AttemptStarted(execution):
                begun = LineageEvent(execution, Transition.START, datetime.now(UTC))
                self._attempts[execution.attempt] = _Running(begun)
            case StepStarted(attempt, AttemptStep.BODY):
                if running := self._attempts.get(attempt):
                    self._send_start(running)
            case StepEnded(attempt, fields):
                if running := self._attempts.get(attempt):
                    self._step_ended(running, fields)
            case AttemptEnded(attempt):
                # None if it was refused before it began.
                if running := self._attempts.pop(attempt, None):
                    self._send_start(running)
                    self._send(ended(running.known, event, datetime.now(UTC)))

    def _step_ended(self, running: _Running, fields: Mapping[str, object]) -> None:
        running.known = learned(running.known, fields)
        if fields.get("step") == AttemptStep.DIRECTORY:
            self._send_start(running)

    def close(self) -> None:
        """Say of each attempt that is still running that it is stopped: nothing will follow."""
        for running in self._attempts.values():
            self._send_start(running)
            self._send(aborted(running.known, datetime.now(UTC)))
        self._attempts.clear()

    def _send_start(self, running: _Running) -> None:
        if not running.is_sent:
            running.is_sent = True
            self._send(running.known)


@dataclass(slots=True)
class _Running:
    """An attempt; ``known`` is its start event as of now."""

    known: LineageEvent
    is_sent: bool = False


def learned(known: LineageEvent, event: Mapping[str, Any]) -> LineageEvent:
    """What is known after one more event of the attempt's log."""
    match event:
        case {"step": AttemptStep.DIRECTORY, "repository": str(repository), "ref": str(ref)}:
            prefix = key_prefix(str(event.get("prefix", ""))).rstrip("/")
            return replace(known, input=Dataset(f"{repository}/{prefix}".rstrip("/"), ref))
        case {"step": "table"}:
            return replace(known, checks=(*known.checks, *_checked(event)))
        case {"step": AttemptStep.STAGE_UPLOAD, "uploaded": int(uploaded)}:
            return replace(known, files=uploaded + int(event.get("staged", 0)))
        case {"step": AttemptStep.PUBLISH, "path": path, "ref": str(ref)} if (
            path not in _NOTHING_NEW
        ):
            return replace(known, output=replace(known.input, commit=ref) if known.input else None)
    return known


def ended(known: LineageEvent, event: AttemptEnded, at: datetime) -> LineageEvent:
    """The event of an attempt's end. Only an accepted result has an output."""
    if event.accepted and event.status is TaskStatus.COMPLETED:
        return replace(known, transition=Transition.COMPLETE, at=at)
    if event.status in _FAILURES:
        return replace(aborted(known, at), transition=Transition.FAIL, reason=event.reason)
    return replace(aborted(known, at), reason=event.reason)


def aborted(known: LineageEvent, at: datetime) -> LineageEvent:
    return replace(known, transition=Transition.ABORT, at=at, output=None, files=None)


def _checked(event: Mapping[str, Any]) -> list[CheckResult]:
    """From a table's document, as :meth:`perago.model.tables.TableReport.document` makes it."""
    broken = {breach["rule"]: breach.get("count") for breach in event.get("breaches", ())}
    return [
        CheckResult(str(event.get("phase")), rule, rule not in broken, broken.get(rule))
        for rule in event.get("rules", ())
    ]


class Sender:
    """Sends events in order from its own thread, so that no attempt waits for the receiver.

    ``on_problem`` is called once, in that thread, with the reason why an event could not be sent.
    """

    def __init__(
        self, job_namespace: str, dataset_namespace: str, on_problem: Callable[[str], None]
    ) -> None:
        self._namespaces = (job_namespace, dataset_namespace)
        self._on_problem = on_problem
        self._has_problem = False
        self._unsent: Queue[LineageEvent | None] = Queue(QUEUE_LENGTH)
        self._thread = threading.Thread(target=self._send_all, daemon=True, name="lineage")
        self._thread.start()

    def send(self, event: LineageEvent) -> None:
        """Returns at once. Drops the event if too many wait already."""
        try:
            self._unsent.put_nowait(event)
        except Full:
            self._report_once(f"more than {QUEUE_LENGTH} events wait to be sent")

    def close(self) -> None:
        """Send what is left, for at most :data:`CLOSE_SECONDS`; the rest is lost."""
        with suppress(Full):
            self._unsent.put_nowait(None)
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            self._report_once("the last events could not be sent in time")

    def _send_all(self) -> None:
        client = None
        try:
            client = _client()
            while (event := self._unsent.get()) is not None:
                self._send(client, event)
        except Exception as error:  # noqa: BLE001 - mostly a wrong setting
            self._report_once(_kind(error))
        finally:
            if client is not None:
                client.close(0)

    def _send(self, client: OpenLineageClient, event: LineageEvent) -> None:
        from perago.worker.lineage_events import run_event

        try:
            client.emit(run_event(event, *self._namespaces))
        except Exception as error:  # noqa: BLE001 - whatever a transport may raise
            self._report_once(_kind(error))

    def _report_once(self, why: str) -> None:
        if not self._has_problem:
            self._has_problem = True
            self._on_problem(why)


def _client() -> OpenLineageClient:
    """Configured by OpenLineage's own variables and files. It leaves no variables behind."""
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import set_producer

    from perago.worker.lineage_events import PRODUCER

    set_producer(PRODUCER)
    # Its warnings repeat what we log once, and may hold an address with a key in it.
    logging.getLogger("openlineage").setLevel(logging.CRITICAL)
    before = set(os.environ)
    try:
        return OpenLineageClient(config=_NO_SOURCES)
    finally:
        for name in set(os.environ) - before:
            del os.environ[name]


def _kind(error: Exception) -> str:
    """Only the type of an exception: its message may hold an address with a key in it."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return type(error).__name__ + (f", status {status}" if status else "")
