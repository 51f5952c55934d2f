"""Gathers from what a supervisor is told what there is to tell of each attempt's lineage."""

from __future__ import annotations

import logging
import os
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from queue import Full, Queue
from typing import TYPE_CHECKING, Any

from perago.model.attempt import AttemptStep, TaskStatus
from perago.model.outcome import PublishPath
from perago.model.workspace import key_prefix
from perago.worker.events import AttemptEnded, AttemptStarted, StepEnded, StepStarted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from openlineage.client import OpenLineageClient

    from perago.model.attempt import Attempt, Execution
    from perago.worker.events import WorkerEvent


_FAILURES = (TaskStatus.FAILED, TaskStatus.FAILED_WITH_TERMINAL_ERROR, TaskStatus.TIMED_OUT)
_NOTHING_NEW = (PublishPath.UNCHANGED, PublishPath.READ_ONLY)


class Transition(StrEnum):
    """OpenLineage's words for it. What is aborted doesn't count, whatever it did."""

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
    """How one rule for a table stood. ``broken_by`` counts rows, where they can be counted."""

    phase: str
    rule: str
    holds: bool
    broken_by: int | None = None


@dataclass(frozen=True, slots=True)
class LineageEvent:
    """One thing to tell of an execution, with all that is known of it by then.

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


class LineageObserver:
    """Tells ``send`` of each attempt's start as soon as its input is known, and of its end.

    ``send`` must neither block nor raise.
    """

    def __init__(self, send: Callable[[LineageEvent], None]) -> None:
        self._send = send
        self._running: dict[Attempt, _Followed] = {}

    def observe(self, event: WorkerEvent) -> None:
        match event:
            case AttemptStarted(execution):
                begun = LineageEvent(execution, Transition.START, datetime.now(UTC))
                self._running[execution.attempt] = _Followed(begun)
            case StepStarted(attempt, AttemptStep.BODY):
                if followed := self._running.get(attempt):
                    self._tell_start(followed)
            case StepEnded(attempt, fields):
                if followed := self._running.get(attempt):
                    self._step_ended(followed, fields)
            case AttemptEnded(attempt):
                # None if it was refused before it began.
                if followed := self._running.pop(attempt, None):
                    self._tell_start(followed)
                    self._send(ended(followed.known, event, datetime.now(UTC)))
            case _:
                pass

    def _step_ended(self, followed: _Followed, fields: Mapping[str, object]) -> None:
        followed.known = learned(followed.known, fields)
        if fields.get("step") == AttemptStep.DIRECTORY:
            self._tell_start(followed)

    def close(self) -> None:
        """Say of each attempt that is still running that it is stopped: nothing will follow."""
        for followed in self._running.values():
            self._tell_start(followed)
            self._send(aborted(followed.known, datetime.now(UTC)))
        self._running.clear()

    def _tell_start(self, followed: _Followed) -> None:
        if not followed.is_told:
            followed.is_told = True
            self._send(followed.known)


@dataclass(slots=True)
class _Followed:
    """An attempt under way; ``known`` is what its start would tell by now."""

    known: LineageEvent
    is_told: bool = False


def learned(known: LineageEvent, event: Mapping[str, Any]) -> LineageEvent:
    """What is known after one more event of the journal."""
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
    """Of a table's document as :meth:`perago.model.tables.TableReport.document` makes it."""
    broken = {breach["rule"]: breach.get("count") for breach in event.get("breaches", ())}
    return [
        CheckResult(str(event.get("phase")), rule, rule not in broken, broken.get(rule))
        for rule in event.get("rules", ())
    ]


# --- Sends lineage from a thread of its own, so that no attempt ever waits for whoever takes it ---
QUEUE_LENGTH = 1000
"""What is more than that is dropped: whoever takes it is away, or far too slow."""
CLOSE_SECONDS = 5.0
"""How long the last sending may take. It is as much as OpenLineage allows for one request."""
# A remote's address may have a password in it, and needn't be that of the task's own code.
_NO_SOURCES = {"facets": {"source_code_location": {"disabled": True}}}


class Sender:
    """Sends what it is given, in that order, from when it is made until it is closed.

    ``complain`` is told why something couldn't be sent, once: it is called in the other thread.
    """

    def __init__(
        self, job_namespace: str, dataset_namespace: str, complain: Callable[[str], None]
    ) -> None:
        self._namespaces = (job_namespace, dataset_namespace)
        self._complain = complain
        self._has_complained = False
        self._unsent: Queue[LineageEvent | None] = Queue(QUEUE_LENGTH)
        self._thread = threading.Thread(target=self._send_all, daemon=True, name="lineage")
        self._thread.start()

    def send(self, told: LineageEvent) -> None:
        """Returns at once. Dropped if too much waits already."""
        try:
            self._unsent.put_nowait(told)
        except Full:
            self._complain_once(f"more than {QUEUE_LENGTH} events wait to be taken")

    def close(self) -> None:
        """Send what is left, for :data:`CLOSE_SECONDS` at most: what isn't taken then is lost."""
        with suppress(Full):
            self._unsent.put_nowait(None)
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            self._complain_once("the last events weren't taken in time")

    def _send_all(self) -> None:
        client = None
        try:
            client = _client()
            while (told := self._unsent.get()) is not None:
                self._send(client, told)
        except Exception as error:  # noqa: BLE001 - a wrong setting, above all
            self._complain_once(_kind(error))
        finally:
            if client is not None:
                client.close(0)

    def _send(self, client: OpenLineageClient, told: LineageEvent) -> None:
        from perago.worker.lineage_events import run_event

        try:
            client.emit(run_event(told, *self._namespaces))
        except Exception as error:  # noqa: BLE001 - whatever a transport may raise
            self._complain_once(_kind(error))

    def _complain_once(self, why: str) -> None:
        if not self._has_complained:
            self._has_complained = True
            self._complain(why)


def _client() -> OpenLineageClient:
    """As OpenLineage's own variables and files have it, in which it leaves nothing behind."""
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import set_producer

    from perago.worker.lineage_events import PRODUCER

    set_producer(PRODUCER)
    # Its warnings repeat what we say once, and may have an address with a key in it.
    logging.getLogger("openlineage").setLevel(logging.CRITICAL)
    before = set(os.environ)
    try:
        return OpenLineageClient(config=_NO_SOURCES)
    finally:
        for name in set(os.environ) - before:
            del os.environ[name]


def _kind(error: Exception) -> str:
    """Of an exception only the kind is told: its words may hold the address with a key in it."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return type(error).__name__ + (f", status {status}" if status else "")
