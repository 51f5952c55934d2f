"""How an attempt's end is put into words, and reported until the orchestrator answers."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from perago.errors import OrchestratorUnavailableError, PeragoError, TaskBodyError
from perago.flow.runtime import BACKOFF
from perago.model.attempt import TaskStatus, is_superseded
from perago.model.outcome import REASON_LIMIT, ReportReceipt, TaskReport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perago.flow.runtime import Runtime
    from perago.model.attempt import Delivery
    from perago.ports.environment import Lease


def completed(output: Mapping[str, object]) -> TaskReport:
    """The report of a success."""
    return TaskReport(TaskStatus.COMPLETED, output)


def failed(error: Exception) -> TaskReport:
    """The report of a failure; the error says whether a retry can help."""
    terminal = isinstance(error, PeragoError) and error.terminal
    status = TaskStatus.FAILED_WITH_TERMINAL_ERROR if terminal else TaskStatus.FAILED
    return TaskReport(status, reason=short_reason(error))


def short_reason(error: BaseException) -> str:
    """One line a person can act on; the whole traceback is in the log."""
    if isinstance(error, PeragoError):
        text = f"{error.code}: {error.message}" + (f" (fix: {error.fix})" if error.fix else "")
    else:
        text = f"{type(error).__name__}: {error}"
    # A file name that isn't text contains unpaired surrogates, which no queue can store.
    text = " ".join(text.split()).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= REASON_LIMIT else text[: REASON_LIMIT - 1] + "…"


def body_error(error: BaseException, module_file: str, short: str | None = None) -> TaskBodyError:
    """What a task body raised, with the last line that it passed in the task's own module.

    ``short`` replaces the error's own text.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == module_file] or frames
    line = f" (at {own[-1].filename}:{own[-1].lineno})" if own else ""
    return TaskBodyError(f"{type(error).__name__}: {short or error}{line}")


def hand_in(
    runtime: Runtime, delivery: Delivery, report: TaskReport, lease: Lease
) -> ReportReceipt | None:
    """Report until the orchestrator answers or the lease ends; then ask what became of it.

    None if that isn't known either. Never raises.
    """
    waits = iter(BACKOFF)
    while True:
        try:
            return runtime.orchestrator.report(delivery, report)
        except PeragoError as error:
            pause = next(waits)
            is_unanswered = isinstance(error, OrchestratorUnavailableError)
            if not is_unanswered or lease.remaining() <= pause:
                runtime.journal.event("report.given_up", error=error.message)
                return _read_back(runtime, delivery, report) if is_unanswered else None
        runtime.clock.sleep(pause)


def _read_back(runtime: Runtime, delivery: Delivery, report: TaskReport) -> ReportReceipt | None:
    """What became of a report that was sent and never answered."""
    try:
        now = runtime.orchestrator.reload(delivery.attempt)
    except PeragoError:
        return None
    accepted = now.status is report.status and not is_superseded(delivery, now)
    return ReportReceipt(accepted=accepted, status=now.status)
