"""Gathers from what a supervisor is told what there is to tell of each attempt's lineage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from perago.model.attempt import TaskStatus
from perago.model.keys import key_prefix
from perago.model.outcome import PublishPath
from perago.worker.watcher import NobodyWatching, outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from perago.model.attempt import Attempt, Execution

STOPPED = "STOPPED"

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
class Checked:
    """How one rule for a table stood. ``broken_by`` counts rows, where they can be counted."""

    phase: str
    rule: str
    holds: bool
    broken_by: int | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """One thing to tell of an execution, with all that is known of it by then.

    ``files`` is how many were written to the output.
    """

    execution: Execution
    transition: Transition
    at: datetime
    input: Dataset | None = None
    output: Dataset | None = None
    checks: tuple[Checked, ...] = ()
    files: int | None = None
    reason: str | None = None


class LineageWatcher(NobodyWatching):
    """Tells ``send`` of each attempt's start as soon as its input is known, and of its end.

    ``send`` must neither block nor raise.
    """

    def __init__(self, send: Callable[[Told], None]) -> None:
        self._send = send
        self._running: dict[Attempt, _Followed] = {}

    def execution_began(self, execution: Execution) -> None:
        begun = Told(execution, Transition.START, datetime.now(UTC))
        self._running[execution.attempt] = _Followed(begun)

    def step_started(self, attempt: Attempt, step: str) -> None:
        if step == "body" and (followed := self._running.get(attempt)):
            self._tell_start(followed)

    def step_ended(self, attempt: Attempt, fields: Mapping[str, object]) -> None:
        followed = self._running.get(attempt)
        if followed is None:
            return
        followed.known = learned(followed.known, fields)
        if fields.get("step") == "directory":
            self._tell_start(followed)

    def attempt_ended(self, attempt: Attempt, status: str, reason: str | None) -> None:
        followed = self._running.pop(attempt, None)
        if followed is None:  # it was refused before it began
            return
        self._tell_start(followed)
        self._send(ended(followed.known, status, reason, datetime.now(UTC)))

    def close(self) -> None:
        """Nothing more will be told of what is still under way: it is being stopped."""
        for attempt in list(self._running):
            self.attempt_ended(attempt, STOPPED, None)

    def _tell_start(self, followed: _Followed) -> None:
        if not followed.is_told:
            followed.is_told = True
            self._send(followed.known)


@dataclass(slots=True)
class _Followed:
    """An attempt under way; ``known`` is what its start would tell by now."""

    known: Told
    is_told: bool = False


def learned(known: Told, event: Mapping[str, Any]) -> Told:
    """What is known after one more event of the journal."""
    match event:
        case {"step": "directory", "repository": str(repository), "ref": str(ref)}:
            prefix = key_prefix(str(event.get("prefix", ""))).rstrip("/")
            return replace(known, input=Dataset(f"{repository}/{prefix}".rstrip("/"), ref))
        case {"step": "table"}:
            return replace(known, checks=(*known.checks, *_checked(event)))
        case {"step": "stage.upload", "uploaded": int(uploaded)}:
            return replace(known, files=uploaded + int(event.get("staged", 0)))
        case {"step": "publish", "path": path, "ref": str(ref)} if path not in _NOTHING_NEW:
            return replace(known, output=replace(known.input, commit=ref) if known.input else None)
    return known


def ended(known: Told, status: str, reason: str | None, at: datetime) -> Told:
    """The end, by the word that watchers are told. Only what was accepted has an output."""
    word, accepted = outcome(status)
    if word == TaskStatus.COMPLETED and accepted:
        return replace(known, transition=Transition.COMPLETE, at=at)
    transition = Transition.FAIL if word in _FAILURES else Transition.ABORT
    return replace(known, transition=transition, at=at, output=None, files=None, reason=reason)


def _checked(event: Mapping[str, Any]) -> list[Checked]:
    """Of a table's document as :meth:`perago.model.tables.TableReport.document` makes it."""
    broken = {breach["rule"]: breach.get("count") for breach in event.get("breaches", ())}
    return [
        Checked(str(event.get("phase")), rule, rule not in broken, broken.get(rule))
        for rule in event.get("rules", ())
    ]
